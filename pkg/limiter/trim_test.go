// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// maxTrim is the number of entries that one call removes at the most.
const maxTrim = 256

// fill adds n entries that the clock sees as so old, a microsecond apart, the newest as old as given.
func fill(t testing.TB, server *redistest.Server, c *clock, key string, n int, age time.Duration) {
	t.Helper()
	const source = `
		for i = 1, ARGV[1] do
			redis.call('ZADD', KEYS[1], ARGV[2] - ARGV[1] + i, ARGV[3] .. i)
		end
		redis.call('EXPIRE', KEYS[1], 3600)`
	newest := c.microseconds.Load() - age.Microseconds()
	if err := server.Client.Eval(context.Background(), source, []string{key}, n, newest, age.String()).Err(); err != nil && err.Error() != "redis: nil" {
		t.Fatal(err)
	}
}

func TestTrimmingIsBoundedAndTheCountExactMeanwhile(t *testing.T) {
	const stale, live, calls = 50_000, 50_000, 220
	server, s, c := start(t)
	fill(t, server, c, key(time.Minute), stale, 2*time.Minute)
	fill(t, server, c, key(time.Minute), live, 10*time.Second)
	limit := Limit{live + calls, time.Minute}

	left := int64(stale + live)
	for i := range int64(calls) {
		want := verdict{Allowed: true, Limit: limit, Remaining: calls - i - 1}
		if got := check(t, s, limit); got != want {
			t.Fatalf("call %d: got %+v, want %+v", i+1, got, want)
		}
		removed := left + 1 - card(t, server, key(time.Minute))
		if backlog := left - live - i; removed != min(maxTrim, backlog) {
			t.Fatalf("call %d removed %d entries, want %d of the %d that have left", i+1, removed, min(maxTrim, backlog), backlog)
		}
		left += 1 - removed
	}
	if left != live+calls {
		t.Errorf("%d entries in the end, want %d: nothing of the backlog", left, live+calls)
	}
	// The oldest live entry is the one to wait for.
	want := verdict{Limit: limit, RetryAfter: 50 * time.Second}
	if got := check(t, s, limit); got != want {
		t.Errorf("full log: got %+v, want %+v", got, want)
	}
}

func TestRejectionLooksPastTheBacklog(t *testing.T) {
	server, s, c := start(t)
	fill(t, server, c, key(time.Minute), 1000, 2*time.Minute)
	fill(t, server, c, key(time.Minute), 100, 20*time.Second)
	cases := map[string]struct {
		reason string
		limit  int64
		want   verdict
	}{
		"Full":    {"The oldest entry that counts is the one to wait for.", 100, verdict{RetryAfter: 40 * time.Second}},
		"Lowered": {"Entries that have left do not shift the one to wait for.", 1, verdict{RetryAfter: 40 * time.Second}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.want.Limit = Limit{tc.limit, time.Minute}
			if got := check(t, s, tc.want.Limit); got != tc.want {
				t.Errorf("%s got %+v, want %+v", tc.reason, got, tc.want)
			}
			if got := card(t, server, key(time.Minute)); got != 1100 {
				t.Errorf("a rejection left %d of 1100 entries", got)
			}
		})
	}
}

func TestStaleLogIsReplacedWhole(t *testing.T) {
	server, s, c := start(t)
	limit := Limit{100_000, time.Minute}
	fill(t, server, c, key(time.Minute), 100_000, time.Minute) // the newest has just left
	executed := commands(t, server, func() {
		want := verdict{Allowed: true, Limit: limit, Remaining: limit.Requests - 1}
		if got := check(t, s, limit); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
	want := map[string]int64{
		"evalsha": 1, "eval": 1, // the script was not loaded yet,
		"hexists": 1, // so that this may be a repeat
		"hlen":    1, // a full log: is there a grant?
		"zcard":   1, "zrange": 1, "zcount": 1, "unlink": 1, "zadd": 1, "expire": 1,
	}
	if diff := cmp.Diff(want, executed); diff != "" {
		t.Errorf("commands that Redis executed: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]time.Duration{0}, entries(t, server, key(time.Minute))); diff != "" {
		t.Errorf("entries: -want +got:\n%s", diff)
	}
	if got, most := expiry(t, server, key(time.Minute)), redisTime(t, server)+61_000; got > most {
		t.Errorf("the new key vanishes at %d, want %d at the latest", got, most)
	}
}

// What the package documentation says about memory. The key itself is part of the figure.
func TestMemoryPerEntry(t *testing.T) {
	server := redistest.Start(t)
	s := newSlidingWindow(t, server.URL(), nil)
	cases := map[string]struct {
		limit   int64
		entries int
		most    float64
	}{
		"AFewInTheMinute": {5, 5, 34},
		"SixtyAMinute":    {60, 60, 23},
		"ManyInTheDay":    {100_000, 15_000, 104},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server.Client.FlushAll(context.Background())
			pipe := server.Client.Pipeline() // CheckAll would take a while for so many
			for range tc.entries {
				budgets := []Budget{{Subject{User: user}, []Limit{{tc.limit, time.Minute}}}}
				pipe.Do(context.Background(), s.call(s.members.make(budgets), budgets).command(true)...)
			}
			if _, err := pipe.Exec(context.Background()); err != nil {
				t.Fatal(err)
			}
			bytes := must(server.Client.MemoryUsage(context.Background(), key(time.Minute), 0).Result())(t)
			got := float64(bytes) / float64(tc.entries)
			t.Logf("%d entries: %.1f bytes each", tc.entries, got)
			if got > tc.most {
				t.Errorf("%d entries take %.1f bytes each, want at most %v", tc.entries, got, tc.most)
			}
		})
	}
}
