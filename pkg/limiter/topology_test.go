// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// traffic is checks of many users without a pause, until it is ended.
type traffic struct {
	t        *testing.T
	limiters []*SlidingWindow
	limits   []Limit
	users    []string
	admitted []atomic.Int64 // answers, by user
	failed   []atomic.Int64 // errors, by user
	slowest  []atomic.Int64 // check, by user, in nanoseconds
	stop     context.CancelFunc
	wait     sync.WaitGroup
}

// drive begins the traffic.
func drive(t *testing.T, limiters []*SlidingWindow, users []string, limits ...Limit) *traffic {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	f := &traffic{t: t, limiters: limiters, limits: limits, users: users, stop: stop,
		admitted: make([]atomic.Int64, len(users)), failed: make([]atomic.Int64, len(users)), slowest: make([]atomic.Int64, len(users))}
	t.Cleanup(f.end)
	for i := range users {
		for _, s := range limiters {
			f.wait.Go(func() {
				for ctx.Err() == nil {
					f.ask(s, i)
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
	}
	return f
}

func (f *traffic) ask(s *SlidingWindow, i int) {
	began := time.Now()
	d, err := s.CheckAll(context.Background(), Subject{User: f.users[i]}, f.limits...)
	if took := time.Since(began).Nanoseconds(); took > f.slowest[i].Load() {
		f.slowest[i].Store(took)
	}
	switch {
	case err != nil:
		f.failed[i].Add(1)
	case d.Allowed:
		f.admitted[i].Add(1)
	}
}

func (f *traffic) end() {
	f.stop()
	f.wait.Wait()
}

// untilExhausted ends the traffic when everybody has been told that the budget is used up.
func (f *traffic) untilExhausted() {
	f.t.Helper()
	eventually(f.t, "all budgets are used up", func() bool {
		for i, user := range f.users {
			d, err := f.limiters[i%len(f.limiters)].LookAll(context.Background(), Subject{User: user}, f.limits...)
			if err != nil || d.Allowed {
				return false
			}
		}
		return true
	})
	f.end()
}

// exact expects that each user was admitted as often as the limit says, and that the log says so.
func (f *traffic) exact(client redis.UniversalClient, key func(Subject, time.Duration) string) {
	f.t.Helper()
	limit := f.limits[0]
	for i, user := range f.users {
		entries := must(client.ZCard(context.Background(), key(Subject{User: user}, limit.Window)).Result())(f.t)
		if got := f.admitted[i].Load(); got != limit.Requests || entries != limit.Requests {
			f.t.Errorf("%s: %d admitted, %d entries, %d errors; want %d admitted and as many entries", user, got, entries, f.failed[i].Load(), limit.Requests)
		}
	}
}

// within returns limiters with the usual timeout.
func within(t testing.TB, url string, n int, timeout time.Duration) []*SlidingWindow {
	t.Helper()
	limiters := make([]*SlidingWindow, n)
	for i := range limiters {
		client := must(NewClient(url))(t)
		t.Cleanup(func() { _ = client.Close() })
		limiters[i] = must(NewSlidingWindow(client, Options{Timeout: timeout}))(t)
	}
	return limiters
}

func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint("user", i)
	}
	return all
}

// What was charged and replicated is not forgotten by a failover, and no restart is needed.
func TestSentinelFailoverIsExactForWhatWasReplicated(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	limit := Limit{30, time.Hour}
	limiters := within(t, sentinel.URL(), 2, DefaultTimeout)
	users := names(5)
	for _, user := range users {
		for i := range 10 {
			if d, err := limiters[i%2].CheckAll(context.Background(), Subject{User: user}, limit); err != nil || !d.Allowed {
				t.Fatalf("preparing: %+v, %v", d, err)
			}
		}
	}
	sentinel.WaitReplicated()
	sentinel.KillPrimary()
	sentinel.WaitFailover()
	f := drive(t, limiters, users, limit)
	for i := range f.admitted {
		f.admitted[i].Add(10)
	}
	f.untilExhausted()
	// A check that failed may have been charged.
	for i, user := range users {
		entries := must(sentinel.PrimaryClient().ZCard(context.Background(), Subject{User: user}.Key(time.Hour)).Result())(t)
		got, failed := f.admitted[i].Load(), f.failed[i].Load()
		if entries != limit.Requests || got > limit.Requests || got+failed < limit.Requests {
			t.Errorf("%s: %d admitted, %d errors, %d entries; want %d entries, and as many admitted but for the errors", user, got, failed, entries, limit.Requests)
		}
	}
}

func TestSentinelFailoverDuringLoad(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*redistest.Sentinel){
		"Killed": (*redistest.Sentinel).KillPrimary,
		"Frozen": (*redistest.Sentinel).FreezePrimary,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sentinel := redistest.StartSentinel(t)
			limit := Limit{2000, time.Hour}
			users := names(5)
			limiters := within(t, sentinel.URL(), 2, DefaultTimeout)
			f := drive(t, limiters, users, limit)
			time.Sleep(500 * time.Millisecond)
			away(sentinel)
			sentinel.WaitFailover()
			switched := time.Now()
			for _, s := range limiters {
				eventually(t, "checks are answered again", func() bool {
					_, err := s.LookAll(context.Background(), Subject{User: user}, limit)
					return err == nil
				})
			}
			t.Logf("%v after Sentinel's failover all limiters have answers again", time.Since(switched))
			if name == "Frozen" {
				sentinel.ThawPrimary()
				sentinel.WaitFailover()
			}
			f.untilExhausted()
			for i, user := range users {
				entries := must(sentinel.PrimaryClient().ZCard(context.Background(), Subject{User: user}.Key(time.Hour)).Result())(t)
				if entries != limit.Requests {
					t.Errorf("%s: %d entries, want %d", user, entries, limit.Requests)
				}
				// What the old primary had acknowledged and not replicated is lost, and no more.
				if over := f.admitted[i].Load() - limit.Requests; over > 0 {
					t.Logf("%s: %d admissions were lost by replication", user, over)
				}
			}
		})
	}
}
