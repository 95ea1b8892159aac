// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package tier

import (
	"cmp"
	"slices"
	"time"
)

// Change is what one replacement of the table did to one tier.
type Change struct {
	// Name is the tier's name.
	Name string
	// Now describes the tier as it is in force now; "removed" if it is not any more.
	Now string
}

// changes returns what differs between a set as it was in force at one moment and another set as it
// is now, ordered by name. Only tiers that differ are described: of thousands usually one does.
func changes(before, after map[string]*Tier, then, now time.Time) []Change {
	var changed []Change
	for name, tier := range after {
		was, known := before[name]
		if known && was.same(tier, then, now) {
			continue
		}
		described := tier.describe(now)
		if !known || was.describe(then) != described {
			changed = append(changed, Change{Name: name, Now: described})
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			changed = append(changed, Change{Name: name, Now: "removed"})
		}
	}
	slices.SortFunc(changed, func(a, b Change) int { return cmp.Compare(a.Name, b.Name) })
	return changed
}

// same returns whether a tier does at one moment exactly what another does at a later one.
func (t *Tier) same(other *Tier, then, now time.Time) bool {
	if t.KillSwitch.EngagedAt(then) != other.KillSwitch.EngagedAt(now) {
		return false // also of one and the same tier, after its kill switch has expired
	}
	return t == other || t.DryRun == other.DryRun && t.FailurePolicy == other.FailurePolicy &&
		t.KillSwitch.Engaged == other.KillSwitch.Engaged && t.KillSwitch.ExpiresAt.Equal(other.KillSwitch.ExpiresAt) &&
		slices.Equal(t.Limits, other.Limits)
}
