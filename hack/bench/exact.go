// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tierlimit/tierlimit/hack/bench/contenders"
)

// admission is when an admitted request was sent and answered: it was admitted in between.
type admission struct {
	sent, answered time.Duration
}

// mostWithin is the largest number of admissions that certainly lie in one stretch of time shorter
// than the window. Times of sending and of answering are both looked at, so that a slow network
// cannot make an exact limiter look as if it admitted too many.
func mostWithin(window time.Duration, admissions []admission) int {
	bySent := slices.SortedFunc(slices.Values(admissions), func(a, b admission) int { return cmp.Compare(a.sent, b.sent) })
	most := 0
	for i, first := range bySent {
		within := 0
		for _, a := range bySent[i:] {
			if a.sent >= first.sent+window {
				break
			}
			if a.answered < first.sent+window {
				within++
			}
		}
		most = max(most, within)
	}
	return most
}

// exactness is what came of the bursts.
type exactness struct {
	name               string
	requests, admitted int
	failed             int
	worst              int     // over-admitted in any window of any user
	typical            float64 // the median of what each user's worst window was
}

const (
	burstUsers   = 20
	burstTime    = 12 * time.Second
	burstPause   = 250 * time.Millisecond // at most, between two bursts of a user
	burstLargest = 15
)

// exact fires bursts at those contenders that can have a short window, at all at once: they have
// little to do. Example of a result: 9 over-admitted of 10.
func (b *bench) exact(ctx context.Context) ([]exactness, error) {
	names := []string{"pkg/limiter", "naive", "redis_rate", "ulule"}
	results := make([]exactness, len(names))
	group, groupCtx := errgroup.WithContext(ctx)
	for i, name := range names {
		s, err := b.serve(ctx, find(name), b.redis)
		if err != nil {
			return nil, err
		}
		defer s.stop()
		group.Go(func() (err error) {
			results[i], err = bursts(groupCtx, s)
			return err
		})
	}
	return results, group.Wait()
}

func bursts(ctx context.Context, s *server) (exactness, error) {
	limit := contenders.Tiers[contenders.Short][0]
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: burstUsers * burstLargest}, Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	result := exactness{name: s.contender.name}
	var mutex sync.Mutex
	var overs []float64
	group, ctx := errgroup.WithContext(ctx)
	for i := range burstUsers {
		group.Go(func() error {
			user := burster{client: client, url: "http://" + s.addr + askFor(contenders.Short, "burst-"+strconv.Itoa(i))}
			if err := user.run(ctx); err != nil {
				return fmt.Errorf("%s: %w", s.contender.name, err)
			}
			mutex.Lock()
			defer mutex.Unlock()
			over := max(0, mostWithin(limit.Window, user.admitted)-int(limit.Requests))
			overs = append(overs, float64(over))
			result.worst = max(result.worst, over)
			result.requests += user.requests
			result.admitted += len(user.admitted)
			result.failed += user.failed
			return nil
		})
	}
	err := group.Wait()
	result.typical = median(overs)
	return result, err
}

// burster is a user who asks in bursts at random moments.
type burster struct {
	client           *http.Client
	url              string
	mutex            sync.Mutex
	requests, failed int
	admitted         []admission
}

func (u *burster) run(ctx context.Context) error {
	start := time.Now()
	for time.Since(start) < burstTime {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rand.N(burstPause)):
		}
		var burst errgroup.Group
		for range 1 + rand.IntN(burstLargest) {
			burst.Go(func() error { return u.ask(ctx, start) })
		}
		if err := burst.Wait(); err != nil {
			return err
		}
	}
	return nil
}

func (u *burster) ask(ctx context.Context, start time.Time) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.url, nil)
	if err != nil {
		return err
	}
	sent := time.Since(start)
	answer, err := u.client.Do(request)
	if err != nil {
		return err
	}
	answered := time.Since(start)
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	u.mutex.Lock()
	defer u.mutex.Unlock()
	u.requests++
	switch answer.StatusCode {
	case http.StatusOK:
		u.admitted = append(u.admitted, admission{sent, answered})
	case http.StatusTooManyRequests:
	default:
		u.failed++
	}
	return nil
}
