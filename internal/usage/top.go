// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"slices"
	"time"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

// What Top can go by.
const (
	ByUsed     = "used"
	ByRejected = "rejected"
)

// Top returns the heaviest users of the last minute, by requests that have passed (ByUsed) or that were
// rejected, or would have been (ByRejected), of one tier or of all (""). A user of two tiers is two. It returns limit of them at
// the most, and those of whom such a request is known for certain.
//
// The minute is 55 to 60 seconds long. Each number may be too high by its error at the most, which is 0 if
// every shard had 128 users or fewer in each 5 seconds. Whoever has more such requests than 1/128 of all
// requests of its shard in the minute, which are about 1/2,048 of all, is among the users.
func (u *Usage) Top(by, tier string, limit int) adminapi.Top {
	users := slices.DeleteFunc(u.heaviest(), func(user adminapi.TopUser) bool {
		return tier != "" && user.Tier != tier || certain(user, by) == 0
	})
	slices.SortFunc(users, heavier(by))
	return adminapi.Top{
		Replicas:      []string{u.options.Replica},
		By:            by,
		WindowSeconds: int64(window / time.Second),
		Users:         users[:min(len(users), max(limit, 0))],
	}
}

// certain is how many requests of a user are known for certain.
func certain(u adminapi.TopUser, by string) int64 {
	if by == ByRejected {
		return u.Rejected - u.RejectedError
	}
	return u.Used - u.UsedError
}

// heavier orders users by what is known for certain, since errors would put users of whom nothing is known
// before others.
func heavier(by string) func(a, b adminapi.TopUser) int {
	other := ByRejected
	if by == ByRejected {
		other = ByUsed
	}
	return func(a, b adminapi.TopUser) int {
		return cmp.Or(
			cmp.Compare(certain(b, by), certain(a, by)),
			cmp.Compare(certain(b, other), certain(a, other)),
			cmp.Compare(a.User, b.User), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Route, b.Route), cmp.Compare(a.Tier, b.Tier))
	}
}

// live returns whether a part counts in the last minute.
func (p *part) live(epoch int64) bool { return p.epoch >= 0 && p.epoch > epoch-parts }

// heavy is a user in several parts.
type heavy struct {
	used, over, prior int64
	missed            int64 // of the parts in which the user is counted
}

// userOf is a user of a tier.
type userOf struct {
	name string
	tier *tierState
}

// heaviest returns all users that are counted, with their errors.
func (u *Usage) heaviest() []adminapi.TopUser {
	var all []adminapi.TopUser
	epoch := u.epoch()
	var counters []counter
	var letters []byte
	for i := range u.shards {
		users := map[userOf]*heavy{}
		missed := int64(0)
		for j := range parts {
			var p part
			counters, letters, p = u.shards[i].snapshot(j, counters[:0], letters[:0])
			if !p.live(epoch) {
				continue
			}
			missed += int64(p.missed)
			for _, c := range counters {
				user := userOf{string(c.name), c.tier}
				h := users[user]
				if h == nil {
					h = &heavy{}
					users[user] = h
				}
				h.used += int64(c.used)
				h.over += int64(c.over)
				h.prior += int64(c.prior)
				h.missed += int64(p.missed)
			}
		}
		for user, h := range users {
			possible := h.prior + missed - h.missed // before it was counted, and where it is not
			all = append(all, adminapi.TopUser{Subject: shown(subjectOf(user.name)), Tier: user.tier.name,
				Used: h.used + possible, UsedError: possible, Rejected: h.over + possible, RejectedError: possible})
		}
	}
	return all
}

// snapshot copies what a part has counted, with the names in one piece, so that checks wait for no more
// than that.
func (s *shard) snapshot(j int64, counters []counter, letters []byte) ([]counter, []byte, part) {
	s.Lock()
	defer s.Unlock()
	p := &s.parts[j]
	for _, c := range p.counters {
		letters = append(letters, c.name...)
	}
	rest := letters
	for _, c := range p.counters {
		n := len(c.name)
		c.name, rest = rest[:n:n], rest[n:]
		counters = append(counters, c)
	}
	return counters, letters, part{epoch: p.epoch, missed: p.missed}
}
