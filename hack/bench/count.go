// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const countedEvent = "instructions:u"

// errNoPerf says why instructions cannot be counted with perf.
var errNoPerf = errors.New("perf counts no instructions here")

// countInstructions counts the instructions that a process executes in user space during work.
// Where that is not possible, work is done nevertheless, and the error wraps errNoPerf.
func countInstructions(ctx context.Context, pid int, work func() error) (float64, error) {
	cmd := exec.CommandContext(ctx, "perf", "stat", "-x", ",", "-e", countedEvent, "-p", strconv.Itoa(pid))
	var output bytes.Buffer
	cmd.Stderr = &output
	if err := cmd.Start(); err != nil {
		if err := work(); err != nil {
			return 0, err
		}
		return math.NaN(), fmt.Errorf("%w: %w", errNoPerf, err)
	}
	time.Sleep(300 * time.Millisecond) // until it counts; the process has nothing to do meanwhile
	err := work()
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait() // what it printed tells whether it counted
	if err != nil {
		return 0, err
	}
	count, err := parsePerf(output.String())
	if err != nil {
		return math.NaN(), fmt.Errorf("%w: %w", errNoPerf, err)
	}
	return count, nil
}

// parsePerf reads the line of "perf stat -x ,".
func parsePerf(output string) (float64, error) {
	for line := range strings.Lines(output) {
		fields := strings.Split(line, ",")
		if len(fields) > 2 && fields[2] == countedEvent {
			if count, err := strconv.ParseFloat(fields[0], 64); err == nil {
				return count, nil
			}
		}
	}
	return 0, fmt.Errorf("perf printed %q", strings.TrimSpace(output))
}

// underValgrind returns the instructions of one check: what a Redis executes in its life with the
// checks, less what another one executes in its life without. Valgrind interprets them, which no
// machine forbids.
func (b *bench) underValgrind(ctx context.Context, p probe) (float64, error) {
	var with, without float64
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) { with, err = b.life(ctx, p, slowly.checks); return err })
	group.Go(func() (err error) { without, err = b.life(ctx, p, 0); return err })
	err := group.Wait()
	return (with - without) / float64(slowly.checks), err
}

// life returns all instructions of a Redis that answers so many checks.
func (b *bench) life(ctx context.Context, p probe, checks int) (float64, error) {
	server, err := b.startProbed(ctx, "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
	if err != nil {
		return 0, err
	}
	for _, part := range []int{p.fill * slowly.users, checks} {
		if err := p.send(ctx, server.client, batch{part, slowly.users}); err != nil {
			server.stop()
			return 0, err
		}
	}
	return parseCollected(server.end())
}

var collected = regexp.MustCompile(`(?m)^==\d+== Collected : (\d+)$`)

// parseCollected reads the sum that callgrind prints at the end.
func parseCollected(output string) (float64, error) {
	match := collected.FindStringSubmatch(output)
	if match == nil {
		return 0, fmt.Errorf("valgrind printed no count: %q", output)
	}
	return strconv.ParseFloat(match[1], 64)
}
