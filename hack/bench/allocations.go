// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"

	"github.com/tierlimit/tierlimit/hack/bench/contenders"
)

// processCosts is what a check costs in the process that asks.
type processCosts struct {
	allocations []allocation
	shares      []share
}

// allocation is what one check allocates.
type allocation struct {
	what         string
	objects      float64
	bytes        float64
	microseconds float64 // where nothing but the process is waited for, else 0
}

// process measures allocations, and where the time of the check path goes.
func (b *bench) process(ctx context.Context) (*processCosts, error) {
	without, err := b.benchmark(ctx)
	if err != nil {
		return nil, err
	}
	result := &processCosts{allocations: []allocation{without}}
	for _, name := range []string{"pkg/limiter", "script, a connection a call"} {
		a, err := b.allocations(ctx, name)
		if err != nil {
			return nil, err
		}
		result.allocations = append(result.allocations, a)
	}
	for _, a := range result.allocations {
		b.say("process     %s: %.1f allocations, %.0f bytes", a.what, a.objects, a.bytes)
	}
	result.shares, err = b.profile(ctx)
	return result, err
}

// allocations lets one caller make checks, which allocate in the client for Redis too.
func (b *bench) allocations(ctx context.Context, name string) (allocation, error) {
	engine, err := contenders.New(ctx, find(name).engine, b.config())
	if err != nil {
		return allocation{}, err
	}
	const checks = 5_000
	ask := func() error {
		for i := range checks {
			if _, err := engine.Check(ctx, userName(i%100), contenders.Tiers[contenders.Admitted]); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	}
	if err := ask(); err != nil { // pools are filled then
		return allocation{}, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = ask()
	runtime.ReadMemStats(&after)
	return allocation{
		what:    name + ", go-redis included",
		objects: float64(after.Mallocs-before.Mallocs) / checks,
		bytes:   float64(after.TotalAlloc-before.TotalAlloc) / checks,
	}, err
}

// benchmark runs that of pkg/limiter whose Redis answers at once.
func (b *bench) benchmark(ctx context.Context) (allocation, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkCheckAllWithoutRedis$", "-benchmem", "./pkg/limiter")
	cmd.Dir = b.root
	output, err := cmd.CombinedOutput()
	if err != nil {
		return allocation{}, fmt.Errorf("go test -bench: %w: it printed:\n%s", err, output)
	}
	return parseBenchmark(string(output))
}

var benchmarkLine = regexp.MustCompile(`(?m)^Benchmark\S+\s+\d+\s+([0-9.]+) ns/op\s+([0-9.]+) B/op\s+([0-9.]+) allocs/op$`)

// parseBenchmark reads the line that go test prints of one benchmark.
func parseBenchmark(output string) (allocation, error) {
	match := benchmarkLine.FindStringSubmatch(output)
	if match == nil {
		return allocation{}, fmt.Errorf("go test printed no benchmark:\n%s", output)
	}
	a := allocation{what: "pkg/limiter, without Redis and its client"}
	a.microseconds, _ = strconv.ParseFloat(match[1], 64)
	a.microseconds /= 1e3
	a.bytes, _ = strconv.ParseFloat(match[2], 64)
	a.objects, _ = strconv.ParseFloat(match[3], 64)
	return a, nil
}
