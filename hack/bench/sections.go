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
	fmt.Fprintf(w, "Rates: each cell %d times for %v, in turns; %s users, %d connections, wrk with %s. Figures are "+
		"medians of the rounds, CPU times the mean of all. The load generator, the server and Redis shared this machine.\n\n",
		b.rounds, b.duration, number(float64(b.users), 0), b.connections, threads(b.threads))
}

func threads(n int) string {
	if n == 1 {
		return "1 thread"
	}
	return strconv.Itoa(n) + " threads"
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
		r.longOverShort(w)
	}
	r.instructionTable(w)
	r.processTables(w)
	r.frozenRedis(w)
	if len(r.alone) == 2 {
		fmt.Fprintf(w, "### One caller alone\n\nWithout HTTP, in turns: p50 of %s %.0f us, of %s (go-redis's `Script.Run`) %.0f us; a ratio of %.2f.\n\n",
			r.alone[0].name, r.alone[0].p50, r.alone[1].name, r.alone[1].p50, r.alone[0].p50/r.alone[1].p50)
	}
}

// longOverShort is how much longer the usual check takes on the longest log than on the shortest.
func (r *results) longOverShort(w *strings.Builder) {
	var usual []stall
	for _, s := range r.stalls {
		if s.entries > 0 {
			usual = append(usual, s)
		}
	}
	if len(usual) == 2 {
		fmt.Fprintf(w, "The usual check on a log of %s entries takes %.2f times as long as on one of %d.\n\n",
			number(float64(usual[1].entries), 0), usual[1].typical/usual[0].typical, usual[0].entries)
	}
}

func (r *results) frozenRedis(w *strings.Builder) {
	f := r.frozen
	if f == nil {
		return
	}
	var statuses []string
	for _, status := range slices.Sorted(maps.Keys(f.statuses)) {
		statuses = append(statuses, fmt.Sprintf("%d times %d", f.statuses[status], status))
	}
	fmt.Fprintf(w, "### A frozen Redis\n\nRedis is stopped (SIGSTOP) under `tierlimit --redis-timeout %v`, and %d callers ask at once; then each asks "+
		"again every %v or so, for more than a second. Of %d runs together (%s), in milliseconds:\n\n", f.budget, f.callers, freezePause, freezeRuns, strings.Join(statuses, ", "))
	var rows [][]string
	for _, wave := range []struct {
		name  string
		waits []float64
	}{{"the first answer of each caller", f.first}, {"later, when the circuit breaker is open and one check in 0.5 s tries Redis", f.then}} {
		if len(wave.waits) > 0 {
			rows = append(rows, []string{
				wave.name, number(float64(len(wave.waits)), 0), number(slices.Max(wave.waits), 1), number(mean(wave.waits), 2), number(median(wave.waits), 2),
			})
		}
	}
	table(w, []string{"", "answers", "slowest", "mean", "median"}, rows)
}

func (r *results) processTables(w *strings.Builder) {
	if r.process == nil {
		return
	}
	w.WriteString("### What a check costs in the process\n\nOne admitted check by a minute and a day, without HTTP. The first is " +
		"`BenchmarkCheckAllWithoutRedis`, with a Redis that answers at once; the others call a real one, one caller alone.\n\n")
	var rows [][]string
	for _, a := range r.process.allocations {
		microseconds := "-"
		if a.microseconds > 0 {
			microseconds = number(a.microseconds, 2)
		}
		rows = append(rows, []string{a.what, number(a.objects, 1), number(a.bytes, 0), microseconds})
	}
	table(w, []string{"", "allocations", "bytes", "us"}, rows)
	w.WriteString("Where the CPU time goes in the contender `pkg/limiter` under load, on the admitted path, from a CPU profile. The function that " +
		"was running counts; what belongs to no package of these, such as copying bytes, counts for the one that called it.\n\n")
	rows = nil
	for _, s := range r.process.shares {
		rows = append(rows, []string{s.of, number(100*s.part, 1) + " %"})
	}
	table(w, []string{"", "of the CPU time"}, rows)
}

func (r *results) instructionTable(w *strings.Builder) {
	if r.costs == nil {
		return
	}
	fmt.Fprintf(w, "### What a check costs in Redis, without the network\n\nChecks that are pipelined over one connection: CPU time of %s, each kind %d "+
		"times in turns, and instructions in user space; in all, and less a PING for each command. The script is that of `pkg/limiter` for a "+
		"minute and a day, which counts stale entries only where it must; the naive design runs one for each.", number(float64(timed.checks), 0), countedRounds)
	switch r.costs.counter {
	case "perf":
		w.WriteString(" Instructions were counted with perf, in the same runs.\n\n")
	case "valgrind":
		fmt.Fprintf(w, " Instructions were counted with valgrind, which interprets Redis: those of a life with %s checks, less those of a life "+
			"without.\n\n", number(float64(slowly.checks), 0))
	default:
		fmt.Fprintf(w, " Instructions were not measured: %v, and there is no valgrind.\n\n", r.costs.uncounted)
	}
	kinds := r.costs.kinds
	ping := kinds[0]
	var rows [][]string
	for _, c := range kinds {
		count, cpu := c.total-float64(c.commands)*ping.total, c.cpu-float64(c.commands)*ping.cpu
		countRatio, cpuRatio := math.NaN(), math.NaN()
		for _, other := range kinds {
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
