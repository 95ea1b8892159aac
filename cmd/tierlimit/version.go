// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/tierlimit/tierlimit/internal/desk"
)

// Set by the linker from git: -X main.stamped=v1.2.3.
var (
	stamped         string // `git describe --tags --always --dirty`
	stampedRevision string // the commit
	stampedTime     string // of the commit, RFC 3339
)

// buildVersion is what this program was built from, and with what. A field that is not known is
// empty, but for the version.
type buildVersion struct {
	Version    string `json:"version"`              // "v1.2.3", "v1.2.3-4-gabcdef0-dirty" or "dev"
	Revision   string `json:"revision,omitempty"`   // the commit of git, 40 hexadecimal digits
	CommitTime string `json:"commitTime,omitempty"` // when that was made, such as "2026-11-30T09:34:22Z"
	Go         string `json:"go"`                   // "go1.26.8"
	Platform   string `json:"platform"`             // "linux/amd64"
}

// readVersion returns what is known about this program: what the linker was told, else what the go
// command found in git or, for `go install MODULE@VERSION`, in the module.
func readVersion() buildVersion {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	v := versionOf(stamped, stampedRevision, stampedTime, info)
	v.Go, v.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
	return v
}

func versionOf(version, revision, commitTime string, info *debug.BuildInfo) buildVersion {
	v := buildVersion{Version: version, Revision: revision, CommitTime: commitTime}
	if v.Version == "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	if v.Version == "" {
		v.Version = "dev"
	}
	if v.Revision != "" {
		return v
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			v.Revision = setting.Value
		case "vcs.time":
			v.CommitTime = setting.Value
		}
	}
	return v
}

// version returns the version that this binary was built from.
func version() string { return readVersion().Version }

// versionCommand prints what this program was built from.
func versionCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "version",
		Short: "Print what this program was built from",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 || (output != "text" && output != "json") {
				return desk.UsageError("use tierlimit version, or tierlimit version -o json")
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			return readVersion().print(c.OutOrStdout(), output == "json")
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "text", "`FORMAT` of the output: text or json")
	return c
}

// print prints the version as text, a line for each thing that is known, or as JSON.
func (v buildVersion) print(w io.Writer, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(v)
	}
	for _, line := range [][2]string{
		{"tierlimit", v.Version}, {"revision", v.Revision}, {"committed", v.CommitTime}, {"go", v.Go}, {"platform", v.Platform},
	} {
		if line[1] != "" {
			fmt.Fprintf(w, "%-10s %s\n", line[0], line[1])
		}
	}
	return nil
}
