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

func TestExpiryIsOneSecondLongerThanTheWindow(t *testing.T) {
	server := redistest.Start(t)
	s := newSlidingWindow(t, server.URL(), nil)
	cases := map[string]struct {
		reason string
		before int
		window time.Duration
	}{
		"Created":       {"The first admission sets the expiry.", 0, time.Minute},
		"Existing":      {"Every later admission moves it.", 3, time.Minute},
		"Day":           {"The expiry follows the window.", 1, day},
		"LongestWindow": {"The longest window expires too.", 1, MaxWindow},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server.Client.FlushAll(context.Background())
			limit := Limit{10, tc.window}
			admit(t, s, tc.before, limit)
			before := redisTime(t, server)
			admit(t, s, 1, limit)
			after := redisTime(t, server)

			life := (tc.window + time.Second).Milliseconds()
			got := expiry(t, server, key(tc.window))
			if got < before+life || got > after+life {
				t.Errorf("%s The key vanishes at %d, want %d to %d", tc.reason, got, before+life, after+life)
			}
		})
	}
}

func TestEveryWindowExpiresByItself(t *testing.T) {
	server := redistest.Start(t)
	s := newSlidingWindow(t, server.URL(), nil)
	before := redisTime(t, server)
	admit(t, s, 1, Limit{10, time.Minute}, Limit{10, day})
	after := redisTime(t, server)
	for _, window := range []time.Duration{time.Minute, day} {
		life := (window + time.Second).Milliseconds()
		if got := expiry(t, server, key(window)); got < before+life || got > after+life {
			t.Errorf("%s vanishes at %d, want %d to %d", key(window), got, before+life, after+life)
		}
	}
}

func TestRejectionsDoNotProlongTheKey(t *testing.T) {
	server := redistest.Start(t)
	s := newSlidingWindow(t, server.URL(), nil)
	limit := Limit{3, time.Minute}
	admit(t, s, 3, limit)
	before := snap(t, server, key(time.Minute))
	for range 20 {
		if d := check(t, s, limit); d.Allowed {
			t.Fatalf("the log is full: %+v", d)
		}
		time.Sleep(2 * time.Millisecond) // an expiry that moved would differ
	}
	if got := snap(t, server, key(time.Minute)); got != before {
		t.Errorf("got %+v, before %+v", got, before)
	}
}

func TestIdleKeysVanish(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := newSlidingWindow(t, server.URL(), nil)
	limit := Limit{1, time.Second}
	var vanishes int64
	for range 20 { // a runaway script: one admission, then rejections
		if check(t, s, limit).Allowed {
			vanishes = redisTime(t, server) + (limit.Window + time.Second).Milliseconds()
		}
		time.Sleep(20 * time.Millisecond)
	}
	for redisTime(t, server) <= vanishes { // in the very millisecond Redis does not count it as expired
		time.Sleep(10 * time.Millisecond)
	}
	// A read finds nothing at once; Redis frees the memory a moment later.
	if diff := cmp.Diff([]string{}, keys(t, server)); diff != "" {
		t.Errorf("keys: -want +got:\n%s", diff)
	}
	eventually(t, "Redis has freed the key", func() bool {
		return must(server.Client.DBSize(context.Background()).Result())(t) == 0
	})
}

func TestKeyLivesAsLongAsItsNewestEntryCounts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := newSlidingWindow(t, server.URL(), nil)
	limits := []Limit{{1, time.Second}, {10, day}}
	admit(t, s, 1, limits...)
	eventually(t, "another request is admitted", func() bool { return check(t, s, limits...).Allowed })
	times := entries(t, server, key(day))
	if apart := times[1] - times[0]; apart < time.Second {
		t.Errorf("two requests admitted within %v, which is less than the window", apart)
	}
}
