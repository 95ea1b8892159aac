// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVersionOf(t *testing.T) {
	git := []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-11-30T09:00:00Z"}}
	for name, tc := range map[string]struct {
		reason                        string
		version, revision, commitTime string
		info                          debug.BuildInfo
		want                          buildVersion
	}{
		"Stamped": {"the linker's word goes first", "v1.2.3-dirty", "def", "2026-11-29T09:00:00Z",
			debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-1"}, Settings: git},
			buildVersion{Version: "v1.2.3-dirty", Revision: "def", CommitTime: "2026-11-29T09:00:00Z"}},
		"Plain": {"go build in a clone", "", "", "",
			debug.BuildInfo{Main: debug.Module{Version: "v1.2.4-0.20261130090000-abc"}, Settings: git},
			buildVersion{Version: "v1.2.4-0.20261130090000-abc", Revision: "abc", CommitTime: "2026-11-30T09:00:00Z"}},
		"Installed": {"go install of a version has no git", "", "", "",
			debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, buildVersion{Version: "v1.2.3"}},
		"Archive": {"sources without git", "", "", "",
			debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, buildVersion{Version: "dev"}},
		"Nothing": {"a binary without build information", "", "", "", debug.BuildInfo{}, buildVersion{Version: "dev"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, versionOf(tc.version, tc.revision, tc.commitTime, &tc.info)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestVersionIsShown asks the binary in every way in which it tells its version.
func TestVersionIsShown(t *testing.T) {
	run := func(args ...string) string {
		output, err := exec.Command(binary, args...).CombinedOutput()
		if err != nil {
			t.Errorf("tierlimit %v: %v\n%s", args, err, output)
		}
		return string(output)
	}
	if got, want := run("--version"), "tierlimit v0.0.0-test\n"; got != want {
		t.Errorf("--version: %q, want %q", got, want)
	}
	text := run("version")
	for _, want := range []string{"v0.0.0-test", "0123abc", "2026-11-30T09:34:22Z", runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH} {
		if !strings.Contains(text, want) {
			t.Errorf("version does not tell %s:\n%s", want, text)
		}
	}
	var got buildVersion
	if err := json.Unmarshal([]byte(run("version", "-o", "json")), &got); err != nil {
		t.Fatal(err)
	}
	want := buildVersion{"v0.0.0-test", "0123abc", "2026-11-30T09:34:22Z", runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-o json (-want +got):\n%s", diff)
	}
	p := start(t, nil, "--tiers", "config/samples")
	if !strings.Contains(p.log.String(), "version=v0.0.0-test") {
		t.Errorf("the log does not tell the version:\n%s", p.log)
	}
}

func TestVersionIsAskedForWrongly(t *testing.T) {
	for _, args := range [][]string{{"version", "-o", "yaml"}, {"version", "short"}, {"version", "--tiers", "x"}} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, func(string) string { return "" }, &stdout, &stderr); code != 2 || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%v: code %d\n%s", args, code, &stderr)
		}
	}
}
