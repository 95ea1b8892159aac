// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
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

// costs is what kinds of checks cost in Redis. The first is a PING.
type costs struct {
	kinds     []instructionCount
	counter   string // what counted the instructions; "" is nothing
	uncounted error  // why nothing did
}

// instructionCount is what Redis executes for one check, reading and answering its commands included.
type instructionCount struct {
	what     string
	total    float64 // instructions in user space; NaN where they cannot be counted
	cpu      float64 // microseconds, of the kernel's work too
	commands int     // of a check
	naive    string  // what it is compared with
}

// batch is how many checks are counted, spread over so many users.
type batch struct{ checks, users int }

var (
	timed  = batch{20_000, 1_000}
	slowly = batch{4_000, 200} // under valgrind, with logs that are as long
)

const (
	countedAtOnce = 100 // in one pipeline
	countedRounds = 3
)

// probe is a kind of check: the commands of each of its steps, for a user.
type probe struct {
	instructionCount
	steps []func(user int) []any
	fill  int // admitted checks of each user before
}

// instructions measures what the scripts cost on the admitted and on the rejected path.
func (b *bench) instructions(ctx context.Context) (*costs, error) {
	server, err := b.startProbed(ctx)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	result, probes := &costs{counter: "perf"}, b.probes()
	counts, times := make([][]float64, len(probes)), make([][]float64, len(probes))
	for range countedRounds {
		for i, p := range probes {
			count, microseconds, err := p.measure(ctx, server)
			if errors.Is(err, errNoPerf) {
				result.counter, result.uncounted = "", err
			} else if err != nil {
				return nil, err
			}
			counts[i], times[i] = append(counts[i], count), append(times[i], microseconds)
		}
	}
	_, missing := exec.LookPath("valgrind")
	if result.counter == "" && missing == nil {
		result.counter = "valgrind"
	}
	for i, p := range probes {
		p.total, p.cpu, p.commands = median(counts[i]), median(times[i]), len(p.steps)
		if result.counter == "valgrind" {
			if p.total, err = b.underValgrind(ctx, p); err != nil {
				return nil, err
			}
		}
		result.kinds = append(result.kinds, p.instructionCount)
		b.say("instructions  %-40s %7.0f a check, %5.1f us", p.what, p.total, p.cpu)
	}
	return result, nil
}

// startProbed runs a Redis that has the scripts.
func (b *bench) startProbed(ctx context.Context, under ...string) (*redisServer, error) {
	server, err := startRedis(ctx, b.dir, under...)
	if err != nil {
		return nil, err
	}
	for _, source := range []*redis.Script{redis.NewScript(b.script), contenders.CountFirstScript, contenders.NaiveScript} {
		if err := source.Load(ctx, server.client).Err(); err != nil {
			server.stop()
			return nil, err
		}
	}
	return server, nil
}

// measure returns the instructions and the microseconds of one check. An error that wraps errNoPerf
// concerns the instructions alone.
func (p probe) measure(ctx context.Context, server *redisServer) (count, microseconds float64, err error) {
	if err := server.empty(ctx); err != nil {
		return 0, 0, err
	}
	if err := p.send(ctx, server.client, batch{p.fill * timed.users, timed.users}); err != nil {
		return 0, 0, err
	}
	count, err = countInstructions(ctx, server.pid(), func() error {
		before, err := mainThreadTime(server.pid())
		if err != nil {
			return err
		}
		if err := p.send(ctx, server.client, timed); err != nil {
			return err
		}
		after, err := mainThreadTime(server.pid())
		microseconds = float64((after - before).Nanoseconds()) / 1e3 / float64(timed.checks)
		return err
	})
	return count / float64(timed.checks), microseconds, err
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

// probes are the checks to measure: of ours, of its variant and of the naive design.
func (b *bench) probes() []probe {
	admitted, free := contenders.Tiers[contenders.Admitted], contenders.Tiers[contenders.Free]
	members := contenders.NewMembers()
	script := func(hash string, limits []limiter.Limit) []func(int) []any {
		return []func(int) []any{func(user int) []any {
			keys, args := contenders.ScriptCall(userName(user), members.Next(), limits)
			return contenders.EvalSHA(hash, keys, args)
		}}
	}
	naive := func(limits ...limiter.Limit) (steps []func(int) []any) {
		for _, limit := range limits {
			steps = append(steps, func(user int) []any {
				key, args := contenders.NaiveCall(userName(user), uuid.NewString(), time.Now(), limit)
				return contenders.EvalSHA(contenders.NaiveScript.Hash(), []string{key}, args)
			})
		}
		return steps
	}
	ping := []func(int) []any{func(int) []any { return []any{"ping"} }}
	name := func(what, naive string) instructionCount { return instructionCount{what: what, naive: naive} }
	ours, variant := redis.NewScript(b.script).Hash(), contenders.CountFirstScript.Hash()
	const naiveAdmitted, naiveRejected = "naive, admitted", "naive, rejected by the minute"
	return []probe{
		{instructionCount: name("PING", ""), steps: ping},
		{instructionCount: name("script, admitted", naiveAdmitted), steps: script(ours, admitted)},
		{instructionCount: name("stale entries counted first, admitted", naiveAdmitted), steps: script(variant, admitted)},
		{instructionCount: name(naiveAdmitted, naiveAdmitted), steps: naive(admitted...)},
		{instructionCount: name("script, rejected by the minute", naiveRejected), steps: script(ours, free), fill: 5},
		{instructionCount: name("stale entries counted first, rejected by the minute", naiveRejected), steps: script(variant, free), fill: 5},
		{instructionCount: name(naiveRejected, naiveRejected), steps: naive(free[0]), fill: 5},
	}
}

// send makes checks over one connection, many at once.
func (p probe) send(ctx context.Context, client *redis.Client, b batch) error {
	for start := 0; start < b.checks; start += countedAtOnce {
		for _, step := range p.steps {
			_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for i := start; i < start+countedAtOnce; i++ {
					pipe.Do(ctx, step(i%b.users)...)
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
