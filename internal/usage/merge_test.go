// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

func topUser(user, tier string, used, usedError, rejected, rejectedError int64) adminapi.TopUser {
	return adminapi.TopUser{Subject: adminapi.Subject{User: user}, Tier: tier, Used: used, UsedError: usedError, Rejected: rejected, RejectedError: rejectedError}
}

func TestMergeTop(t *testing.T) {
	one := adminapi.Top{Replicas: []string{"b"}, By: ByUsed, WindowSeconds: 60, Users: []adminapi.TopUser{topUser("x", "free", 9, 1, 2, 1), topUser("y", "pro", 5, 0, 0, 0)}}
	two := adminapi.Top{Replicas: []string{"a"}, By: ByUsed, WindowSeconds: 60, Users: []adminapi.TopUser{topUser("z", "pro", 12, 0, 0, 0), topUser("y", "pro", 10, 2, 3, 2), topUser("x", "pro", 8, 0, 0, 0),
		{Subject: adminapi.Subject{User: "x", Kind: "ip"}, Tier: "free", Used: 1}}}
	want := adminapi.Top{Replicas: []string{"a", "b"}, By: ByUsed, WindowSeconds: 60,
		Users: []adminapi.TopUser{topUser("y", "pro", 15, 2, 3, 2), topUser("z", "pro", 12, 0, 0, 0), topUser("x", "free", 9, 1, 2, 1), topUser("x", "pro", 8, 0, 0, 0)}}
	for name, all := range map[string][]adminapi.Top{"OneTwo": {one, two}, "TwoOne": {two, one}} {
		if diff := cmp.Diff(want, MergeTop(all, 4)); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
	if got := MergeTop(nil, 3); got.Users == nil || got.Replicas == nil {
		t.Errorf("of none: %+v, want lists in its JSON", got)
	}
}

func TestMergeDecisions(t *testing.T) {
	at := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	off := &adminapi.KillSwitch{}
	got := MergeDecisions([]adminapi.Decisions{
		{Replicas: []string{"a"}, Now: at, StartedAt: at.Add(-time.Hour), Tiers: []adminapi.TierDecisions{
			{Tier: "pro", Mode: "Enforce", Outcomes: map[string]int64{"admitted": 1}},
			{Tier: "free", Mode: "", Outcomes: map[string]int64{"admitted": 3, "rejected": 1}, Users: []adminapi.TopUser{topUser("x", "free", 1, 0, 1, 0), topUser("y", "free", 9, 0, 0, 0)}}}},
		{Replicas: []string{"b"}, Now: at.Add(time.Second), StartedAt: at.Add(-time.Minute), Tiers: []adminapi.TierDecisions{
			{Tier: "free", Mode: "DryRun", KillSwitch: off, Outcomes: map[string]int64{"admitted": 4}, Users: []adminapi.TopUser{topUser("x", "free", 2, 0, 0, 0), topUser("z", "free", 0, 0, 2, 0)}}}},
	})
	want := adminapi.Decisions{Replicas: []string{"a", "b"}, Now: at.Add(time.Second), StartedAt: at.Add(-time.Hour), Tiers: []adminapi.TierDecisions{
		{Tier: "free", Mode: "DryRun", KillSwitch: off, Outcomes: map[string]int64{"admitted": 7, "rejected": 1},
			Users: []adminapi.TopUser{topUser("z", "free", 0, 0, 2, 0), topUser("x", "free", 3, 0, 1, 0), topUser("y", "free", 9, 0, 0, 0)}},
		{Tier: "pro", Mode: "Enforce", Outcomes: map[string]int64{"admitted": 1}, Users: []adminapi.TopUser{}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestMergeSimulations(t *testing.T) {
	at := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	user := func(hash uint64, requests, rejected int64, now bool) adminapi.SimulatedUser {
		return adminapi.SimulatedUser{ID: fmt.Sprintf("%016x", hash), Requests: requests, Rejected: rejected, RejectedNow: now}
	}
	a := adminapi.Simulation{Replicas: []string{"a"}, Tier: adminapi.Tier{Name: "free"}, Now: at, Since: at.Add(-24 * time.Hour), KnownSeconds: 86400, SampledOneIn: 4,
		Users: []adminapi.SimulatedUser{user(1<<61, 5, 1, false), user(1<<60, 9, 0, false)}}
	b := adminapi.Simulation{Replicas: []string{"b"}, Tier: adminapi.Tier{Name: "free"}, Now: at.Add(time.Second), Since: at.Add(-time.Hour), KnownSeconds: 86400, SampledOneIn: 1, TooLong: 1,
		Users: []adminapi.SimulatedUser{user(1<<61, 6, 2, true), user(1<<62, 7, 7, true), user(1<<63, 7, 7, true), user(3, 1, 0, false)}}
	want := adminapi.Simulation{Replicas: []string{"a", "b"}, Tier: adminapi.Tier{Name: "free"}, Now: b.Now, Since: b.Since, KnownSeconds: 86400, SampledOneIn: 4, TooLong: 1,
		Users: []adminapi.SimulatedUser{user(1<<61, 6, 2, true), user(1<<60, 9, 0, false), user(3, 1, 0, false)}}
	for name, all := range map[string][]adminapi.Simulation{"AB": {a, b}, "BA": {b, a}} {
		if diff := cmp.Diff(want, MergeSimulations(all)); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
	sum := Summarize(want)
	if diff := cmp.Diff(Summary{Users: 12, Rejected: 4, RejectedNow: 4, Requests: 64, RejectedRequests: 8, Share: 1. / 3, LookedAt: 3, TooLong: 1,
		Since: b.Since, LogsSince: b.Now.Add(-24 * time.Hour)}, sum); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got := MergeSimulations(nil); got.Users == nil || got.Limits == nil || Summarize(got).Share != 0 {
		t.Errorf("of none: %+v", got)
	}
}

// TestMergedReplicas has two replicas share the checks of some users: merged, they say what one replica would.
func TestMergedReplicas(t *testing.T) {
	one, c, table := newUsage(t, "free")
	a := newAt(Options{Tiers: table, HashKey: []byte("secret")}, c.time)
	b := newAt(Options{Tiers: table, HashKey: []byte("secret")}, c.time)
	for i := range 6000 {
		user, outcome := fmt.Sprint("user-", i*i%997), []string{"admitted", "rejected"}[i%7/6]
		c.check(one, user, "free", outcome)
		c.check([]*Usage{a, b}[i%2], user, "free", outcome)
		c.advance(time.Millisecond)
	}
	for _, by := range []string{ByUsed, ByRejected} {
		want, got := one.Top(by, "", 1000), MergeTop([]adminapi.Top{a.Top(by, "", 1000), b.Top(by, "", 1000)}, 1000)
		if by == ByRejected { // of whom nothing was rejected at a replica it does not say what has passed
			for i := range want.Users {
				want.Users[i].Used = 0
			}
			for i := range got.Users {
				got.Users[i].Used = 0
			}
		}
		if diff := cmp.Diff(byName(want.Users), byName(got.Users)); diff != "" || len(got.Users) == 0 {
			t.Errorf("by %s: -one replica +merged\n%s", by, diff)
		}
	}
	l := &logs{now: c.now, times: map[string][]time.Time{}}
	for i := range 997 {
		for range i % 5 {
			l.times[fmt.Sprint("user-", i)] = append(l.times[fmt.Sprint("user-", i)], c.now.Add(-time.Second))
		}
	}
	free := table.Lookup("free")
	simulate := func(u *Usage) adminapi.Simulation {
		s, err := u.Simulate(t.Context(), l, free, budget("", 2, 3).Limits)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	want, got := simulate(one), MergeSimulations([]adminapi.Simulation{simulate(a), simulate(b)})
	if diff := cmp.Diff(Summarize(want), Summarize(got)); diff != "" {
		t.Errorf("-one replica +merged\n%s", diff)
	}
}

func byName(users []adminapi.TopUser) map[string]adminapi.TopUser {
	all := map[string]adminapi.TopUser{}
	for _, u := range users {
		all[u.User] = u
	}
	return all
}
