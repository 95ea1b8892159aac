// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"slices"
	"time"

	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/tier"
)

// tierUsers is how many users of each tier Decisions names.
const tierUsers = 20

// Decisions returns what was decided by each tier since the start, and each tier's heaviest users in the
// last minute, those that it rejected first. Checks without a tier are under the name "". Tiers that
// are gone stay for a day, 100 of them at the most.
func (u *Usage) Decisions() adminapi.Decisions {
	now := u.now()
	known := u.tiers.refresh(now)
	users := map[string][]adminapi.TopUser{}
	for _, user := range u.heaviest() {
		if certain(user, ByUsed)+certain(user, ByRejected) > 0 {
			users[user.Tier] = append(users[user.Tier], user)
		}
	}
	d := adminapi.Decisions{Replicas: []string{u.options.Replica}, Now: now, StartedAt: u.started, Tiers: []adminapi.TierDecisions{}}
	for name, state := range known {
		t := adminapi.TierDecisions{Tier: name, Outcomes: state.outcomes(), Users: firstRejected(users[name])}
		if inForce := u.options.Tiers.Lookup(name); inForce != nil {
			t.Mode = modeOf(inForce)
			t.KillSwitch = killSwitchOf(inForce, u.options.Disabled, now)
		} else if len(t.Outcomes) == 0 {
			continue
		}
		d.Tiers = append(d.Tiers, t)
	}
	sortTiers(d.Tiers)
	return d
}

// outcomes returns how often each outcome was counted, without those that were not.
func (t *tierState) outcomes() map[string]int64 {
	all := map[string]int64{}
	for i, name := range names {
		if n := t.sum(i); n > 0 {
			all[name] = n
		}
	}
	return all
}

// firstRejected orders the users of a tier and returns the first of them.
func firstRejected(users []adminapi.TopUser) []adminapi.TopUser {
	slices.SortFunc(users, heavier(ByRejected))
	return append([]adminapi.TopUser{}, users[:min(len(users), tierUsers)]...)
}

func sortTiers(tiers []adminapi.TierDecisions) {
	slices.SortFunc(tiers, func(a, b adminapi.TierDecisions) int { return cmp.Compare(a.Tier, b.Tier) })
}

func modeOf(t *tier.Tier) string {
	if t.DryRun {
		return "DryRun"
	}
	return "Enforce"
}

// killSwitchOf returns the kill switch that lets all requests of a tier pass now; nil if there is none.
func killSwitchOf(t *tier.Tier, global bool, now time.Time) *adminapi.KillSwitch {
	switch {
	case global:
		return &adminapi.KillSwitch{Global: true}
	case !t.KillSwitch.EngagedAt(now):
		return nil
	case t.KillSwitch.ExpiresAt.IsZero():
		return &adminapi.KillSwitch{}
	}
	expires := t.KillSwitch.ExpiresAt
	return &adminapi.KillSwitch{ExpiresAt: &expires}
}
