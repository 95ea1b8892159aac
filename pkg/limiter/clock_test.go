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

func TestTimeIsThatOfRedis(t *testing.T) {
	server := redistest.Start(t)
	s := newSlidingWindow(t, server.URL(), nil)
	clocks := server.Client
	before := must(clocks.Time(context.Background()).Result())(t).UnixMicro()
	admit(t, s, 1, Limit{5, time.Minute})
	after := must(clocks.Time(context.Background()).Result())(t).UnixMicro()
	entry := must(clocks.ZRangeWithScores(context.Background(), key(time.Minute), 0, -1).Result())(t)
	if len(entry) != 1 || int64(entry[0].Score) < before || int64(entry[0].Score) > after {
		t.Errorf("entries %v, want one between %d and %d", entry, before, after)
	}
}

// The clock of a server can be stepped back, and a failover can lead to one that is behind.
func TestClockSteppedBackForgivesNothing(t *testing.T) {
	_, s, c := start(t)
	limit := Limit{3, time.Minute}
	admit(t, s, 2, limit)
	c.advance(-time.Hour)
	if got, want := check(t, s, limit), (verdict{Allowed: true, Limit: limit}); got != want {
		t.Errorf("the two entries still count: got %+v, want %+v", got, want)
	}
	// The entry made after the step leaves first.
	if got, want := check(t, s, limit), (verdict{Limit: limit, RetryAfter: time.Minute}); got != want {
		t.Errorf("full log: got %+v, want %+v", got, want)
	}
	c.advance(time.Minute)
	admit(t, s, 1, limit)
	if got := check(t, s, limit); got.Allowed {
		t.Errorf("one has left, one was admitted: got %+v", got)
	}
}

func TestLogFromTheFutureIsWaitedFor(t *testing.T) {
	_, s, c := start(t)
	limit := Limit{3, time.Minute}
	admit(t, s, 3, limit)
	c.advance(-time.Hour)
	want := verdict{Limit: limit, RetryAfter: time.Hour + time.Minute}
	if got := check(t, s, limit); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// While the clock stands still nothing leaves, and equal times are told apart by their members.
func TestClockStandingStill(t *testing.T) {
	server, s, _ := start(t)
	limit := Limit{300, time.Minute}
	admit(t, s, 300, limit)
	if got := check(t, s, limit); got.Allowed {
		t.Errorf("got %+v", got)
	}
	if got := card(t, server, key(time.Minute)); got != 300 {
		t.Errorf("%d entries, want 300", got)
	}
}

// What an operator reads in the documentation of the package: the numbered requests of one user.
func TestWalkThroughOfTheDocumentation(t *testing.T) {
	server, s, c := start(t)
	noon := c.microseconds.Load()
	at := func(after time.Duration) { c.microseconds.Store(noon + after.Microseconds()) }
	limits := []Limit{{3, time.Minute}, {100, day}}
	lowered := []Limit{{1, time.Minute}, {100, day}}
	const sec = time.Second
	steps := []struct {
		at     time.Duration
		limits []Limit
		repeat bool
		want   verdict
		minute []time.Duration
		day    int64
	}{
		{0, limits, false, verdict{true, limits[0], 2, 0}, []time.Duration{0}, 1},
		{10 * sec, limits, false, verdict{true, limits[0], 1, 0}, []time.Duration{0, 10 * sec}, 2},
		{20 * sec, limits, false, verdict{true, limits[0], 0, 0}, []time.Duration{0, 10 * sec, 20 * sec}, 3},
		{30*sec + sec/2, limits, false, verdict{false, limits[0], 0, 30 * sec}, []time.Duration{0, 10 * sec, 20 * sec}, 3},
		{60 * sec, limits, false, verdict{true, limits[0], 0, 0}, []time.Duration{10 * sec, 20 * sec, 60 * sec}, 4},
		{65 * sec, lowered, false, verdict{false, lowered[0], 0, 55 * sec}, []time.Duration{10 * sec, 20 * sec, 60 * sec}, 4},
		{120 * sec, lowered, false, verdict{true, lowered[0], 0, 0}, []time.Duration{120 * sec}, 5},
		{120*sec + sec/10, lowered, true, verdict{true, lowered[0], 0, 0}, []time.Duration{120 * sec}, 5},
	}
	for i, step := range steps {
		at(step.at)
		ask := check
		if step.repeat {
			ask = again
		}
		if diff := cmp.Diff(step.want, ask(t, s, step.limits...)); diff != "" {
			t.Errorf("request %d: -want +got:\n%s", i+1, diff)
		}
		if diff := cmp.Diff(step.minute, entries(t, server, key(time.Minute))); diff != "" {
			t.Errorf("minute after request %d: -want +got:\n%s", i+1, diff)
		}
		if got := card(t, server, key(day)); got != step.day {
			t.Errorf("day after request %d: %d entries, want %d", i+1, got, step.day)
		}
	}
}
