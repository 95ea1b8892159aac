// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestParseWrk(t *testing.T) {
	const done = "Running 1s test @ http://127.0.0.1:1\n  1 threads and 64 connections\nRequests/sec:   1804.04\n\n"
	cases := map[string]struct {
		output string
		want   loaded
		err    string
		reason string
	}{
		"a result": {
			output: done + `result {"requests":3000,"duration_us":1500000,"p50_us":2081,"p99_us":9000,"bad_status":7,"socket_errors":1}` + "\n",
			want:   loaded{Requests: 3000, DurationUS: 1_500_000, P50US: 2081, P99US: 9000, BadStatus: 7, SocketErrors: 1},
			reason: "what wrk prints for people stands before it",
		},
		"no result":  {output: done, err: "no result", reason: "the script failed"},
		"no answers": {output: done + "result {\"requests\":0,\"duration_us\":1000}\n", err: "no answer", reason: "nothing can be divided by it"},
		"no number":  {output: done + "result {\"requests\":nan}\n", err: "nan", reason: "Lua prints what is not a number in its own way"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseWrk([]byte(tc.output))
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Fatalf("error %v, want %q: %s", err, tc.err, tc.reason)
			}
			if got != tc.want {
				t.Errorf("got %+v, want %+v: %s", got, tc.want, tc.reason)
			}
		})
	}
	if got := (loaded{Requests: 3000, DurationUS: 1_500_000}).rate(); got != 2000 {
		t.Errorf("3000 requests in 1.5 s are %v a second", got)
	}
}

func TestParseStat(t *testing.T) {
	const stat = "42 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 150 25 17 18 20 0 9"
	if got, err := parseStat(stat); err != nil || got != 1750*time.Millisecond {
		t.Errorf("got %v, %v; want 1.75s: utime and stime are fields 14 and 15, and a name may hold spaces and parentheses", got, err)
	}
	if _, err := parseStat("42 (short) S 1"); err == nil {
		t.Error("a line that is too short was read")
	}
}

func TestParsePerf(t *testing.T) {
	if got, err := parsePerf("\n1234567,,instructions:u,300000000,100.00,,\n"); err != nil || got != 1_234_567 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, output := range []string{"<not supported>,,instructions:u,0,100.00,,", "12.5,msec,task-clock,1,100.00,,", ""} {
		if _, err := parsePerf(output); err == nil {
			t.Errorf("%q was read as a count", output)
		}
	}
}

func TestParseCollected(t *testing.T) {
	if got, err := parseCollected("==7== Events    : Ir\n==7== Collected : 23246961\n==7== \n"); err != nil || got != 23_246_961 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseCollected("Killed"); err == nil {
		t.Error("a run without a count was read")
	}
}

func TestParseBenchmark(t *testing.T) {
	got, err := parseBenchmark("goos: linux\nBenchmarkCheckAllWithoutRedis-2   \t  692190\t      1731.5 ns/op\t     912 B/op\t      17 allocs/op\nPASS\n")
	if err != nil || got.objects != 17 || got.bytes != 912 || got.microseconds != 1.7315 {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := parseBenchmark("testing: warning: no tests to run\nPASS\n"); err == nil {
		t.Error("a run without the benchmark was read")
	}
}

func TestPurpose(t *testing.T) {
	const (
		kernel  = "internal/runtime/syscall/linux.Syscall6"
		redis   = "github.com/redis/go-redis/v9.(*Client).Process"
		ours    = "github.com/tierlimit/tierlimit/pkg/limiter.(*SlidingWindow).ask"
		handler = "github.com/tierlimit/tierlimit/hack/bench/contenders.(*handler).check"
		server  = "net/http.(*conn).serve"
	)
	cases := map[string]struct {
		stack  []string // innermost first
		want   string
		reason string
	}{
		"write to Redis":  {[]string{kernel, "syscall.write", "net.(*conn).Write", redis, ours, handler, server}, "system calls for Redis", "the innermost owner has asked for it"},
		"write to client": {[]string{kernel, "syscall.write", "net.(*conn).Write", server}, "system calls for HTTP", "no Redis is in the stack"},
		"poll":            {[]string{kernel, "runtime.netpoll", "runtime.findRunnable"}, "Go's scheduler and poller", "nobody has asked for it"},
		"wake-up":         {[]string{"runtime.futex", "runtime.wakep", ours, server}, "Go's scheduler and poller", "it is the price of goroutines"},
		"allocation":      {[]string{"runtime.memclrNoHeapPointers", "runtime.mallocgcSmallScanNoHeader", "runtime.newobject", ours, server}, "allocation and garbage collection", "whoever allocates"},
		"copying":         {[]string{"runtime.memmove", "bufio.(*Writer).Write", redis, ours}, forRedis, "copying is part of what is copied for"},
		"formatting":      {[]string{"strconv.AppendInt", handler, server}, forHandler, "so are helpers"},
		"the limiter":     {[]string{ours, handler, server}, forLimiter, "it runs itself"},
		"nobody":          {[]string{"os/signal.loop"}, "other", "it is none of these"},
		"empty":           {nil, "other", "there is nothing to tell it by"},
	}
	for name, tc := range cases {
		if got := purpose(tc.stack); got != tc.want {
			t.Errorf("%s: got %q, want %q: %s", name, got, tc.want, tc.reason)
		}
	}
}

func TestParseCounts(t *testing.T) {
	const metrics = `# TYPE tierlimit_checks_total counter
tierlimit_checks_total{outcome="admitted",tier="free",window=""} 1.2e+06
tierlimit_checks_total{outcome="admitted",tier="pro",window=""} 5
tierlimit_checks_total{outcome="rejected",tier="free",window="minute"} 7
tierlimit_checks_total{outcome="failed_closed",tier="free",window=""} 3
tierlimit_checks_total_created{outcome="admitted"} 9
`
	if got, want := parseCounts(metrics), (counts{admitted: 1_200_005, rejected: 7, failed: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestErrors(t *testing.T) {
	cases := map[string]struct {
		sample sample
		want   int64
		reason string
	}{
		"none":              {sample{loaded: loaded{BadStatus: 500}, counts: counts{rejected: 510}, connections: 64}, 0, "429 is an answer, and the last were not waited for"},
		"hung up":           {sample{counts: counts{failed: 60}, connections: 64}, 0, "wrk hung up on them"},
		"seen by wrk":       {sample{loaded: loaded{BadStatus: 500}, counts: counts{rejected: 480}, connections: 64}, 20, "neither 2xx nor 429"},
		"2xx, but no check": {sample{counts: counts{failed: 1064}, connections: 64}, 1000, "failed open"},
		"no answer":         {sample{loaded: loaded{SocketErrors: 3}, connections: 64}, 3, "timeouts and resets"},
	}
	for name, tc := range cases {
		if got := tc.sample.errors(); got != tc.want {
			t.Errorf("%s: got %d, want %d: %s", name, got, tc.want, tc.reason)
		}
	}
}

func TestMedian(t *testing.T) {
	cases := map[string]struct {
		values []float64
		want   float64
	}{
		"odd":      {[]float64{30, 1, 2}, 2},
		"even":     {[]float64{4, 1, 2, 30}, 3},
		"one":      {[]float64{7}, 7},
		"negative": {[]float64{-5, -1, -3}, -3},
	}
	for name, tc := range cases {
		if got := median(tc.values); got != tc.want {
			t.Errorf("%s: median(%v) = %v, want %v", name, tc.values, got, tc.want)
		}
	}
	if got := middling([]float64{0, 10, 20, 30, 40, 50, 60, 1000}); got != 35 {
		t.Errorf("the mean of the middle half is %v, want 35: neither end counts", got)
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %v", got)
	}
	unsorted := []float64{3, 1, 2}
	if median(unsorted); unsorted[0] != 3 {
		t.Error("the rounds were put into another order")
	}
}
