// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
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
}

// work does what the lines on in say, and answers each with the number of admitted requests.
func work(url string, in io.Reader, out io.Writer) error {
	client, err := NewClient(url)
	if err != nil {
		return err
	}
	defer client.Close()
	s, err := NewSlidingWindow(client, Options{Timeout: patience})
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
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
	t   *testing.T
	in  []io.Writer
	out []*bufio.Reader
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
		w.in, w.out = append(w.in, in), append(w.out, bufio.NewReader(out))
	}
	return w
}

// together gives all workers the same order and returns how many requests were admitted.
func (w *workers) together(o order) int64 {
	w.t.Helper()
	line := append(must(json.Marshal(o))(w.t), '\n')
	for _, in := range w.in {
		must(in.Write(line))(w.t)
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
			w := startWorkers(t, 3, start(t))
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
		})
	}
}
