// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
)

func TestDecisions(t *testing.T) {
	u, c, table := newUsage(t)
	expiry := c.now.Add(time.Hour)
	off := budget("off", 1, 2)
	off.KillSwitch = tier.KillSwitch{Engaged: true, ExpiresAt: expiry}
	trial := budget("trial", 1, 2)
	trial.DryRun = true
	table.Replace([]*tier.Tier{budget("free", 1, 2), off, trial, budget("old", 1, 2), budget("unused", 1, 2)})
	for _, check := range []struct{ user, tier, outcome string }{
		{"alice", "free", "admitted"}, {"alice", "free", "admitted"}, {"alice", "free", "admitted"},
		{"bob", "free", "admitted"}, {"bob", "free", "rejected"}, {"carol", "free", "rejected"}, {"carol", "free", "rejected"},
		{"dave", "trial", "dry_run_rejected"}, {"erin", "off", "disabled"}, {"", "", "invalid"}, {"frank", "old", "admitted"},
	} {
		c.check(u, check.user, check.tier, check.outcome)
	}
	table.Replace([]*tier.Tier{budget("free", 1, 2), off, trial, budget("unused", 1, 2)})
	user := func(name, tier string, used, rejected int64) adminapi.TopUser {
		return adminapi.TopUser{Subject: adminapi.Subject{User: name}, Tier: tier, Used: used, Rejected: rejected}
	}
	none := []adminapi.TopUser{}
	want := adminapi.Decisions{Replicas: []string{"a"}, Now: c.now, StartedAt: c.now, Tiers: []adminapi.TierDecisions{
		{Tier: "", Outcomes: map[string]int64{"invalid": 1}, Users: none},
		{Tier: "free", Mode: "Enforce", Outcomes: map[string]int64{"admitted": 4, "rejected": 3},
			Users: []adminapi.TopUser{user("carol", "free", 0, 2), user("bob", "free", 1, 1), user("alice", "free", 3, 0)}},
		{Tier: "off", Mode: "Enforce", KillSwitch: &adminapi.KillSwitch{ExpiresAt: &expiry}, Outcomes: map[string]int64{"disabled": 1},
			Users: []adminapi.TopUser{user("erin", "off", 1, 0)}},
		{Tier: "old", Outcomes: map[string]int64{"admitted": 1}, Users: []adminapi.TopUser{user("frank", "old", 1, 0)}},
		{Tier: "trial", Mode: "DryRun", Outcomes: map[string]int64{"dry_run_rejected": 1}, Users: []adminapi.TopUser{user("dave", "trial", 0, 1)}},
		{Tier: "unused", Mode: "Enforce", Outcomes: map[string]int64{}, Users: none},
	}}
	if diff := cmp.Diff(want, u.Decisions()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	c.advance(time.Hour) // the kill switch has expired
	for _, got := range u.Decisions().Tiers {
		if got.KillSwitch != nil || len(got.Users) > 0 {
			t.Errorf("an hour later: %+v", got)
		}
	}
	u.options.Disabled = true
	if got := u.Decisions().Tiers[1]; got.KillSwitch == nil || !got.KillSwitch.Global {
		t.Errorf("the global kill switch: %+v", got)
	}
}

// TestGoneTiers has tiers come and go: they are remembered for a day, and not more than some.
func TestGoneTiers(t *testing.T) {
	u, c, table := newUsage(t)
	const many = 3 * maxGone
	for i := range many {
		name := fmt.Sprintf("tier-%03d", i)
		table.Replace([]*tier.Tier{budget("free", 1, 2), budget(name, 1, 2)})
		c.check(u, "alice", name, "admitted")
		c.check(u, "alice", "free", "admitted")
		c.advance(time.Second)
	}
	table.Replace([]*tier.Tier{budget("free", 1, 2)})
	d := u.Decisions()
	if len(d.Tiers) != maxGone+1 {
		t.Errorf("%d tiers, want %d that are gone and one", len(d.Tiers), maxGone)
	}
	if last := d.Tiers[len(d.Tiers)-1]; last.Tier != fmt.Sprintf("tier-%03d", many-1) || last.Mode != "" {
		t.Errorf("the last that went is not remembered: %+v", last)
	}
	if d.Tiers[0].Outcomes["admitted"] != many {
		t.Errorf("a tier in force lost its count: %+v", d.Tiers[0])
	}
	c.advance(goneFor)
	if d := u.Decisions(); len(d.Tiers) != 1 || d.Tiers[0].Tier != "free" {
		t.Errorf("after a day: %+v", d.Tiers)
	}
	if n := len(*u.tiers.known.Load()); n != 2 { // free and none
		t.Errorf("%d tiers are known", n)
	}
}

// TestOutcomesAreKnown fails for an outcome of which nobody has said what it is to a user.
func TestOutcomesAreKnown(t *testing.T) {
	for _, name := range webhookserver.Outcomes() {
		isNothing := slices.Contains([]string{"failed_closed", "invalid", "no_tier", "exempt", "unauthenticated", "unidentified"}, name)
		if got := effects[outcomes[name]]; (got == nothing) != isNothing {
			t.Errorf("%s: %v", name, got)
		}
	}
	if len(names) > maxOutcomes {
		t.Errorf("%d outcomes, and room for %d", len(names), maxOutcomes)
	}
}
