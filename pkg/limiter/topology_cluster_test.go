// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

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
			limiters := within(t, cluster.URL(), 2, 5*time.Second) // for a slow machine
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
	charged := must(cluster.Client.ZCard(context.Background(), everybody.ClusterKey(time.Hour)).Result())(t)
	if all.Load() != capacity || charged != capacity {
		t.Errorf("%d requests were admitted, the shared log has %d entries, want %d", all.Load(), charged, capacity)
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
		"+zremrangebyrank", "+zremrangebyscore", "+zadd", "+expire", "+hmget", "+hlen", "+hset", "+hexists", "+pexpire", "+cluster|slots", "+zrem", "+hdel"}
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

// Nobody knows where the slots are before one node has been reached.
func TestClusterThatWasNeverReachedOpensTheCircuit(t *testing.T) {
	t.Parallel()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t) // accepts, and says nothing
	defer listener.Close()
	s := within(t, "redis+cluster://"+listener.Addr().String(), 1, 50*time.Millisecond)[0]
	var err error
	for range 2 * tripAfter {
		_, err = s.Check(context.Background(), user, 5, time.Minute)
	}
	if !errors.Is(err, ErrCircuitOpen) || !s.CircuitOpen() {
		t.Errorf("got %v, want that the circuit is open", err)
	}
}

// A user has room, and the log of the shared budget cannot be asked: that is an error, for this
// request and for others of the user, and never a rejection.
func TestNobodyIsRejectedForReservations(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 0, "--cluster-require-full-coverage", "no")
	own := Budget{Subject{User: user}, []Limit{{5, time.Hour}}}
	shared := Budget{everybody, []Limit{{1000, time.Hour}}}
	shard := cluster.NodeOf(everybody.ClusterKey(time.Hour))
	for i := 0; cluster.NodeOf(own.Subject.ClusterKey(time.Hour)) == shard; i++ {
		own.Subject.User = fmt.Sprint("user", i)
	}
	s := within(t, cluster.URL(), 1, 3*time.Second)[0]
	s.denials = newDenials(MaxDenyMemory)
	must(s.CheckBudgets(context.Background(), Budget{Subject{User: "warm"}, own.Limits}, shared))(t)
	shard.Freeze()
	var wait sync.WaitGroup
	ask := func(budgets ...Budget) {
		wait.Go(func() {
			if d, err := s.CheckBudgets(context.Background(), budgets...); err == nil && !d.Allowed {
				t.Errorf("with %d budgets: rejected, %+v", len(budgets), d)
			}
		})
	}
	for round := range 3 { // the circuit is open in later ones
		for range 20 {
			ask(own, shared)
		}
		if round == 0 {
			time.Sleep(50 * time.Millisecond)
			ask(own)
		}
		wait.Wait()
	}
	eventually(t, "all reservations are released", func() bool {
		d, err := s.LookBudgets(context.Background(), own)
		return err == nil && d.Remaining >= 4
	})
	shard.Thaw()
}
