// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tierlimit/tierlimit/hack/bench/contenders"
)

// frozen is what callers see while Redis has stopped without closing its connections.
type frozen struct {
	budget      time.Duration
	callers     int
	first, then []float64 // how long each waited the first time, and later; milliseconds
	statuses    map[int]int
}

const (
	freezeBudget  = 50 * time.Millisecond
	freezeCallers = 64
	freezeRuns    = 3
	freezePause   = 20 * time.Millisecond // of each caller, between two checks
	freezeAsks    = 60                    // of each caller while it is frozen: for more than a second
	// thawTime is longer than the time for which pkg/limiter does not ask a Redis that did not answer.
	thawTime = 800 * time.Millisecond
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
	for range freezeRuns {
		if _, _, err := askTogether(ctx, client, s, 20, map[int]int{}); err != nil { // connections are there, as in use
			return nil, err
		}
		if err := syscall.Kill(redis.pid(), syscall.SIGSTOP); err != nil {
			return nil, err
		}
		first, then, err := askTogether(ctx, client, s, freezeAsks, f.statuses)
		if thaw := syscall.Kill(redis.pid(), syscall.SIGCONT); err == nil {
			err = thaw
		}
		if err != nil {
			return nil, err
		}
		f.first, f.then = append(f.first, first...), append(f.then, then...)
		time.Sleep(thawTime)
	}
	b.say("frozen      the slowest took %.1f ms, then %.1f ms; the mean %.1f ms, then %.2f ms",
		slices.Max(f.first), slices.Max(f.then), mean(f.first), mean(f.then))
	return f, nil
}

// askTogether lets all callers ask at once, and then each a number of times more. It returns how
// long they waited the first time and later.
func askTogether(ctx context.Context, client *http.Client, s *server, times int, statuses map[int]int) (first, then []float64, err error) {
	var mutex sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for caller := range freezeCallers {
		url := "http://" + s.addr + askFor(contenders.Admitted, "frozen-"+strconv.Itoa(caller))
		group.Go(func() error {
			for i := range times + 1 {
				status, wait, err := askOnce(ctx, client, url)
				if err != nil {
					return fmt.Errorf("asking while Redis is frozen: %w", err)
				}
				mutex.Lock()
				if milliseconds := float64(wait.Microseconds()) / 1e3; i == 0 {
					first = append(first, milliseconds)
				} else {
					then = append(then, milliseconds)
				}
				statuses[status]++
				mutex.Unlock()
				time.Sleep(freezePause)
			}
			return nil
		})
	}
	err = group.Wait()
	return first, then, err
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
