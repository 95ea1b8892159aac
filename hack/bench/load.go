// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed wrk.lua
var wrkScript string

// load is what wrk does to a server.
type load struct {
	addr        string
	paths       []string // asked in turn
	connections int
	threads     int
	duration    time.Duration // whole seconds
	close       bool          // a new connection for each request
}

// loaded is what came of it.
type loaded struct {
	Requests     int64 `json:"requests"`
	DurationUS   int64 `json:"duration_us"`
	P50US        int64 `json:"p50_us"`
	P99US        int64 `json:"p99_us"`
	BadStatus    int64 `json:"bad_status"` // 429 is one too
	SocketErrors int64 `json:"socket_errors"`
}

// rate is in requests per second.
func (l loaded) rate() float64 {
	return float64(l.Requests) / (float64(l.DurationUS) / 1e6)
}

// run loads the server with wrk. Files that wrk reads are put into dir.
func (l load) run(ctx context.Context, dir string) (loaded, error) {
	script, paths := filepath.Join(dir, "wrk.lua"), filepath.Join(dir, "paths")
	if err := os.WriteFile(script, []byte(wrkScript), 0o600); err != nil {
		return loaded{}, err
	}
	if err := os.WriteFile(paths, []byte(strings.Join(l.paths, "\n")+"\n"), 0o600); err != nil {
		return loaded{}, err
	}
	args := []string{
		"-t", strconv.Itoa(l.threads), "-c", strconv.Itoa(l.connections), "-d", strconv.Itoa(int(l.duration/time.Second)) + "s",
		"--timeout", "5s", "-s", script, "http://" + l.addr, "--", paths,
	}
	if l.close {
		args = append(args, "close")
	}
	output, err := exec.CommandContext(ctx, "wrk", args...).CombinedOutput()
	if err != nil {
		return loaded{}, fmt.Errorf("wrk: %w: it printed:\n%s", err, output)
	}
	return parseWrk(output)
}

// parseWrk finds the line that wrk.lua prints at the end.
func parseWrk(output []byte) (loaded, error) {
	_, line, found := bytes.Cut(output, []byte("\nresult "))
	if !found {
		return loaded{}, fmt.Errorf("wrk printed no result:\n%s", output)
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	var result loaded
	if err := json.Unmarshal(line, &result); err != nil {
		return loaded{}, fmt.Errorf("wrk printed %q: %w", line, err)
	}
	if result.Requests <= 0 || result.DurationUS <= 0 {
		return loaded{}, errors.New("wrk had no answer at all")
	}
	return result, nil
}
