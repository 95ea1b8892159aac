// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// truth is what the users of a stream have really done, by the stretch of time.
type truth struct {
	used, rejected map[string]map[int64]int64
	requests       map[uint64]map[int64]int64 // by shard
}

func newTruth() *truth {
	return &truth{map[string]map[int64]int64{}, map[string]map[int64]int64{}, map[uint64]map[int64]int64{}}
}

func (u *Usage) shardOf(t *testing.T, user string) uint64 {
	t.Helper()
	name, ok := appendName(nil, limiter.Subject{User: user})
	if !ok {
		t.Fatalf("%q is too long", user)
	}
	return u.hasher.sum(name) * u.spread >> (64 - shardBits)
}

func bump[K comparable](m map[K]map[int64]int64, key K, epoch int64) {
	if m[key] == nil {
		m[key] = map[int64]int64{}
	}
	m[key][epoch]++
}

// lately is how much of it is in the last minute.
func lately(by map[int64]int64, now int64) (n int64) {
	for epoch, count := range by {
		if epoch > now-parts {
			n += count
		}
	}
	return n
}

// TestTopAgainstBruteForce compares with a count of every request: each number within its error, each error
// within its bound, and everybody above the guaranteed share found.
func TestTopAgainstBruteForce(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(random, 1.1, 1, 50_000)
	for name, tc := range map[string]struct {
		reason string
		user   func(i int) string
		exact  bool
	}{
		"Few":      {"below the capacity it is exact", func(i int) string { return fmt.Sprint(i % 400) }, true},
		"Zipf":     {"as real users are", func(int) string { return fmt.Sprint(zipf.Uint64()) }, false},
		"Everyone": {"every request is another user", func(i int) string { return fmt.Sprint(i) }, false},
		"Rounds":   {"whoever has just been forgotten comes again", func(i int) string { return fmt.Sprint(i % 3000) }, false},
		"Hidden": {"some behind a flood of others", func(i int) string {
			if i%50 == 0 {
				return fmt.Sprint("heavy-", i/50%4)
			}
			return fmt.Sprint(i)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			u, c, _ := newUsage(t, "free")
			want := newTruth()
			for i := range 100_000 {
				c.advance(time.Millisecond)
				user, outcome := tc.user(i), "admitted"
				epoch := u.epoch()
				if random.IntN(3) == 0 {
					outcome = "rejected"
					bump(want.rejected, user, epoch)
				} else {
					bump(want.used, user, epoch)
				}
				bump(want.requests, u.shardOf(t, user), epoch)
				c.check(u, user, "free", outcome)
			}
			for by, counts := range map[string]map[string]map[int64]int64{ByUsed: want.used, ByRejected: want.rejected} {
				compare(t, u, want, by, counts, tc.exact, tc.reason)
			}
		})
	}
}

func compare(t *testing.T, u *Usage, want *truth, by string, counts map[string]map[int64]int64, exact bool, reason string) {
	t.Helper()
	now := u.epoch()
	found := map[string]bool{}
	largest := int64(0)
	for _, got := range u.Top(by, "", 1_000_000).Users {
		found[got.User] = true
		bound := lately(want.requests[u.shardOf(t, got.User)], now) / partUsers
		used, rejected := lately(want.used[got.User], now), lately(want.rejected[got.User], now)
		if used > got.Used || used < got.Used-got.UsedError || rejected > got.Rejected || rejected < got.Rejected-got.RejectedError {
			t.Errorf("%s: %d and %d requests are reported as %+v", reason, used, rejected, got)
		}
		if got.UsedError > bound || got.RejectedError > bound || exact && got.UsedError+got.RejectedError > 0 {
			t.Errorf("%s: the error of %+v is above %d", reason, got, bound)
		}
		largest = max(largest, got.UsedError)
	}
	missing, guaranteed := 0, 0
	for user, by := range counts {
		n, share := lately(by, now), lately(want.requests[u.shardOf(t, user)], now)/partUsers
		if exact {
			share = 0
		}
		if n > share {
			guaranteed++
			if !found[user] {
				missing++
			}
		}
	}
	if missing > 0 {
		t.Errorf("%s: by %s %d of %d users above the guaranteed share are not found", reason, by, missing, guaranteed)
	}
	t.Logf("by %s: %d users, %d guaranteed, largest error %d", by, len(found), guaranteed, largest)
}

// TestTopSlides lets a minute pass.
func TestTopSlides(t *testing.T) {
	u, c, _ := newUsage(t, "free")
	c.check(u, "alice", "free", "admitted")
	c.advance(54 * time.Second)
	c.check(u, "alice", "free", "admitted")
	if got := u.Top(ByUsed, "", 10).Users; len(got) != 1 || got[0].Used != 2 {
		t.Errorf("within a minute: %+v, want both requests", got)
	}
	c.advance(6 * time.Second) // the first is a minute old
	if got := u.Top(ByUsed, "", 10).Users; len(got) != 1 || got[0].Used != 1 {
		t.Errorf("after a minute: %+v, want the second request alone", got)
	}
	c.advance(time.Hour)
	if got := u.Top(ByUsed, "", 10).Users; len(got) != 0 {
		t.Errorf("after an hour: %+v", got)
	}
	c.check(u, "bob", "free", "admitted")
	if got := u.Top(ByUsed, "", 10).Users; len(got) != 1 || got[0].User != "bob" {
		t.Errorf("after an hour: %+v, want bob alone", got)
	}
}

// TestTop asks in all ways.
func TestTop(t *testing.T) {
	u, c, _ := newUsage(t, "free", "pro")
	record := func(n int, s limiter.Subject, tier, outcome string, upstream bool) {
		for range n {
			u.Record(webhookserver.Decided{At: c.now, Subject: s, Tier: tier, Outcome: outcome, Upstream: upstream})
		}
	}
	alice := limiter.Subject{User: "alice"}
	record(3, alice, "free", "admitted", false)
	record(1, alice, "pro", "disabled", false)
	record(2, limiter.Subject{User: "alice", Kind: "ip", Tenant: "acme", Route: "chat"}, "free", "dry_run_rejected", false)
	record(5, limiter.Subject{User: "bob"}, "free", "rejected", true)
	record(1, limiter.Subject{User: "carol"}, "free", "dry_run_rejected", true)
	record(9, limiter.Subject{User: "dave"}, "free", "failed_closed", false)
	record(9, limiter.Subject{User: strings.Repeat("x", 129)}, "free", "admitted", false)
	record(9, limiter.Subject{User: strings.Repeat("x", 128), Tenant: strings.Repeat("y", 128)}, "free", "admitted", false)
	record(1, limiter.Subject{User: strings.Repeat("z", 128)}, "free", "local_admitted", false)
	rows := func(top adminapi.Top) []string {
		var all []string
		for _, row := range top.Users {
			all = append(all, fmt.Sprintf("%.5s %s %s %s %s %d %d", row.User, row.Kind, row.Tenant, row.Route, row.Tier, row.Used, row.Rejected))
		}
		return all
	}
	for name, tc := range map[string]struct {
		reason, by, tier string
		limit            int
		want             []string
	}{
		"Used":      {"what has passed, by each tier", ByUsed, "", 10, []string{"alice    free 3 0", "alice    pro 1 0", "carol    free 1 0", "zzzzz    free 1 0"}},
		"Rejected":  {"what was, or would have been", ByRejected, "", 10, []string{"bob    free 0 5", "alice ip acme chat free 0 2"}},
		"Tier":      {"of one tier", ByUsed, "pro", 10, []string{"alice    pro 1 0"}},
		"OtherTier": {"from which nobody hides by asking for another", ByUsed, "free", 1, []string{"alice    free 3 0"}},
		"Limit":     {"no more than asked for", ByRejected, "", 1, []string{"bob    free 0 5"}},
		"None":      {"no such tier", ByUsed, "gold", 10, nil},
	} {
		if diff := cmp.Diff(tc.want, rows(u.Top(tc.by, tc.tier, tc.limit))); diff != "" {
			t.Errorf("%s: %s: -want +got\n%s", name, tc.reason, diff)
		}
	}
	seen := u.SeenAs("alice")
	want := []adminapi.Seen{{Subject: adminapi.Subject{User: "alice"}, Tier: "free"}, {Subject: adminapi.Subject{User: "alice"}, Tier: "pro"},
		{Subject: adminapi.Subject{User: "alice", Kind: "ip", Tenant: "acme", Route: "chat"}, Tier: "free"}}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("seen as: -want +got\n%s", diff)
	}
	if got := u.SeenAs("alic"); len(got) != 0 {
		t.Errorf("seen as another: %+v", got)
	}
}
