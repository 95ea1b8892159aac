// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"math/bits"
)

const (
	// sampleUsers is how many users the sample of a shard has room for.
	sampleUsers = 2048
	// sampleHeads is the number of lists in which they are looked up.
	sampleHeads = sampleUsers
	// day is how long a user stays in it after the last check, in seconds.
	day = 24 * 60 * 60
	// tidyEvery is how often it is looked whether there is room for more, in seconds.
	tidyEvery = 60 * 60
)

// sample is a uniform sample of the users whom each tier has seen in the last day: adaptive sampling by
// Wegman (Flajolet, "On Adaptive Sampling", 1990). A tier has the users whose hash begins with a
// number of zero bits, at first none. Each time there is no room, the tier with the most users asks for
// one zero bit more, which about half of them do not have. So small tiers stay complete beside large
// ones, and samples of several replicas, made by the same hash, can be put together.
type sample struct {
	users  []seenUser
	heads  [sampleHeads]uint16
	tiers  []*tierState // whose thinning is not that of a tier without users
	tidyAt uint32
	states *tierStates // which tiers are known
}

// seenUser is a user and a tier by which one was checked.
type seenUser struct {
	hash       uint64
	place      uint64
	name       []byte
	tier       *tierState
	at         uint32 // when the last check was; seconds since the start, from 1 on
	rejectedAt uint32 // when the last one was that the tier rejected, or would have; 0 is never
	next       uint16 // with the same head
}

// thinning is how a tier's users are chosen.
type thinning struct {
	listed bool
	users  uint16
	zeros  uint8 // users are kept whose hash begins with so many zero bits
	// told is the same for those whom the sample speaks of. After zeros was lowered it stays for a day,
	// because users have not been kept who were seen before.
	told uint8
	// lowered is when zeros was lowered.
	lowered uint32
}

// sighting is one check of a user. The name goes beside it: what is kept of a struct has the compiler think
// that all of it is, and that would be an allocation for each check.
type sighting struct {
	tier        *tierState
	shard       int
	hash, place uint64
	at          uint32
	rejected    bool
}

func zerosOf(hash uint64) uint8 {
	return uint8(bits.LeadingZeros64(hash)) //nolint:gosec // G115: at most 64
}

// see takes note of a check.
func (s *sample) see(c sighting, name []byte) {
	if c.at >= s.tidyAt {
		s.tidyAt = c.at + tidyEvery
		s.tidy(c.at, c.shard)
	}
	thin := &c.tier.thin[c.shard]
	if zerosOf(c.hash) < thin.zeros {
		return
	}
	u := s.find(c, name)
	if u == nil {
		if len(s.users) == sampleUsers {
			s.makeRoom(c.at, c.shard)
			if zerosOf(c.hash) < thin.zeros || len(s.users) == sampleUsers {
				return
			}
		}
		u = s.add(c, name)
	}
	u.at = max(u.at, c.at)
	if c.rejected {
		u.rejectedAt = max(u.rejectedAt, c.at)
	}
}

func (s *sample) find(c sighting, name []byte) *seenUser {
	for i := s.heads[c.place%sampleHeads]; i != none; i = s.users[i].next {
		if u := &s.users[i]; u.hash == c.hash && u.tier == c.tier && bytes.Equal(u.name, name) {
			return u
		}
	}
	return nil
}

// add makes room for a user and keeps it. What the name of another took before is used again.
func (s *sample) add(c sighting, name []byte) *seenUser {
	n := len(s.users)
	if n < cap(s.users) {
		s.users = s.users[:n+1]
	} else {
		s.users = append(s.users, seenUser{})
	}
	u, head := &s.users[n], &s.heads[c.place%sampleHeads]
	*u = seenUser{hash: c.hash, place: c.place, name: append(u.name[:0], name...), tier: c.tier, next: *head}
	*head = uint16(n) //nolint:gosec // G115: below sampleUsers
	thin := &c.tier.thin[c.shard]
	thin.users++
	if !thin.listed {
		thin.listed = true
		s.tiers = append(s.tiers, c.tier)
	}
	return u
}

// makeRoom forgets users who have not been seen for a day and, if these are not enough, thins out the
// largest tiers, so that an eighth of the room is free, or about that.
func (s *sample) makeRoom(now uint32, shard int) {
	s.sweep(now, shard)
	for round := 0; len(s.users) > sampleUsers*7/8 && round < 64; round++ {
		largest := uint16(0)
		for _, t := range s.tiers {
			largest = max(largest, t.thin[shard].users)
		}
		for _, t := range s.tiers { // all that are about as large, so that thousands of small ones are not thousands of rounds
			if thin := &t.thin[shard]; thin.users > largest/2 && thin.zeros < 64 {
				thin.zeros++
				thin.told = max(thin.told, thin.zeros)
			}
		}
		s.sweep(now, shard)
	}
}

// sweep forgets users who have not been seen for a day or are not chosen any more, and those of tiers that
// are forgotten.
func (s *sample) sweep(now uint32, shard int) {
	kept := 0
	known := *s.states.known.Load()
	for i := range s.users {
		u := &s.users[i]
		thin := &u.tier.thin[shard]
		if u.at+day <= now || zerosOf(u.hash) < thin.zeros || known[u.tier.name] != u.tier {
			thin.users--
			continue
		}
		s.users[kept], s.users[i] = *u, s.users[kept] // names change places, so that none is lost
		kept++
	}
	for i := kept; i < len(s.users); i++ {
		s.users[i].tier = nil
	}
	s.users = s.users[:kept]
	s.index()
}

// index makes the lists in which users are looked up.
func (s *sample) index() {
	for i := range s.heads {
		s.heads[i] = none
	}
	for i := range s.users {
		head := &s.heads[s.users[i].place%sampleHeads]
		s.users[i].next = *head
		*head = uint16(i)
	}
}

// tidy lets tiers keep more users when there is room again, and forgets tiers without any.
func (s *sample) tidy(now uint32, shard int) {
	s.sweep(now, shard)
	known := *s.states.known.Load()
	kept := s.tiers[:0]
	for _, t := range s.tiers {
		thin := &t.thin[shard]
		if thin.zeros < thin.told && thin.lowered+day <= now {
			thin.told = thin.zeros
		}
		if thin.zeros == thin.told {
			share := sampleUsers / 4 / len(s.tiers) // may fill a quarter in all
			for n := int(thin.users); thin.zeros > 0 && 2*n <= share; n *= 2 {
				thin.zeros--
				thin.lowered = now
			}
		}
		if thin.users == 0 && (thin.told == 0 || known[t.name] != t) {
			thin.listed = false
			continue
		}
		kept = append(kept, t)
	}
	clear(s.tiers[len(kept):])
	s.tiers = kept
}
