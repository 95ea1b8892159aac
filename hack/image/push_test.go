// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

func TestPushRefuses(t *testing.T) {
	unfinished := t.TempDir()
	if _, err := layout.Write(filepath.Join(unfinished, layoutDir), empty.Index); err != nil {
		t.Fatal(err)
	}
	const form = "make image-push IMAGE=registry.example/tierlimit:v0.1.0"
	for name, tc := range map[string]struct{ reason, from, to, want string }{
		"NoName":     {"there is no default registry", "x", "", form},
		"Default":    {"what make says without IMAGE", "x", "tierlimit:dev", form},
		"NoTag":      {"latest is nobody's intention", "x", "registry.example/tierlimit", form},
		"NotBuilt":   {"there is nothing to push", filepath.Join(unfinished, "x"), "registry.example/tierlimit:v1", "run 'make image' first"},
		"Unfinished": {"the same, although there is a layout", unfinished, "registry.example/tierlimit:v1", "run 'make image' first"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := push(t.Context(), tc.from, tc.to, io.Discard); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want an error with %q: %s", err, tc.want, tc.reason)
			}
		})
	}
}

// program makes a module with a program that is compiled quickly.
func program(t *testing.T) source {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "go.mod"), "module "+module+"\n\ngo 1.24\n")
	write(t, filepath.Join(root, "cmd", "tierlimit", "main.go"), "package main\n\nfunc main() {}\n")
	return source{root: root, version: "v0.9.0", created: time.Unix(0, 0).UTC()}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestBuildKeepsTheImageBefore interrupts a build and has another one fail.
func TestBuildKeepsTheImageBefore(t *testing.T) {
	s, out := program(t), filepath.Join(t.TempDir(), "image")
	platforms := []*v1.Platform{{OS: "linux", Architecture: "amd64"}}
	digest := func() string {
		t.Helper()
		content, err := os.ReadFile(filepath.Join(out, "digest"))
		if err != nil {
			t.Fatal(err)
		}
		index, err := layout.ImageIndexFromPath(filepath.Join(out, layoutDir))
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := index.IndexManifest()
		if err != nil || len(manifest.Manifests) != 2 || manifest.Manifests[0].Digest.String()+"\n" != string(content) {
			t.Fatalf("%v; the layout has %+v, want %s and a bill of materials", err, manifest, content)
		}
		return string(content)
	}
	var stdout bytes.Buffer
	if err := build(t.Context(), s, platforms, out, "tierlimit:dev", &stdout); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(stdout.String(), "building linux/amd64 ...\n") || !strings.Contains(stdout.String(), filepath.Join(out, layoutDir)+": sha256:") {
		t.Errorf("it says %s", &stdout)
	}
	first := digest()

	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	if err := build(interrupted, s, platforms, out, "tierlimit:dev", io.Discard); err == nil || digest() != first {
		t.Errorf("interrupted: %v, image %s, want an error and %s", err, digest(), first)
	}
	write(t, filepath.Join(s.root, "cmd", "tierlimit", "main.go"), "package main\n\nfunc main() { wrong }\n")
	if err := build(t.Context(), s, platforms, out, "tierlimit:dev", io.Discard); err == nil || digest() != first {
		t.Errorf("failed: %v, image %s, want an error and %s", err, digest(), first)
	}
	write(t, filepath.Join(s.root, "cmd", "tierlimit", "main.go"), "package main\n\nfunc main() { println() }\n")
	if err := build(t.Context(), s, platforms, out, "tierlimit:dev", io.Discard); err != nil || digest() == first {
		t.Errorf("another: %v, image %s; want another image than before", err, digest())
	}
	entries, err := os.ReadDir(filepath.Dir(out))
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v; want the image and nothing beside it", entries, err)
	}
}

// TestBuildReplacesOnlyAnImage gives it a folder with files of somebody else.
func TestBuildReplacesOnlyAnImage(t *testing.T) {
	out := t.TempDir()
	write(t, filepath.Join(out, "thesis.txt"), "years of work")
	err := build(t.Context(), program(t), []*v1.Platform{{OS: "linux", Architecture: "amd64"}}, out, "tierlimit:dev", io.Discard)
	if err == nil || !strings.Contains(err.Error(), "name a folder for the image alone") {
		t.Errorf("%v, want a refusal", err)
	}
	if _, err := os.Stat(filepath.Join(out, "thesis.txt")); errors.Is(err, fs.ErrNotExist) {
		t.Error("it is gone")
	}
}
