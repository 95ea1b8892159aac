// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/internal/tier"
)

const (
	// maxGone is how many tiers are remembered that are not in force any more, and goneFor how long.
	maxGone = 100
	goneFor = 24 * time.Hour
	// lanes are for processors that count at the same time. Each has its own cache lines.
	lanes = 4
	// maxOutcomes is more than there are outcomes.
	maxOutcomes = 16
)

// tierState is what is known of one tier.
type tierState struct {
	name   string
	counts [lanes][maxOutcomes]atomic.Int64
	thin   [shards]thinning // each is guarded by its shard
	goneAt time.Time        // when it was first missed; guarded by tierStates
}

// count counts an outcome.
func (t *tierState) count(hash uint64, outcome int) { t.counts[hash%lanes][outcome].Add(1) }

// sum returns how often an outcome was counted.
func (t *tierState) sum(outcome int) int64 {
	var n int64
	for lane := range t.counts {
		n += t.counts[lane][outcome].Load()
	}
	return n
}

// tierStates are the tiers that checks have asked for. Readers take no lock.
type tierStates struct {
	table *tier.Table
	known atomic.Pointer[map[string]*tierState]
	mu    sync.Mutex // for who replaces known
}

// of returns the state of a tier, "" for none.
func (s *tierStates) of(name string, now time.Time) *tierState {
	if t := (*s.known.Load())[name]; t != nil {
		return t
	}
	return s.refresh(now, name)[name]
}

// refresh learns all tiers in force at once, so that thousands of new ones are not thousands of copies, and
// forgets those that have long been gone. A tier that is given is known afterwards.
func (s *tierStates) refresh(now time.Time, names ...string) map[string]*tierState {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := map[string]*tierState{"": nil}
	var gone []*tierState
	for _, t := range s.table.All() {
		next[t.Name] = nil
	}
	known := *s.known.Load()
	for name, t := range known {
		if _, inForce := next[name]; inForce {
			next[name], t.goneAt = t, time.Time{}
			continue
		}
		if t.goneAt.IsZero() {
			t.goneAt = now
		}
		if now.Sub(t.goneAt) < goneFor {
			gone = append(gone, t)
		}
	}
	slices.SortFunc(gone, func(a, b *tierState) int { return cmp.Or(b.goneAt.Compare(a.goneAt), cmp.Compare(a.name, b.name)) })
	for _, t := range gone[:min(len(gone), maxGone)] {
		next[t.name] = t
	}
	for _, name := range names { // one that has just gone
		if _, found := next[name]; !found {
			next[name] = nil
		}
	}
	for name, t := range next {
		if t == nil {
			next[name] = &tierState{name: name}
		}
	}
	if !maps.Equal(known, next) {
		s.known.Store(&next)
	}
	return next
}
