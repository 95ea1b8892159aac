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
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/hack/bench/contenders"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// instructionCount is what Redis executes for one check, reading and answering its commands included.
type instructionCount struct {
	what     string
	total    float64 // instructions in user space; NaN where they cannot be counted
	cpu      float64 // microseconds, of the kernel's work too
	commands int     // of a check
	naive    string  // what it is compared with
}

const (
	countedEvent  = "instructions:u"
	countedChecks = 20_000
	countedUsers  = 1_000
	countedAtOnce = 100 // in one pipeline
	countedRounds = 3
)

// errNoPerf says why instructions cannot be counted here.
var errNoPerf = errors.New("perf counts no instructions here")

// probe is a kind of check: the commands of each of its steps.
type probe struct {
	instructionCount
	steps []func(i int) []any
	fill  int // admitted checks of each user before
}

// instructions counts what the scripts cost on the admitted and on the rejected path. The first
// count is that of a PING. noPerf says why only the CPU time could be measured, if so.
func (b *bench) instructions(ctx context.Context) (results []instructionCount, noPerf, err error) {
	server, err := startRedis(ctx, b.dir)
	if err != nil {
		return nil, nil, err
	}
	defer server.stop()
	ours := redis.NewScript(b.script)
	for _, source := range []*redis.Script{ours, contenders.NaiveScript} {
		if err := source.Load(ctx, server.client).Err(); err != nil {
			return nil, nil, err
		}
	}
	probes := probes(ours.Hash())
	counts, times := make([][]float64, len(probes)), make([][]float64, len(probes))
	for range countedRounds {
		for i, p := range probes {
			count, microseconds, err := p.measure(ctx, server)
			if errors.Is(err, errNoPerf) {
				noPerf = err
			} else if err != nil {
				return nil, nil, err
			}
			counts[i], times[i] = append(counts[i], count), append(times[i], microseconds)
		}
	}
	for i, p := range probes {
		p.total, p.cpu, p.commands = median(counts[i]), median(times[i]), len(p.steps)
		results = append(results, p.instructionCount)
		b.say("instructions  %-30s %7.0f a check, %5.1f us", p.what, p.total, p.cpu)
	}
	return results, noPerf, nil
}

// measure returns the instructions and the microseconds of one check. An error that wraps errNoPerf
// concerns the instructions alone.
func (p probe) measure(ctx context.Context, server *redisServer) (count, microseconds float64, err error) {
	if err := server.empty(ctx); err != nil {
		return 0, 0, err
	}
	if err := p.send(ctx, server.client, p.fill*countedUsers); err != nil {
		return 0, 0, err
	}
	count, err = countInstructions(ctx, server.pid(), func() error {
		before, err := mainThreadTime(server.pid())
		if err != nil {
			return err
		}
		if err := p.send(ctx, server.client, countedChecks); err != nil {
			return err
		}
		after, err := mainThreadTime(server.pid())
		microseconds = float64((after - before).Nanoseconds()) / 1e3 / countedChecks
		return err
	})
	return count / countedChecks, microseconds, err
}

// mainThreadTime is the time that the first thread of a process has spent on a CPU, to the
// nanosecond. Redis executes commands in that thread.
func mainThreadTime(pid int) (time.Duration, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(content), " ")
	nanoseconds, err := strconv.ParseInt(first, 10, 64)
	return time.Duration(nanoseconds), err
}

func probes(hash string) []probe {
	admitted := contenders.Tiers[contenders.Admitted]
	full := []limiter.Limit{{Requests: 5, Window: time.Minute}, {Requests: 100, Window: day}}
	members := contenders.NewMembers()
	ours := func(limits []limiter.Limit) func(int) []any {
		return func(i int) []any {
			keys, args := contenders.ScriptCall(userName(i%countedUsers), members.Next(), limits)
			command := []any{"evalsha", hash, len(keys)}
			for _, key := range keys {
				command = append(command, key)
			}
			return append(command, args...)
		}
	}
	naive := func(limit limiter.Limit) func(int) []any {
		return func(i int) []any {
			key, args := contenders.NaiveCall(userName(i%countedUsers), uuid.NewString(), time.Now(), limit)
			return append([]any{"evalsha", contenders.NaiveScript.Hash(), 1, key}, args...)
		}
	}
	ping := func(int) []any { return []any{"ping"} }
	name := func(what, naive string) instructionCount { return instructionCount{what: what, naive: naive} }
	return []probe{
		{instructionCount: name("PING", ""), steps: []func(int) []any{ping}},
		{instructionCount: name("script, admitted", "naive, admitted"), steps: []func(int) []any{ours(admitted)}},
		{instructionCount: name("naive, admitted", ""), steps: []func(int) []any{naive(admitted[0]), naive(admitted[1])}},
		{instructionCount: name("script, rejected by the minute", "naive, rejected by the minute"), steps: []func(int) []any{ours(full)}, fill: 5},
		{instructionCount: name("naive, rejected by the minute", ""), steps: []func(int) []any{naive(full[0])}, fill: 5},
	}
}

// send makes checks over one connection, many at once.
func (p probe) send(ctx context.Context, client *redis.Client, checks int) error {
	for start := 0; start < checks; start += countedAtOnce {
		for _, step := range p.steps {
			_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for i := start; i < start+countedAtOnce; i++ {
					pipe.Do(ctx, step(i)...)
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("%s: %w", p.what, err)
			}
		}
	}
	return nil
}

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
