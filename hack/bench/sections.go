// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// conditions says where and how it was measured.
func (r *results) conditions(w *strings.Builder) {
	b := r.bench
	peers := []string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if slices.Contains([]string{"github.com/redis/go-redis/v9", "github.com/go-redis/redis_rate/v10", "github.com/ulule/limiter/v3"}, dependency.Path) {
				peers = append(peers, strings.TrimPrefix(dependency.Path, "github.com/")+" "+dependency.Version)
			}
		}
	}
	fmt.Fprintf(w, "Measured on %s with %d cores (%s), %s/%s. %s. Redis %s with its default settings and no "+
		"persistence, %s, %s.\n\n", r.started.UTC().Format(time.DateOnly), runtime.NumCPU(), processor(), runtime.GOOS, runtime.GOARCH,
		r.version, r.redisVersion, strings.Replace(runtime.Version(), "go", "Go ", 1), strings.Join(peers, ", "))
	fmt.Fprintf(w, "Rates: each cell %d times for %v, in turns; %s users, %d connections, wrk with %d thread. Figures are "+
		"medians of the rounds, CPU times the mean of all. The load generator, the server and Redis shared this machine.\n\n",
		b.rounds, b.duration, number(float64(b.users), 0), b.connections, b.threads)
	if len(b.left) > 0 {
		fmt.Fprintf(w, "Left out, because the binary lacks the flag: %s.\n\n", strings.Join(b.left, "; "))
	}
}

// processor is the model of the CPU, as Linux calls it.
func processor() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown CPU"
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, model, found := strings.Cut(lines.Text(), ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return "unknown CPU"
}

func (r *results) exactness(w *strings.Builder) {
	if len(r.exact) == 0 {
		return
	}
	fmt.Fprintf(w, "### Over-admitted\n\n%d users, each with a limit of %d requests in 2 s, fire bursts of up to %d requests at random "+
		"moments for %v. Over-admitted is by how many requests the limit was exceeded in any stretch of 2 s, counted from the "+
		"answers: in the worst stretch of all users, and the median of what was the worst of each user.\n\n",
		burstUsers, burstLimit(), burstLargest, burstTime)
	var rows [][]string
	for _, e := range r.exact {
		rows = append(rows, []string{e.name, number(float64(e.requests), 0), number(float64(e.admitted), 0), strconv.Itoa(e.worst), number(e.typical, 0), strconv.Itoa(e.failed)})
	}
	table(w, []string{"", "requests", "admitted", "worst", "usual worst", "errors"}, rows)
}

func (r *results) footprints(w *strings.Builder) {
	if len(r.contenderMemory) == 0 {
		return
	}
	w.WriteString("### Memory\n\nWhat Redis holds for one user with a minute and a day, after so many admitted requests, over HTTP.\n\n")
	var rows [][]string
	for _, f := range r.contenderMemory {
		entry := "-"
		if f.logs > 0 {
			entry = number(f.perEntry(), 0)
		}
		rows = append(rows, []string{f.name, strconv.Itoa(f.requests), number(f.perUser, 0), entry, f.encoding})
	}
	table(w, []string{"", "requests", "bytes a user", "bytes an entry", "encoding"}, rows)
	w.WriteString("One log by its length, in bytes an entry, the key included: with the members of `pkg/limiter`, and with members of 36 characters. " +
		"`used_memory` is what Redis allocates, its tables of keys and expiries included; `MEMORY USAGE` is Redis's own estimate for the key, " +
		"which leaves out those and some of the allocator's rounding.\n\n")
	rows = nil
	for i, f := range r.ours {
		u := r.uuids[i]
		entries := float64(f.requests)
		rows = append(rows, []string{
			number(entries, 0), f.encoding, number(f.perEntry(), 1), number(u.perEntry(), 1), number(f.perEntry()/u.perEntry(), 2),
			number(float64(f.usage)/entries, 1), number(float64(u.usage)/entries, 1), number(float64(f.usage), 0),
		})
	}
	table(w, []string{"entries", "encoding", "`used_memory`", "36 characters", "ratio", "`MEMORY USAGE`", "36 characters", "`MEMORY USAGE` of the log"}, rows)
}

func (r *results) rest(w *strings.Builder) {
	if len(r.stalls) > 0 {
		fmt.Fprintf(w, "### How long one call holds Redis\n\nEach measured %d times: the median and the worst, in microseconds.\n\n", stallRuns)
		var rows [][]string
		for _, s := range r.stalls {
			rows = append(rows, []string{s.what, number(s.typical, 0), number(s.worst, 0), s.about})
		}
		table(w, []string{"", "us", "worst us", "measured by"}, rows)
	}
	r.instructionTable(w)
	if f := r.frozen; f != nil {
		var statuses []string
		for _, status := range slices.Sorted(maps.Keys(f.statuses)) {
			statuses = append(statuses, fmt.Sprintf("%d times %d", f.statuses[status], status))
		}
		fmt.Fprintf(w, "### A frozen Redis\n\nRedis is stopped (SIGSTOP) under `tierlimit --redis-timeout %v`, and %d callers ask at once, several "+
			"times. Of %d answers (%s) the slowest took %.1f ms, the median %.1f ms.\n\n", f.budget, f.callers, f.asked, strings.Join(statuses, ", "), f.slowest, f.median)
	}
	if len(r.alone) == 2 {
		fmt.Fprintf(w, "### One caller alone\n\nWithout HTTP, in turns: p50 of %s %.0f us, of %s %.0f us; a ratio of %.2f.\n\n",
			r.alone[0].name, r.alone[0].p50, r.alone[1].name, r.alone[1].p50, r.alone[0].p50/r.alone[1].p50)
	}
}

func (r *results) instructionTable(w *strings.Builder) {
	if len(r.instructions) == 0 {
		return
	}
	fmt.Fprintf(w, "### What a check costs in Redis, without the network\n\n%s checks that are pipelined over one connection, each kind %d times in "+
		"turns: instructions in user space, counted with perf, and CPU time; in all, and less a PING for each command. The script is that of "+
		"`pkg/limiter` for a minute and a day; the naive design runs one for each.\n\n", number(countedChecks, 0), countedRounds)
	if r.noPerf != nil {
		fmt.Fprintf(w, "Instructions were not measured: %v.\n\n", r.noPerf)
	}
	ping := r.instructions[0]
	var rows [][]string
	for _, c := range r.instructions {
		count, cpu := c.total-float64(c.commands)*ping.total, c.cpu-float64(c.commands)*ping.cpu
		countRatio, cpuRatio := math.NaN(), math.NaN()
		for _, other := range r.instructions {
			if other.what == c.naive {
				countRatio = count / (other.total - float64(other.commands)*ping.total)
				cpuRatio = cpu / (other.cpu - float64(other.commands)*ping.cpu)
			}
		}
		rows = append(rows, []string{
			c.what, number(c.total, 0), number(count, 0), number(countRatio, 3), number(c.cpu, 1), number(cpu, 1), number(cpuRatio, 2),
		})
	}
	table(w, []string{"", "instructions", "less PINGs", "of naive's", "CPU us", "less PINGs", "of naive's"}, rows)
}
