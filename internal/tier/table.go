// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package tier

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// Table is the set of tiers in force. Its zero value is empty and not ready. Readers take no lock:
// a lookup reads one atomic pointer to an immutable map.
type Table struct {
	tiers    atomic.Pointer[map[string]*Tier]
	replaced time.Time // when Replace was called last
}

// Replace puts a new set of tiers in force, whole and at once, and returns what has changed since
// the last time, ordered by name; that a kill switch has expired meanwhile is a change too. The first
// set is no change. It makes the table ready, even if it is empty. The caller must not change the tiers any more.
// Only one goroutine may replace.
func (t *Table) Replace(tiers []*Tier) []Change {
	next := make(map[string]*Tier, len(tiers))
	for _, tier := range tiers {
		next[tier.Name] = tier
	}
	before, then := t.tiers.Swap(&next), t.replaced
	t.replaced = time.Now()
	if before == nil {
		return nil
	}
	return changes(*before, next, then, t.replaced)
}

// Lookup returns the tier of a name, or nil.
func (t *Table) Lookup(name string) *Tier {
	tiers := t.tiers.Load()
	if tiers == nil {
		return nil
	}
	return (*tiers)[name]
}

// Ready returns whether the table has been filled.
func (t *Table) Ready() bool { return t.tiers.Load() != nil }

// All returns the tiers in force, ordered by name.
func (t *Table) All() []*Tier {
	tiers := t.tiers.Load()
	if tiers == nil {
		return nil
	}
	byName := make([]*Tier, 0, len(*tiers))
	for _, name := range slices.Sorted(maps.Keys(*tiers)) {
		byName = append(byName, (*tiers)[name])
	}
	return byName
}
