// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// TestReplayAgainstModel compares with counting, for each request, all admitted ones in each window.
func TestReplayAgainstModel(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	some := 0
	for round := range 2000 {
		var times []time.Time
		now := time.Unix(0, 0)
		for range random.IntN(60) {
			now = now.Add(time.Duration(random.IntN(4)) * 500 * time.Millisecond) // often the same moment, or exactly a window apart
			times = append(times, now)
		}
		limits := []limiter.Limit{{Requests: random.Int64N(6), Window: 2 * time.Second}, {Requests: random.Int64N(12), Window: 9 * time.Second}}
		limits = limits[:1+random.IntN(2)]
		var admitted []time.Time
		want := int64(0)
		for _, at := range times {
			full := func(l limiter.Limit) bool {
				n := int64(0)
				for _, a := range admitted {
					if at.Sub(a) < l.Window {
						n++
					}
				}
				return n >= l.Requests
			}
			if slices.ContainsFunc(limits, full) {
				want++
			} else {
				admitted = append(admitted, at)
			}
		}
		if got := replay(slices.Clone(times), limits); got != want {
			t.Fatalf("round %d: %d of %v rejected by %v, want %d", round, got, times, limits, want)
		}
		if want > 0 {
			some++
		}
	}
	if some < 500 {
		t.Errorf("only %d rounds have rejected anything", some)
	}
}

// logs are logs in memory, all read at one moment.
type logs struct {
	now          time.Time
	times        map[string][]time.Time // by user
	grant        *limiter.Grant
	err          error
	wait         time.Duration
	looked       func() // called at each look
	reads        atomic.Int64
	atOnce, peak atomic.Int64
}

func (l *logs) Times(_ context.Context, s limiter.Subject, _ time.Duration) ([]time.Time, error) {
	l.reads.Add(1)
	return slices.Clone(l.times[s.User]), l.err
}

func (l *logs) Inspect(_ context.Context, s limiter.Subject, _ int, limits ...limiter.Limit) (limiter.State, error) {
	l.peak.Store(max(l.peak.Load(), l.atOnce.Add(1)))
	defer l.atOnce.Add(-1)
	time.Sleep(l.wait)
	if l.looked != nil {
		l.looked()
	}
	state := limiter.State{Now: l.now, Grant: l.grant}
	for _, limit := range limits {
		state.Windows = append(state.Windows, limiter.WindowState{Limit: limit, Used: within(l.times[s.User], limit.Window, l.now)})
	}
	return state, l.err
}

// TestSimulate has users of every kind.
func TestSimulate(t *testing.T) {
	u, c, table := newUsage(t, "free", "pro")
	c.advance(time.Hour)
	ago := func(ages ...time.Duration) (times []time.Time) {
		for _, age := range ages {
			times = append(times, c.now.Add(-age))
		}
		return times
	}
	hour, minute, second := time.Hour, time.Minute, time.Second
	l := &logs{now: c.now, times: map[string][]time.Time{
		"idle":  nil,
		"slow":  ago(5*hour, 4*hour),
		"burst": ago(3*hour, 3*hour-second, 3*hour-2*second, 3*hour-3*second),
		"now":   ago(30*second, 20*second, 10*second),
		"full":  ago(20*hour, 19*hour, 18*hour, 17*hour, 16*hour, 15*hour),
		"stale": ago(25*hour, 25*hour, 25*hour, 24*hour, hour, minute),
	}}
	for user := range l.times {
		c.check(u, user, "free", "admitted")
	}
	c.check(u, "other", "pro", "admitted")
	limits := []limiter.Limit{{Requests: 2, Window: minute}, {Requests: 5, Window: 24 * hour}}
	got, err := u.Simulate(t.Context(), l, table.Lookup("free"), limits)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]adminapi.SimulatedUser{
		"idle": {}, "slow": {Requests: 2}, "burst": {Requests: 4, Rejected: 2}, "now": {Requests: 3, Rejected: 1, RejectedNow: true},
		"full": {Requests: 6, Rejected: 1, RejectedNow: true}, "stale": {Requests: 2},
	}
	if diff := cmp.Diff(want, byUser(u, got.Users, l)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	got.Users = nil
	if diff := cmp.Diff(adminapi.Simulation{Replicas: []string{"a"}, Now: c.now, Since: c.now.Add(-hour), KnownSeconds: 86400, SampledOneIn: 1,
		Tier:   adminapi.Tier{Name: "free", Mode: "Enforce", FailurePolicy: "FailClosed", Limits: []adminapi.Limit{{Window: "minute", Requests: 5}, {Window: "day", Requests: 100}}},
		Limits: []adminapi.Limit{{Window: "minute", Requests: 2}, {Window: "day", Requests: 5}}}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if n := l.reads.Load(); n != 5 { // idle is not read
		t.Errorf("%d logs were read, want those of users with as many requests as a limit", n)
	}
}

// byUser has rows by the user's name instead of the hash.
func byUser(u *Usage, rows []adminapi.SimulatedUser, l *logs) map[string]adminapi.SimulatedUser {
	all := map[string]adminapi.SimulatedUser{}
	for user := range l.times {
		name, _ := appendName(nil, limiter.Subject{User: user})
		for _, row := range rows {
			if row.ID == idOf(u.hasher.sum(name)) {
				row.ID = ""
				all[user] = row
			}
		}
	}
	return all
}

// TestSimulateOtherWindows tries out windows that the tier has no logs of, limits of 0 and grants.
func TestSimulateOtherWindows(t *testing.T) {
	minuteOnly := &tier.Tier{Name: "free", Limits: []limiter.Limit{{Requests: 9, Window: tier.Minute}}}
	dayOnly := &tier.Tier{Name: "free", Limits: []limiter.Limit{{Requests: 9, Window: tier.Day}}}
	perMinute := func(n int64) limiter.Limit { return limiter.Limit{Requests: n, Window: tier.Minute} }
	perDay := func(n int64) limiter.Limit { return limiter.Limit{Requests: n, Window: tier.Day} }
	for name, tc := range map[string]struct {
		reason string
		tier   *tier.Tier
		limits []limiter.Limit
		grant  *limiter.Grant
		known  int64
		want   adminapi.SimulatedUser
	}{
		"NewDay":    {"of a day the last minute is known", minuteOnly, []limiter.Limit{perMinute(9), perDay(2)}, nil, 60, adminapi.SimulatedUser{Requests: 3, Rejected: 1, RejectedNow: true}},
		"NewMinute": {"the day's log says when", dayOnly, []limiter.Limit{perMinute(3), perDay(9)}, nil, 86400, adminapi.SimulatedUser{Requests: 5, RejectedNow: true}},
		"DayGone":   {"a window that is left as it is not limited", budget("free", 9, 9), []limiter.Limit{perMinute(2)}, nil, 86400, adminapi.SimulatedUser{Requests: 5, Rejected: 1, RejectedNow: true}},
		"Zero":      {"0 admits nobody", minuteOnly, []limiter.Limit{perMinute(0)}, nil, 60, adminapi.SimulatedUser{Requests: 3, Rejected: 3, RejectedNow: true}},
		"ZeroGrant": {"also with a grant", minuteOnly, []limiter.Limit{perMinute(0)}, &limiter.Grant{Requests: 5}, 60, adminapi.SimulatedUser{Requests: 3, Rejected: 3, RejectedNow: true}},
		"Grant":     {"the next request is the grant's", minuteOnly, []limiter.Limit{perMinute(3)}, &limiter.Grant{Requests: 5, Used: 4}, 60, adminapi.SimulatedUser{Requests: 3}},
		"GrantUsed": {"there is nothing left of it", minuteOnly, []limiter.Limit{perMinute(3)}, &limiter.Grant{Requests: 5, Used: 5}, 60, adminapi.SimulatedUser{Requests: 3, RejectedNow: true}},
	} {
		u, c, _ := newUsage(t, "free")
		c.advance(time.Hour)
		l := &logs{now: c.now, grant: tc.grant, times: map[string][]time.Time{"alice": {
			c.now.Add(-3 * time.Hour), c.now.Add(-2 * time.Hour), c.now.Add(-30 * time.Second), c.now.Add(-20 * time.Second), c.now.Add(-10 * time.Second)}}}
		c.check(u, "alice", "free", "admitted")
		got, err := u.Simulate(t.Context(), l, tc.tier, tc.limits)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]adminapi.SimulatedUser{"alice": tc.want}, byUser(u, got.Users, l)); diff != "" || got.KnownSeconds != tc.known {
			t.Errorf("%s: %s: known are %d s, -want +got\n%s", name, tc.reason, got.KnownSeconds, diff)
		}
	}
}

// TestSimulateIsBounded has too many users, too long a log, a Redis that is away and a caller who leaves.
func TestSimulateIsBounded(t *testing.T) {
	u, c, table := newUsage(t, "free", "big")
	free := table.Lookup("free")
	l := &logs{now: c.now, times: map[string][]time.Time{"huge": make([]time.Time, maxReplayed+1)}}
	for i := range l.times["huge"] {
		l.times["huge"][i] = c.now.Add(-time.Second)
	}
	c.check(u, "huge", "big", "admitted")
	c.check(u, "small", "big", "admitted")
	got, err := u.Simulate(t.Context(), l, table.Lookup("big"), free.Limits)
	if err != nil || got.TooLong != 1 || len(got.Users) != 1 || l.reads.Load() != 0 {
		t.Errorf("a log that is too long: %+v, %v", got, err)
	}
	for i := range 10_000 {
		c.check(u, fmt.Sprint(i), "free", "admitted")
	}
	away := errors.New("Redis is away")
	if _, err := u.Simulate(t.Context(), &logs{err: away}, free, free.Limits); !errors.Is(err, away) || !strings.Contains(err.Error(), "tier free") {
		t.Errorf("without Redis: %v", err)
	}
	slow := &logs{now: c.now, wait: time.Millisecond}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := u.Simulate(ctx, slow, free, free.Limits); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller who does not wait: %v", err)
	}
	canceled, cancelNow := context.WithCancel(t.Context())
	cancelNow()
	if _, err := u.Simulate(canceled, slow, free, free.Limits); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who has left: %v", err)
	}
	if peak := slow.peak.Load(); peak > 1 {
		t.Errorf("%d users were looked at together", peak)
	}
	start := time.Now()
	got, err = u.Simulate(t.Context(), &logs{now: c.now}, free, free.Limits)
	if err != nil || got.SampledOneIn != 2 || len(got.Users) > maxSimulated || len(got.Users) < maxSimulated/2 {
		t.Errorf("many users: one in %d of %d, %v", got.SampledOneIn, len(got.Users), err)
	}
	if least := time.Duration(len(got.Users)-1) * time.Second / simulatedRate; time.Since(start) < least {
		t.Errorf("Redis was asked about %d users in %v, want %v at least", len(got.Users), time.Since(start), least)
	}
}

// TestSimulationThatTakesTooLongIsASmallerSample has logs that take a second each, and 1,000 users.
func TestSimulationThatTakesTooLongIsASmallerSample(t *testing.T) {
	u, c, table := newUsage(t, "free")
	for i := range 1000 {
		c.check(u, fmt.Sprint(i), "free", "admitted")
	}
	free := table.Lookup("free")
	l := &logs{now: c.now, looked: func() { c.now = c.now.Add(time.Second) }}
	got, err := u.Simulate(t.Context(), l, free, free.Limits)
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	users, _ := u.seenBy("free", maxSimulated)
	for _, user := range users {
		if int64(1)<<zerosOf(user.hash) >= got.SampledOneIn {
			want++
		}
	}
	if got.SampledOneIn < 8 || got.SampledOneIn > 16 || len(got.Users) != want || want == 0 {
		t.Errorf("%d users, one in %d, want all %d of that sample", len(got.Users), got.SampledOneIn, want)
	}
}

// TestSimulationThatReadsNoSample has two users of the same samples, of whom one is read.
func TestSimulationThatReadsNoSample(t *testing.T) {
	for i := range 1000 {
		u, c, table := newUsage(t, "free")
		c.check(u, "alice", "free", "admitted")
		c.check(u, fmt.Sprint(i), "free", "admitted")
		if users, _ := u.seenBy("free", maxSimulated); zerosOf(users[0].hash) != zerosOf(users[1].hash) {
			continue
		}
		free := table.Lookup("free")
		l := &logs{now: c.now, looked: func() { c.now = c.now.Add(time.Hour) }}
		if got, err := u.Simulate(t.Context(), l, free, free.Limits); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%+v, %v", got, err)
		}
		return
	}
	t.Error("no two such users")
}
