// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"fmt"
	"strings"
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

func TestClusterSlotMovesDuringLoad(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 0)
	limits := []Limit{{400, time.Hour}, {4000, day}}
	users := names(6)
	f := drive(t, within(t, cluster.URL(), 2, patience), users, limits...)
	for _, user := range users[:3] {
		time.Sleep(200 * time.Millisecond)
		cluster.MoveSlot(cluster.Slot(Subject{User: user}.ClusterKey(time.Hour)), func() { time.Sleep(300 * time.Millisecond) })
	}
	f.untilExhausted()
	f.exact(cluster.Client, Subject.ClusterKey)
	for i, user := range users {
		if n := f.failed[i].Load(); n > 0 {
			t.Errorf("%s: %d checks failed", user, n)
		}
	}
}

// A primary that is away concerns nobody whose log is elsewhere, and is replaced.
func TestClusterFailoverConcernsOneShard(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*redistest.Server){
		"Killed": (*redistest.Server).Stop,
		"Frozen": (*redistest.Server).Freeze,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, 1, "--cluster-require-full-coverage", "no")
			limit := Limit{3000, time.Hour}
			users := names(9)
			victim := cluster.NodeOf(Subject{User: users[0]}.ClusterKey(time.Hour))
			var elsewhere []int
			for i, user := range users {
				if cluster.NodeOf(Subject{User: user}.ClusterKey(time.Hour)) != victim {
					elsewhere = append(elsewhere, i)
				}
			}
			limiters := within(t, cluster.URL(), 2, DefaultTimeout)
			f := drive(t, limiters, users, limit)
			time.Sleep(300 * time.Millisecond)
			cluster.WaitReplicated()
			away(victim)
			cluster.WaitOK()
			switched := time.Now()
			for _, s := range limiters {
				eventually(t, "checks of the shard are answered again", func() bool {
					_, err := s.LookAll(context.Background(), Subject{User: users[0]}, limit)
					return err == nil
				})
			}
			t.Logf("%v after the failover all limiters have answers again; %d checks of its first user failed", time.Since(switched), f.failed[0].Load())
			f.untilExhausted()
			for _, i := range elsewhere {
				if n := f.failed[i].Load(); n > 0 {
					t.Errorf("%s is not of the shard that was away, and %d of its checks failed", users[i], n)
				}
			}
			for i, user := range users {
				entries := must(cluster.Client.ZCard(context.Background(), Subject{User: user}.ClusterKey(time.Hour)).Result())(t)
				if entries != limit.Requests {
					t.Errorf("%s: %d entries, want %d; admitted %d", user, entries, limit.Requests, f.admitted[i].Load())
				}
			}
		})
	}
}

func TestSharedBudgetInAClusterIsExact(t *testing.T) {
	t.Parallel()
	const users, each, limit, capacity = 30, 12, 8, 100
	cluster := redistest.StartCluster(t, 0)
	limiters := within(t, cluster.URL(), 3, patience)
	var admitted [users]atomic.Int64
	var all atomic.Int64
	var wait sync.WaitGroup
	for i := range users * each {
		wait.Go(func() {
			name := fmt.Sprint("user", i%users)
			d, err := limiters[i%len(limiters)].CheckBudgets(context.Background(),
				Budget{Subject{User: name}, []Limit{{limit, time.Hour}, {100, day}}}, Budget{everybody, []Limit{{capacity, time.Hour}}})
			if err != nil {
				t.Error(err)
			}
			if d.Allowed {
				all.Add(1)
				admitted[i%users].Add(1)
			}
		})
	}
	wait.Wait()
	if all.Load() != capacity {
		t.Errorf("%d requests were admitted, want %d", all.Load(), capacity)
	}
	for i := range admitted {
		for _, window := range []time.Duration{time.Hour, day} {
			log := Subject{User: fmt.Sprint("user", i)}.ClusterKey(window)
			if got := must(cluster.Client.ZCard(context.Background(), log).Result())(t); got != admitted[i].Load() || got > limit {
				t.Errorf("%s has %d entries, and was admitted %d times of at most %d", log, got, admitted[i].Load(), limit)
			}
		}
	}
}

// The rights that docs/redis.md names for a Cluster are enough, and without any of them it does not work.
func TestUserOfAClusterNeedsNoMoreThanDocumented(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 0)
	rights := []any{"+eval", "+evalsha", "+time", "+zcard", "+zrange", "+zscore", "+zcount", "+unlink",
		"+zremrangebyrank", "+zremrangebyscore", "+zadd", "+expire", "+cluster|slots", "+zrem"}
	tries := 0
	try := func(without any) error {
		tries++
		name := fmt.Sprint("account", tries)
		user := []any{"ACL", "SETUSER", name, "reset", "on", ">secret", "~*ratelimit:*"}
		for _, right := range rights {
			if right != without {
				user = append(user, right)
			}
		}
		for _, node := range cluster.Nodes {
			must(node.Client.Do(context.Background(), user...).Result())(t)
		}
		s := within(t, strings.Replace(cluster.URL(), "://", "://"+name+":secret@", 1), 1, patience)[0]
		for range 3 { // the second is rejected by the shared budget, and what it had reserved is released
			d, err := s.CheckBudgets(context.Background(), Budget{Subject{User: name}, []Limit{{5, time.Minute}, {50, day}}},
				Budget{Subject{User: name, Kind: KindUpstream}, []Limit{{1, time.Minute}}})
			if err != nil {
				return err
			}
			if left := must(cluster.Client.ZCard(context.Background(), Subject{User: name}.ClusterKey(day)).Result())(t); left != 1 {
				return fmt.Errorf("%d entries after %+v", left, d)
			}
		}
		return nil
	}
	if err := try(nil); err != nil {
		t.Errorf("with all rights: %v", err)
	}
	for _, right := range []any{"+cluster|slots", "+zrem"} {
		if err := try(right); err == nil {
			t.Errorf("%v is not needed", right)
		}
	}
}
