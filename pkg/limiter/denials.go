// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"
)

// denialSlots bounds how many rejections are remembered: 65,536 of them, of about 150 bytes and the
// names of a subject each, which are not long.
const denialSlots = 1 << 16

// denials remembers who was rejected, so that a caller who asks again at once costs Redis nothing.
// It takes no lock and no more memory than its slots: two subjects that meet in one take turns, and
// who is not remembered is asked about in Redis.
//
// What is remembered holds for the same subject and exactly the same limits. A tier that is changed,
// or left, is therefore looked up in Redis at once; a log that an operator clears, or a Redis that
// loses it, is noticed when the time is over.
type denials struct {
	longest time.Duration // 0 remembers nothing
	seed    maphash.Seed
	slots   []atomic.Pointer[denial]
	now     func() time.Time
}

// denial is one rejection. It is immutable.
type denial struct {
	budget Budget
	limit  Limit
	// until is when to ask Redis again: not later than there is room, so it is counted from the
	// moment of sending.
	until time.Time
	// room is when the client may be told to come back: not sooner than there is room, so it is
	// counted from the moment of the reply.
	room time.Time
}

func newDenials(longest time.Duration) *denials {
	d := &denials{longest: longest, now: time.Now}
	if longest > 0 {
		d.seed, d.slots = maphash.MakeSeed(), make([]atomic.Pointer[denial], denialSlots)
	}
	return d
}

func (d *denials) slot(s Subject) *atomic.Pointer[denial] {
	return &d.slots[maphash.Comparable(d.seed, s)%denialSlots]
}

// long returns whether a subject has a part that is too long to be kept in memory for it.
func (s Subject) long() bool {
	return len(s.User) > maxKeyPart || len(s.Tenant) > maxKeyPart || len(s.Route) > maxKeyPart
}

// remember takes note of a rejection, which was asked for at the moment sent.
func (d *denials) remember(b Budget, rejection Decision, sent time.Time) {
	if d.longest == 0 || b.Subject.long() {
		return
	}
	d.slot(b.Subject).Store(&denial{
		budget: b,
		limit:  rejection.Limit,
		until:  sent.Add(min(rejection.Wait, d.longest)),
		room:   d.now().Add(rejection.Wait),
	})
}

// recall returns the rejection of the first budget that is known to be full.
func (d *denials) recall(budgets []Budget) (Decision, bool) {
	if d.longest == 0 {
		return Decision{}, false
	}
	var now time.Time
	for i, b := range budgets {
		known := d.slot(b.Subject).Load()
		if known == nil || known.budget.Subject != b.Subject || !slices.Equal(known.budget.Limits, b.Limits) {
			continue
		}
		if now.IsZero() {
			now = d.now()
		}
		if now.Before(known.until) {
			wait := known.room.Sub(now).Microseconds() + 1 // what is cut off would be too short
			rejection := rejected(wait)
			rejection.Limit, rejection.Budget, rejection.Remembered = known.limit, i, true
			return rejection, true
		}
	}
	return Decision{}, false
}

// forget forgets what is remembered of a subject.
func (d *denials) forget(s Subject) {
	if d.longest == 0 {
		return
	}
	slot := d.slot(s)
	if known := slot.Load(); known != nil && known.budget.Subject == s {
		slot.CompareAndSwap(known, nil)
	}
}
