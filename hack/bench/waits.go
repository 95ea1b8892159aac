// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tierlimit/tierlimit/hack/bench/contenders"
)

// frozen is what callers see while Redis has stopped without closing its connections.
type frozen struct {
	budget          time.Duration
	callers, asked  int
	median, slowest float64 // milliseconds
	statuses        map[int]int
}

const (
	freezeBudget  = 50 * time.Millisecond
	freezeCallers = 64
	freezeRuns    = 3
	freezeAsks    = 3 // of each caller, one after the other, while it is frozen
)

// freeze stops Redis under the binary several times and lets many callers ask at once.
func (b *bench) freeze(ctx context.Context) (*frozen, error) {
	redis, err := startRedis(ctx, b.dir)
	if err != nil {
		return nil, err
	}
	defer redis.stop()
	s, err := b.serve(ctx, find("tierlimit"), redis, "--redis-timeout", freezeBudget.String())
	if err != nil {
		return nil, err
	}
	defer s.stop()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: freezeCallers}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	f := &frozen{budget: freezeBudget, callers: freezeCallers, statuses: map[int]int{}}
	var waits []float64
	for range freezeRuns {
		if _, err := askTogether(ctx, client, s, 20, nil); err != nil { // connections are there, as in use
			return nil, err
		}
		if err := syscall.Kill(redis.pid(), syscall.SIGSTOP); err != nil {
			return nil, err
		}
		during, err := askTogether(ctx, client, s, freezeAsks, f.statuses)
		if thaw := syscall.Kill(redis.pid(), syscall.SIGCONT); err == nil {
			err = thaw
		}
		if err != nil {
			return nil, err
		}
		waits = append(waits, during...)
		time.Sleep(200 * time.Millisecond)
	}
	f.asked, f.median = len(waits), median(waits)
	for _, wait := range waits {
		f.slowest = max(f.slowest, wait)
	}
	b.say("frozen      the slowest of %d answers took %.1f ms", f.asked, f.slowest)
	return f, nil
}

// askTogether lets all callers ask a number of times and returns how long they waited, in ms.
func askTogether(ctx context.Context, client *http.Client, s *server, times int, statuses map[int]int) ([]float64, error) {
	var mutex sync.Mutex
	var waits []float64
	group, ctx := errgroup.WithContext(ctx)
	for caller := range freezeCallers {
		url := "http://" + s.addr + askFor(s.path, contenders.Admitted, "frozen-"+strconv.Itoa(caller), 0)
		group.Go(func() error {
			for range times {
				status, wait, err := askOnce(ctx, client, url)
				if err != nil {
					return fmt.Errorf("asking while Redis is frozen: %w", err)
				}
				mutex.Lock()
				waits = append(waits, float64(wait.Microseconds())/1e3)
				if statuses != nil {
					statuses[status]++
				}
				mutex.Unlock()
			}
			return nil
		})
	}
	return waits, group.Wait()
}

func askOnce(ctx context.Context, client *http.Client, url string) (status int, wait time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	answer, err := client.Do(request)
	if err != nil {
		return 0, 0, err
	}
	wait = time.Since(start)
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, wait, answer.Body.Close()
}

// lone is what a single caller waits, without HTTP.
type lone struct {
	name string
	p50  float64 // microseconds
}

// alone lets one caller use pkg/limiter and the plain client in turns, a block of checks each.
func (b *bench) alone(ctx context.Context) ([]lone, error) {
	if err := b.redis.empty(ctx); err != nil {
		return nil, err
	}
	const blocks, checks = 20, 250
	names := []string{"pkg/limiter", "script, a connection a call"}
	engines, waits := make([]contenders.Engine, len(names)), make([][]float64, len(names))
	for i, name := range names {
		var err error
		if engines[i], err = contenders.New(ctx, find(name).engine, b.config()); err != nil {
			return nil, err
		}
	}
	for block := range blocks {
		for i, engine := range engines {
			for check := range checks {
				start := time.Now()
				if _, err := engine.Check(ctx, userName(check), contenders.Tiers[contenders.Admitted]); err != nil {
					return nil, fmt.Errorf("%s: %w", names[i], err)
				}
				if block > 0 { // the first is to warm up
					waits[i] = append(waits[i], float64(time.Since(start).Nanoseconds())/1e3)
				}
			}
		}
	}
	results := make([]lone, len(names))
	for i, name := range names {
		results[i] = lone{name, median(waits[i])}
		b.say("alone       %s: %.0f us", name, results[i].p50)
	}
	return results, nil
}
