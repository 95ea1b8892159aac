// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

func TestCheckCountsDown(t *testing.T) {
	server, s, c := start(t)
	cases := map[string]struct {
		reason string
		before int           // requests admitted before, all at the same time
		pause  time.Duration // between them and the request
		limit  int64
		want   verdict
	}{
		"First": {
			reason: "The first request of a user is admitted and leaves the rest of the limit.",
			limit:  5,
			want:   verdict{Allowed: true, Limit: Limit{5, time.Minute}, Remaining: 4},
		},
		"Last": {
			reason: "The last request of the limit is admitted and leaves none.",
			before: 4,
			limit:  5,
			want:   verdict{Allowed: true, Limit: Limit{5, time.Minute}, Remaining: 0},
		},
		"OneTooMany": {
			reason: "A full log rejects until its oldest entry leaves.",
			before: 5,
			pause:  18 * time.Second,
			limit:  5,
			want:   verdict{Limit: Limit{5, time.Minute}, RetryAfter: 42 * time.Second},
		},
		"LimitOfOne": {
			reason: "A limit of 1 admits one and then none.",
			before: 1,
			limit:  1,
			want:   verdict{Limit: Limit{1, time.Minute}, RetryAfter: time.Minute},
		},
		"AWindowLater": {
			reason: "Entries as old as the window have left.",
			before: 5,
			pause:  time.Minute,
			limit:  5,
			want:   verdict{Allowed: true, Limit: Limit{5, time.Minute}, Remaining: 4},
		},
		"LargestLimit": {
			reason: "The largest limit is counted exactly.",
			before: 2,
			limit:  MaxRequests,
			want:   verdict{Allowed: true, Limit: Limit{MaxRequests, time.Minute}, Remaining: MaxRequests - 3},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server.Client.FlushAll(context.Background())
			for range tc.before {
				if d, err := s.Check(context.Background(), user, tc.limit, time.Minute); err != nil || !d.Allowed {
					t.Fatalf("preparing: %+v, %v", d, err)
				}
			}
			c.advance(tc.pause)
			got, err := s.Check(context.Background(), user, tc.limit, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, verdictOf(got)); diff != "" {
				t.Errorf("%s\n-want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestDecisionSpeaksOfTheLimitClosestToExhaustion(t *testing.T) {
	server, s, _ := start(t)
	minute, hour, aDay := Limit{5, time.Minute}, Limit{5, time.Hour}, Limit{5, day}
	cases := map[string]struct {
		reason string
		limits []Limit
		want   verdict
	}{
		"Minute": {
			reason: "The minute has fewer requests remaining.",
			limits: []Limit{minute, {100, day}},
			want:   verdict{Allowed: true, Limit: minute, Remaining: 4},
		},
		"Day": {
			reason: "The day has fewer requests remaining.",
			limits: []Limit{{60, time.Minute}, aDay},
			want:   verdict{Allowed: true, Limit: aDay, Remaining: 4},
		},
		"Equal": {
			reason: "Of limits with equally many remaining the shortest window is named, in whichever order they are given.",
			limits: []Limit{aDay, hour, {6, time.Minute}},
			want:   verdict{Allowed: true, Limit: hour, Remaining: 4},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server.Client.FlushAll(context.Background())
			if diff := cmp.Diff(tc.want, check(t, s, tc.limits...)); diff != "" {
				t.Errorf("%s\n-want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestOneMemberPerAdmittedRequestScoredInMicroseconds(t *testing.T) {
	server, s, c := start(t)
	c.advance(123457 * time.Microsecond)
	admit(t, s, 3, Limit{5, time.Minute}) // in the same microsecond
	want := []time.Duration{123457 * time.Microsecond, 123457 * time.Microsecond, 123457 * time.Microsecond}
	if diff := cmp.Diff(want, entries(t, server, key(time.Minute))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestSubjectsDoNotShareABudget(t *testing.T) {
	_, s, _ := start(t)
	subjects := []Subject{
		{User: "a"}, {User: "b"}, {User: "a", Tenant: "acme"}, {User: "a", Route: "export"},
		{User: "a", Tenant: "acme", Route: "export"}, {User: "a", Kind: KindAddress},
	}
	for range 2 { // charge each twice: the second request of one must not meet the first of another
		for _, subject := range subjects {
			d, err := s.CheckAll(context.Background(), subject, Limit{2, time.Minute})
			if err != nil || !d.Allowed {
				t.Errorf("%+v: %+v, %v", subject, d, err)
			}
		}
	}
}

func TestLimitOfZeroAdmitsNobodyAndAsksNobody(t *testing.T) {
	server, s, _ := start(t)
	minute, none := Limit{5, time.Minute}, Limit{0, day}
	got := commands(t, server, func() {
		for _, limits := range [][]Limit{{none}, {minute, none}, {none, minute}} {
			if diff := cmp.Diff(verdict{Limit: none}, check(t, s, limits...)); diff != "" {
				t.Errorf("%v: no wait would help.\n-want +got:\n%s", limits, diff)
			}
		}
	})
	if diff := cmp.Diff(map[string]int64{}, got); diff != "" {
		t.Errorf("commands that Redis executed: -want +got:\n%s", diff)
	}
}

func TestInvalidChecksAreRefusedBeforeRedisIsAsked(t *testing.T) {
	server := redistest.Start(t)
	s := newSlidingWindow(t, server.URL(), nil)
	ok := Limit{5, time.Minute}
	cases := map[string]struct {
		reason  string
		subject Subject
		limits  []Limit
	}{
		"NoUser":            {"Without a user there is nobody to charge.", Subject{Tenant: "acme", Route: "export"}, []Limit{ok}},
		"NoLimit":           {"Without a limit there is nothing to check.", Subject{User: user}, nil},
		"NegativeLimit":     {"A limit cannot be negative.", Subject{User: user}, []Limit{{-1, time.Minute}}},
		"LimitTooLarge":     {"A limit has an upper bound.", Subject{User: user}, []Limit{{MaxRequests + 1, time.Minute}}},
		"LargestInteger":    {"A limit has an upper bound.", Subject{User: user}, []Limit{{math.MaxInt64, time.Minute}}},
		"NoWindow":          {"A window has a length.", Subject{User: user}, []Limit{{5, 0}}},
		"NegativeWindow":    {"A window is not negative.", Subject{User: user}, []Limit{{5, -time.Minute}}},
		"WindowTooShort":    {"A window is at least a second.", Subject{User: user}, []Limit{{5, 999 * time.Millisecond}}},
		"WindowTooLong":     {"A window has an upper bound.", Subject{User: user}, []Limit{{5, MaxWindow + time.Second}}},
		"FractionOfASecond": {"A window is whole seconds, as in its key.", Subject{User: user}, []Limit{{5, 1500 * time.Millisecond}}},
		"SecondIsBad":       {"Every limit is checked.", Subject{User: user}, []Limit{ok, {-1, day}}},
		"ZeroAndBad":        {"A limit of 0 does not hide an invalid one.", Subject{User: user}, []Limit{{0, time.Minute}, {-1, day}}},
		"SameWindowTwice":   {"Two limits for one window would share a log.", Subject{User: user}, []Limit{ok, {100, day}, {6, time.Minute}}},
		"UpperCaseKind":     {"A kind must not look like a percent-encoding.", Subject{User: user, Kind: "3A"}, []Limit{ok}},
		"KindWithDot":       {"A kind must end where the user begins.", Subject{User: user, Kind: "ip.x"}, []Limit{ok}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := commands(t, server, func() {
				d, err := s.CheckAll(context.Background(), tc.subject, tc.limits...)
				if !errors.Is(err, ErrInvalid) || errors.Is(err, ErrReply) || verdictOf(d) != (verdict{}) {
					t.Errorf("%s Got %+v, %v", tc.reason, d, err)
				}
			})
			if diff := cmp.Diff(map[string]int64{}, got); diff != "" {
				t.Errorf("commands that Redis executed: -want +got:\n%s", diff)
			}
		})
	}
}

func TestBoundsOfALimitAreValid(t *testing.T) {
	_, s, _ := start(t)
	for _, l := range []Limit{{1, time.Second}, {MaxRequests, MaxWindow}} {
		if d := check(t, s, l); !d.Allowed {
			t.Errorf("%v: %+v", l, d)
		}
	}
}
