// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/google/uuid"
)

// shortMember is the largest limit whose log has short members.
const shortMember = 1_000

// members makes the sorted-set members, one per request. Members are most of a log's memory, so
// they are short: a counter of 40 bits in 5 bytes where no limit is above shortMember, else of 64
// bits in 8, which take no more there. Counted up from a random start they are unique within a
// process. Those of two processes meet only if their ranges overlap, and then it matters only if one
// user has both in a window: for a full log of 1,000 that is one request in 10^9, which is then
// admitted and not charged. They are never taken from anything that a client sends: a client that
// could choose its member would be admitted for free for ever.
type members struct {
	next atomic.Uint64
}

func newMembers() *members {
	var m members
	random := uuid.New()
	// Those bits of a version 4 UUID (RFC 9562, section 5.4) that are not all random are left out.
	m.next.Store(binary.BigEndian.Uint64(append(random[:6:6], random[14:]...)))
	return &m
}

// make returns the member for a request of these budgets.
func (m *members) make(budgets []Budget) string {
	var counter [8]byte
	binary.BigEndian.PutUint64(counter[:], m.next.Add(1))
	for _, b := range budgets {
		for _, l := range b.Limits {
			if l.Requests > shortMember {
				return string(counter[:])
			}
		}
	}
	return string(counter[3:])
}
