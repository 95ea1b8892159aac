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

// snapshot is all that Redis holds under a key.
type snapshot struct {
	dump   string
	expiry int64
}

func snap(t testing.TB, server *redistest.Server, key string) snapshot {
	t.Helper()
	return snapshot{
		dump:   must(server.Client.Dump(context.Background(), key).Result())(t),
		expiry: expiry(t, server, key),
	}
}

func TestMinuteRejectionLeavesTheDayAlone(t *testing.T) {
	minute, aDay := Limit{3, time.Minute}, Limit{100, day}
	cases := map[string]struct {
		reason string
		before []Limit // what the requests that fill the minute were checked against
		keys   []string
	}{
		"NoDayYet":  {"No key is created.", []Limit{minute}, []string{key(time.Minute)}},
		"DayExists": {"No key is changed or lives longer.", []Limit{minute, aDay}, []string{key(time.Minute), key(day)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server, s, c := start(t)
			admit(t, s, 3, tc.before...)
			var before []snapshot
			for _, k := range tc.keys {
				before = append(before, snap(t, server, k))
			}
			written := changes(t, server)
			c.advance(10 * time.Second)

			executed := commands(t, server, func() {
				want := verdict{Limit: minute, RetryAfter: 50 * time.Second}
				if got := check(t, s, minute, aDay); got != want {
					t.Errorf("got %+v, want %+v", got, want)
				}
			})
			// One look at the minute, and whether there is a grant; the day is not even looked at.
			want := map[string]int64{"evalsha": 1, "zcard": 1, "zrange": 1, "hlen": 1}
			if diff := cmp.Diff(want, executed); diff != "" {
				t.Errorf("commands that Redis executed: -want +got:\n%s", diff)
			}
			if got := changes(t, server); got != written {
				t.Errorf("changes that Redis counts: %s, before %s", got, written)
			}
			if diff := cmp.Diff(tc.keys, keys(t, server)); diff != "" {
				t.Errorf("%s keys: -want +got:\n%s", tc.reason, diff)
			}
			for i, k := range tc.keys {
				if got := snap(t, server, k); got != before[i] {
					t.Errorf("%s %s: %+v, before %+v", tc.reason, k, got, before[i])
				}
			}
		})
	}
}

func TestDayRejectionChargesNoWindow(t *testing.T) {
	minute, aDay := Limit{10, time.Minute}, Limit{3, day}
	cases := map[string]struct {
		reason string
		pause  time.Duration // after which the minute is used in part or not at all
	}{
		"MinuteInUse":  {"A minute with room is not charged for a request that the day rejects.", time.Second},
		"MinuteHasOld": {"Entries that have left are not removed by a rejection either.", time.Hour},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server, s, c := start(t)
			admit(t, s, 3, minute, aDay)
			before := []snapshot{snap(t, server, key(time.Minute)), snap(t, server, key(day))}
			written := changes(t, server)
			c.advance(tc.pause)

			executed := commands(t, server, func() {
				want := verdict{Limit: aDay, RetryAfter: day - tc.pause}
				if got := check(t, s, minute, aDay); got != want {
					t.Errorf("got %+v, want %+v", got, want)
				}
			})
			want := map[string]int64{"evalsha": 1, "zcard": 2, "zrange": 1, "hlen": 1}
			if diff := cmp.Diff(want, executed); diff != "" {
				t.Errorf("commands that Redis executed: -want +got:\n%s", diff)
			}
			if got := changes(t, server); got != written {
				t.Errorf("changes that Redis counts: %s, before %s", got, written)
			}
			after := []snapshot{snap(t, server, key(time.Minute)), snap(t, server, key(day))}
			if diff := cmp.Diff(before, after, cmp.AllowUnexported(snapshot{})); diff != "" {
				t.Errorf("%s -before +after:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestFirstFullWindowAnswers(t *testing.T) {
	_, s, _ := start(t)
	minute, hour, aDay := Limit{3, time.Minute}, Limit{3, time.Hour}, Limit{3, day}
	admit(t, s, 3, minute, hour, aDay)
	cases := map[string]struct {
		reason string
		limits []Limit
		want   Limit
	}{
		"AllFull":      {"The shortest answers.", []Limit{minute, hour, aDay}, minute},
		"LongestFirst": {"The order in which they are given does not matter.", []Limit{aDay, hour, minute}, minute},
		"MinuteHasRoom": {"The first that is full, not the first.",
			[]Limit{{10, time.Minute}, hour, aDay}, hour},
		"OnlyTheDayIsFull": {"The last window is looked at too.",
			[]Limit{{10, time.Minute}, {10, time.Hour}, aDay}, aDay},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := verdict{Limit: tc.want, RetryAfter: tc.want.Window}
			if got := check(t, s, tc.limits...); got != want {
				t.Errorf("%s got %+v, want %+v", tc.reason, got, want)
			}
		})
	}
}

func TestLimitsOfTheCallerAreLeftInTheirOrder(t *testing.T) {
	_, s, _ := start(t)
	limits := []Limit{{100, day}, {5, time.Minute}}
	check(t, s, limits...)
	if diff := cmp.Diff([]Limit{{100, day}, {5, time.Minute}}, limits); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestOneRoundTripHoweverManyLimits(t *testing.T) {
	server, s, _ := start(t)
	check(t, s, Limit{9, time.Minute}) // loads the script
	executed := commands(t, server, func() {
		check(t, s, Limit{9, time.Minute}, Limit{9, time.Hour}, Limit{9, day})
	})
	want := map[string]int64{"evalsha": 1, "zcard": 3, "zremrangebyscore": 1, "zadd": 3, "expire": 3}
	if diff := cmp.Diff(want, executed); diff != "" {
		t.Errorf("commands that Redis executed: -want +got:\n%s", diff)
	}
}
