// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"testing"
	"time"
)

func TestExactUnderConcurrency(t *testing.T) {
	const limit = 10
	cases := map[string]struct {
		reason   string
		replicas int
		calls    int
		limits   []Limit
	}{
		"OneReplicaFewCalls":    {"Twice the limit at once.", 1, 20, []Limit{{limit, time.Minute}}},
		"OneReplicaManyCalls":   {"Two hundred times the limit at once.", 1, 2000, []Limit{{limit, time.Minute}}},
		"FourReplicasFewCalls":  {"Replicas share the log, not just a process.", 4, 20, []Limit{{limit, time.Minute}}},
		"FourReplicasManyCalls": {"Replicas under load.", 4, 2000, []Limit{{limit, time.Minute}}},
		"TwoWindows":            {"The day is full before the minute is.", 4, 200, []Limit{{limit + 5, time.Minute}, {limit, 10 * time.Minute}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server, s, c := start(t)
			replicas := []*SlidingWindow{s}
			for len(replicas) < tc.replicas {
				replicas = append(replicas, newSlidingWindow(t, server.URL(), c))
			}
			for round := range 2 {
				if got := admitTogether(t, tc.calls, replicas, tc.limits...); got != limit {
					t.Errorf("%s Window %d: %d of %d calls admitted, want %d", tc.reason, round+1, got, tc.calls, limit)
				}
				for _, l := range tc.limits {
					if got := card(t, server, key(l.Window)); got != limit {
						t.Errorf("%s Window %d: %d entries for %v, want %d", tc.reason, round+1, got, l.Window, limit)
					}
				}
				c.advance(10 * time.Minute)
			}
		})
	}
}

// Redis's own clock, a window short enough to wait for, and callers that never stop asking.
func TestExactUnderConcurrencyInRealTime(t *testing.T) {
	t.Parallel()
	server, s, _ := start(t)
	s.now = func() string { return "" }
	limit := Limit{10, time.Second}
	if got := admitTogether(t, 200, []*SlidingWindow{s}, limit, Limit{1000, day}); got < limit.Requests {
		t.Errorf("%d admitted, want at least %d", got, limit.Requests)
	}
	for range 2 {
		time.Sleep(check(t, s, limit, Limit{1000, day}).RetryAfter)
		admitTogether(t, 200, []*SlidingWindow{s}, limit, Limit{1000, day})
	}
	// The day's log has every admission: no stretch of a second may hold more than the limit.
	times := entries(t, server, key(day))
	for i := range times[:max(0, len(times)-int(limit.Requests))] {
		if apart := times[i+int(limit.Requests)] - times[i]; apart < limit.Window {
			t.Errorf("%d requests within %v, which is less than %v", limit.Requests+1, apart, limit.Window)
		}
	}
	if len(times) <= int(limit.Requests) {
		t.Errorf("%d admitted in all: none after the first window", len(times))
	}
}
