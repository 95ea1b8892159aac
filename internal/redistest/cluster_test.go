// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestClusterSpreadsKeysOverItsPrimaries(t *testing.T) {
	c := StartCluster(t, 0)
	ctx := context.Background()
	keys := map[*Server]int{}
	for i := range 300 {
		key := strconv.Itoa(i)
		if err := c.Client.Set(ctx, key, i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		keys[c.NodeOf(key)]++
	}
	for _, node := range c.Nodes {
		if got := node.Client.DBSize(ctx).Val(); got != int64(keys[node]) || got < 50 {
			t.Errorf("%s has %d keys, want %d and about 100", node.Addr(), got, keys[node])
		}
	}
	if want := "redis+cluster://" + strings.Join(c.Addrs(), ","); c.URL() != want || len(c.Addrs()) != 3 {
		t.Errorf("URL %s, want %s with 3 addresses", c.URL(), want)
	}
}

func TestSlotMovesWithItsKeysUnderWriters(t *testing.T) {
	cases := map[string]struct {
		reason string
		args   []string
	}{
		"Open":     {reason: "No password."},
		"Password": {reason: "Nodes log in to each other.", args: []string{"--requirepass", "secret"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			c := StartCluster(t, 0, tc.args...)
			slot, source := c.Slot("{user}"), c.NodeOf("{user}")
			var keys []string
			for i := range 3 * moveBatch {
				keys = append(keys, fmt.Sprintf("{user}%d", i))
			}
			w := startWriter(t, c.Client, keys...)
			for w.acknowledged.Load() < int64(len(keys)) {
				w.goesOn(t)
			}
			var asked error
			target := c.MoveSlot(slot, func() {
				asked = source.Client.Get(ctx, "{user}new").Err()
				w.goesOn(t)
			})
			if asked == nil || !strings.HasPrefix(asked.Error(), fmt.Sprintf("ASK %d %s", slot, target.Addr())) {
				t.Errorf("%s A key that is not there: %v, want ASK %d %s", tc.reason, asked, slot, target.Addr())
			}
			c.WaitOK()
			w.goesOn(t)
			w.end()

			if target == source || c.NodeOf("{user}") != target {
				t.Errorf("%s Moved from %s to %s, owner %s", tc.reason, source.Addr(), target.Addr(), c.NodeOf("{user}").Addr())
			}
			if err := source.Client.Get(ctx, keys[0]).Err(); err == nil || !strings.HasPrefix(err.Error(), "MOVED") {
				t.Errorf("%s The old primary answers %v, want MOVED", tc.reason, err)
			}
			if n := w.failed.Load(); n > 0 {
				t.Errorf("%s %d writes failed, the last: %v", tc.reason, n, w.lastError.Load())
			}
			var sum int64
			for _, key := range keys {
				n, err := target.Client.Get(ctx, key).Int64()
				if err != nil {
					t.Fatalf("%s %s: %v", tc.reason, key, err)
				}
				sum += n
			}
			if want := w.acknowledged.Load(); sum != want {
				t.Errorf("%s The counters say %d, want %d", tc.reason, sum, want)
			}
		})
	}
}

func TestReplicaTakesOver(t *testing.T) {
	cases := map[string]struct {
		reason           string
		outage, recovery func(s *Server)
	}{
		"Killed": {"The primary crashes.", (*Server).Stop, (*Server).Restart},
		"Frozen": {"The primary hangs.", (*Server).Freeze, (*Server).Thaw},
	}
	c := StartCluster(t, 1)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			if err := c.Client.Set(ctx, "a", name, 0).Err(); err != nil {
				t.Fatal(err)
			}
			c.WaitReplicated()
			first := c.NodeOf("a")
			tc.outage(first)
			c.WaitOK()
			second := c.NodeOf("a")
			if second == first {
				t.Errorf("%s The primary is still %s", tc.reason, first.Addr())
			}
			wantValue(t, second.Client, "a", name)
			w := startWriter(t, c.Client, "{a}n")
			tc.recovery(first)
			c.WaitOK()
			w.goesOn(t)
			w.end()
			if got := c.NodeOf("a"); got != second {
				t.Errorf("%s The primary is %s, want still %s", tc.reason, got.Addr(), second.Addr())
			}
			c.WaitReplicated()
			n := second.Client.Get(ctx, "{a}n").Val()
			if got, err := replicaGet(first, "{a}n"); got != n || n == "" {
				t.Errorf("%s The old primary has %q (%v), want %q", tc.reason, got, err, n)
			}
		})
	}
}

// replicaGet reads what a replica of a cluster has itself.
func replicaGet(s *Server, key string) (string, error) {
	connection := s.Client.Conn()
	defer connection.Close()
	ctx := context.Background()
	readOnly := connection.ReadOnly(ctx).Err()
	value, err := connection.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return value, errors.Join(readOnly, err)
}
