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

// The client repeats a call when the connection broke before the reply came. The request may have
// been charged already.
func TestRepeatedRequestIsAdmittedAndChargedOnce(t *testing.T) {
	cases := map[string]struct {
		reason  string
		before  int
		limits  []Limit
		between func(t *testing.T, server *redistest.Server, s *SlidingWindow)
		repeat  []Limit // nil: the same limits
		want    verdict
		minute  int64 // entries afterwards
		day     int64
	}{
		"RoomInBoth": {
			reason: "The second call finds the member and changes nothing.",
			limits: []Limit{{5, time.Minute}, {100, day}},
			want:   verdict{Allowed: true, Limit: Limit{5, time.Minute}, Remaining: 4},
			minute: 1, day: 1,
		},
		"MinuteFilledByIt": {
			reason: "The request itself took the last place in the minute.",
			before: 2,
			limits: []Limit{{3, time.Minute}, {100, day}},
			want:   verdict{Allowed: true, Limit: Limit{3, time.Minute}, Remaining: 0},
			minute: 3, day: 3,
		},
		"DayFilledByIt": {
			reason: "The request itself took the last place in the day.",
			before: 2,
			limits: []Limit{{5, time.Minute}, {3, day}},
			want:   verdict{Allowed: true, Limit: Limit{3, day}, Remaining: 0},
			minute: 3, day: 3,
		},
		"BothFilledByIt": {
			reason: "The request itself took the last place in both.",
			before: 2,
			limits: []Limit{{3, time.Minute}, {3, day}},
			want:   verdict{Allowed: true, Limit: Limit{3, time.Minute}, Remaining: 0},
			minute: 3, day: 3,
		},
		"LimitLoweredInBetween": {
			reason: "It was charged under the old limit and stays admitted.",
			before: 2,
			limits: []Limit{{3, time.Minute}, {100, day}},
			repeat: []Limit{{1, time.Minute}, {2, day}},
			want:   verdict{Allowed: true, Limit: Limit{1, time.Minute}, Remaining: 0},
			minute: 3, day: 3,
		},
		"FilledByOthersInBetween": {
			reason: "Others took the places that were left; this one has its own.",
			before: 1,
			limits: []Limit{{3, time.Minute}, {3, day}},
			between: func(t *testing.T, _ *redistest.Server, s *SlidingWindow) {
				admit(t, s, 1, Limit{3, time.Minute}, Limit{3, day})
				s.members.next.Add(^uint64(0))
			},
			want:   verdict{Allowed: true, Limit: Limit{3, time.Minute}, Remaining: 0},
			minute: 3, day: 3,
		},
		"ClearedInBetween": {
			reason: "An operator cleared the day, others filled it: still admitted, and not charged beyond the limit.",
			before: 2,
			limits: []Limit{{3, time.Minute}, {3, day}},
			between: func(t *testing.T, server *redistest.Server, s *SlidingWindow) {
				server.Client.Del(context.Background(), key(day))
				admit(t, s, 3, Limit{3, day})
				s.members.next.Add(^uint64(2))
			},
			want:   verdict{Allowed: true, Limit: Limit{3, time.Minute}, Remaining: 0},
			minute: 3, day: 3,
		},
	}
	server, s, c := start(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server.Client.FlushAll(context.Background())
			admit(t, s, tc.before+1, tc.limits...)
			if tc.between != nil {
				tc.between(t, server, s)
			}
			if tc.repeat == nil {
				tc.repeat = tc.limits
			}
			c.advance(300 * time.Millisecond)
			if diff := cmp.Diff(tc.want, again(t, s, tc.repeat...)); diff != "" {
				t.Errorf("%s -want +got:\n%s", tc.reason, diff)
			}
			if got := card(t, server, key(time.Minute)); got != tc.minute {
				t.Errorf("%s %d entries in the minute, want %d", tc.reason, got, tc.minute)
			}
			if got := card(t, server, key(day)); got != tc.day {
				t.Errorf("%s %d entries in the day, want %d", tc.reason, got, tc.day)
			}
		})
	}
}

func TestRepeatedRejectionIsAskedAnew(t *testing.T) {
	server, s, c := start(t)
	limit := Limit{2, time.Minute}
	admit(t, s, 2, limit)
	c.advance(time.Minute - time.Millisecond)
	if got := check(t, s, limit); got.Allowed {
		t.Fatalf("the log is full: %+v", got)
	}
	if got := again(t, s, limit); got.Allowed {
		t.Errorf("a rejected request was admitted when repeated: %+v", got)
	}
	c.advance(time.Millisecond)
	if got := again(t, s, limit); !got.Allowed || card(t, server, key(time.Minute)) != 1 {
		t.Errorf("there is room now: %+v", got)
	}
}

func TestLostReplyIsChargedOnce(t *testing.T) {
	cases := map[string]struct {
		reason string
		lose   func(p *redistest.Proxy)
		lost   int64
	}{
		"Closed":     {"The connection ends before the reply.", func(p *redistest.Proxy) { p.Cut(1, "evalsha") }, 1},
		"Reset":      {"The connection is reset before the reply.", func(p *redistest.Proxy) { p.Reset(1, "evalsha") }, 1},
		"ThreeTimes": {"As often as the client tries again.", func(p *redistest.Proxy) { p.Cut(3, "evalsha") }, 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server, direct, c := start(t)
			limits := []Limit{{3, time.Minute}, {3, day}}
			admit(t, direct, 2, limits...) // also loads the script: the call that is cut is the check itself

			proxy := redistest.StartProxy(t, server.Addr())
			s := newSlidingWindow(t, proxy.URL(), c)
			check(t, s, Limit{1000, time.Hour}) // opens a connection
			tc.lose(proxy)

			executed := commands(t, server, func() {
				want := verdict{Allowed: true, Limit: limits[0], Remaining: 0}
				if got := check(t, s, limits...); got != want {
					t.Errorf("%s got %+v, want %+v", tc.reason, got, want)
				}
			})
			if got, want := executed["evalsha"], tc.lost+1; got != want {
				t.Errorf("%s Redis executed the check %d times, want %d: the proxy has to cut after the execution", tc.reason, got, want)
			}
			for _, l := range limits {
				if got := card(t, server, key(l.Window)); got != 3 {
					t.Errorf("%s %d entries for %v, want 3", tc.reason, got, l.Window)
				}
			}
			if got := check(t, direct, limits...); got.Allowed {
				t.Errorf("%s The log is full, got %+v", tc.reason, got)
			}
		})
	}
}
