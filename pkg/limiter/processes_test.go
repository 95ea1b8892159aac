// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// envWorker tells a process of this test binary to be a worker, and of which Redis.
const envWorker = "TIERLIMIT_TEST_WORKER"

// order is what a worker is told to do: so many checks at once.
type order struct {
	User   string
	Limits []Limit
	Shared []Limit // of everybody; empty is none
	Calls  int
	// Timeout is that of the limiter; 0 is patience.
	Timeout time.Duration
}

// work does what the lines on in say, and answers each with the number of admitted requests.
func work(url string, in io.Reader, out io.Writer) error {
	client, err := NewClient(url)
	if err != nil {
		return err
	}
	defer client.Close()
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		s, err := NewSlidingWindow(client, Options{Timeout: cmp.Or(o.Timeout, patience)})
		if err != nil {
			return err
		}
		budgets := []Budget{{Subject{User: o.User}, o.Limits}}
		if len(o.Shared) > 0 {
			budgets = append(budgets, Budget{everybody, o.Shared})
		}
		var admitted, failed atomic.Int64
		var wait sync.WaitGroup
		for range o.Calls {
			wait.Go(func() {
				switch d, err := s.CheckBudgets(context.Background(), budgets...); {
				case err != nil:
					failed.Add(1)
				case d.Allowed:
					admitted.Add(1)
				}
			})
		}
		wait.Wait()
		fmt.Fprintln(out, admitted.Load(), failed.Load())
	}
	return lines.Err()
}

// workers are processes that check together.
type workers struct {
	t         *testing.T
	in        []io.Writer
	out       []*bufio.Reader
	processes []*os.Process
}

func startWorkers(t *testing.T, n int, url string) *workers {
	t.Helper()
	w := &workers{t: t}
	for range n {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), envWorker+"="+url)
		cmd.Stderr = os.Stderr
		in := must(cmd.StdinPipe())(t)
		out := must(cmd.StdoutPipe())(t)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = in.Close() // ends it
			_ = cmd.Wait()
		})
		w.processes = append(w.processes, cmd.Process)
		w.in, w.out = append(w.in, in), append(w.out, bufio.NewReader(out))
	}
	return w
}

// together gives all workers the same order and returns how many requests were admitted.
func (w *workers) together(o order) int64 {
	w.t.Helper()
	for i := range w.in {
		w.begin(i, o)
	}
	var sum int64
	for _, out := range w.out {
		var admitted, failed int64
		if _, err := fmt.Fscanln(out, &admitted, &failed); err != nil {
			w.t.Fatalf("a worker has ended: %v", err)
		}
		if failed > 0 {
			w.t.Errorf("%d checks of a worker failed", failed)
		}
		sum += admitted
	}
	return sum
}

// begin gives one worker an order.
func (w *workers) begin(i int, o order) {
	w.t.Helper()
	must(w.in[i].Write(append(must(json.Marshal(o))(w.t), '\n')))(w.t)
}

// Neither too many nor too few, over several processes, whatever Redis it is.
func TestExactOverProcesses(t *testing.T) {
	t.Parallel()
	const limit, calls = 40, 200
	for name, start := range map[string]func(testing.TB) string{
		"Single":   func(t testing.TB) string { return redistest.Start(t).URL() },
		"Sentinel": func(t testing.TB) string { return redistest.StartSentinel(t).URL() },
		"Cluster":  func(t testing.TB) string { return redistest.StartCluster(t, 0).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := start(t)
			w := startWorkers(t, 3, url)
			window := 5 * time.Second
			for round := range 2 {
				began := time.Now()
				got := w.together(order{User: "together", Limits: []Limit{{limit, window}, {3 * limit, day}}, Calls: calls})
				took := time.Since(began)
				if got < limit || got > limit && took < window { // slower, and the first may have left
					t.Errorf("round %d: %d admitted of %d at once, want %d", round+1, got, 3*calls, limit)
				}
				time.Sleep(window)
			}
			if got := w.together(order{User: "day", Limits: []Limit{{limit, day}}, Calls: calls}); got != limit {
				t.Errorf("%d admitted in the day, want %d", got, limit)
			}
			if got := w.together(order{User: "shared", Limits: []Limit{{3 * limit, day}}, Shared: []Limit{{limit, day}}, Calls: calls}); got != limit {
				t.Errorf("%d admitted by the shared budget, want %d", got, limit)
			}
			s, short := within(t, url, 1, patience)[0], Limit{2, 2 * time.Second}
			for range 3 {
				admit(t, s, 2, short)
				time.Sleep(check(t, s, short).RetryAfter)
				admit(t, s, 1, short) // alone, whoever waits as told is admitted
				time.Sleep(short.Window)
			}
		})
	}
}

// A process that is killed while it decides on budgets in different slots exceeds none, and what it had
// reserved is given back.
func TestProcessKilledBetweenTheSteps(t *testing.T) {
	t.Parallel()
	const capacity = 2000
	cluster := redistest.StartCluster(t, 0)
	w := startWorkers(t, 3, cluster.URL())
	shared := []Limit{{capacity, time.Hour}}
	o := order{Limits: []Limit{{10 * capacity, time.Hour}}, Shared: shared, Calls: capacity, Timeout: 2 * time.Second}
	log := everybody.ClusterKey(time.Hour)
	entries := func() []string { return must(cluster.Client.ZRange(context.Background(), log, 0, -1).Result())(t) }
	for i := range w.in {
		o.User = fmt.Sprint("worker", i)
		w.begin(i, o)
	}
	own := Subject{User: "worker0"}.ClusterKey(time.Hour)
	eventually(t, "requests of the worker are charged", func() bool {
		return must(cluster.Client.ZCard(context.Background(), own).Result())(t) > 20
	})
	if err := w.processes[0].Kill(); err != nil {
		t.Fatal(err)
	}
	var admitted int64
	for _, out := range w.out[1:] {
		var n, failed int64 // some may fail: they wait for what the killed one has reserved
		if _, err := fmt.Fscanln(out, &n, &failed); err != nil {
			t.Fatal(err)
		}
		admitted += n
	}
	if n := len(entries()); n > capacity {
		t.Errorf("%d entries in the shared log, want at most %d", n, capacity)
	}
	time.Sleep(6 * time.Second) // the lease
	s := within(t, cluster.URL(), 1, patience)[0]
	for { // the rest
		d, err := s.CheckBudgets(context.Background(), Budget{Subject{User: "rest"}, o.Limits}, Budget{everybody, shared})
		if err != nil {
			t.Fatal(err)
		}
		if !d.Allowed {
			break
		}
		admitted++
	}
	all := entries()
	for _, member := range all {
		if strings.HasPrefix(member, "?") && len(member)%3 == 0 {
			t.Errorf("a reservation is still there: %q", member)
		}
	}
	// What is in the log beyond the admissions of the others is that of the killed process.
	killed := must(cluster.Client.ZCard(context.Background(), own).Result())(t)
	if len(all) != capacity || admitted > capacity {
		t.Errorf("%d entries in the shared log and %d admissions seen, want %d entries and no more admissions", len(all), admitted, capacity)
	}
	t.Logf("%d admitted, %d entries of the killed process, of %d", admitted, killed, capacity)
}
