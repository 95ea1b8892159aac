// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"slices"
	"time"

	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// maxSeenAs is how many subjects SeenAs returns.
const maxSeenAs = 100

// SeenAs returns the subjects and tiers as which a user was checked in the last day, as far as this replica
// remembers them, whatever kind it was: all of them unless there are more users than it has room for. It
// returns 100 at the most, ordered by kind, tenant, route and tier.
func (u *Usage) SeenAs(user string) []adminapi.Seen {
	found := map[adminapi.Seen]bool{}
	see := func(name []byte, t *tierState) {
		if len(user) <= maxPart && int(name[0]) == len(user) && string(name[nameHead:nameHead+len(user)]) == user {
			found[adminapi.Seen{Subject: shown(subjectOf(string(name))), Tier: t.name}] = true
		}
	}
	now := since(u.now().Sub(u.started))
	epoch := u.epoch()
	for i := range u.shards {
		s := &u.shards[i]
		s.Lock()
		for j := range s.sample.users {
			if seen := &s.sample.users[j]; seen.at+day > now {
				see(seen.name, seen.tier)
			}
		}
		for j := range s.parts {
			if s.parts[j].live(epoch) {
				for _, c := range s.parts[j].counters {
					see(c.name, c.tier)
				}
			}
		}
		s.Unlock()
	}
	all := make([]adminapi.Seen, 0, len(found))
	for seen := range found {
		all = append(all, seen)
	}
	slices.SortFunc(all, func(a, b adminapi.Seen) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Route, b.Route), cmp.Compare(a.Tier, b.Tier))
	})
	return all[:min(len(all), maxSeenAs)]
}

// epoch is the stretch of time that is counted now.
func (u *Usage) epoch() int64 { return int64(u.now().Sub(u.started) / partLength) }

// sampled is a user of a tier's sample.
type sampled struct {
	hash    uint64
	subject limiter.Subject
}

// seenBy returns the sample of the users whom a tier has seen in the last day, with so many zero bits in
// front of each hash, and no more users than asked for.
func (u *Usage) seenBy(name string, most int) (users []sampled, zeros uint8) {
	t := (*u.tiers.known.Load())[name]
	if t == nil {
		return nil, 0
	}
	now := since(u.now().Sub(u.started))
	for i := range u.shards {
		s := &u.shards[i]
		s.Lock()
		zeros = max(zeros, t.thin[i].told)
		for j := range s.sample.users {
			if seen := &s.sample.users[j]; seen.tier == t && seen.at+day > now {
				users = append(users, sampled{seen.hash, subjectOf(string(seen.name))})
			}
		}
		s.Unlock()
	}
	thin := func() {
		users = slices.DeleteFunc(users, func(s sampled) bool { return zerosOf(s.hash) < zeros })
	}
	for thin(); len(users) > most; thin() {
		zeros++
	}
	return users, zeros
}

// crowd is how many users a tier has seen in the last day, and how many of them it has rejected, or would
// have.
type crowd struct{ seen, rejected float64 }

// crowds estimates the crowds of all tiers that have been asked for.
func (u *Usage) crowds() map[string]crowd {
	now := since(u.now().Sub(u.started))
	known := *u.tiers.known.Load()
	zeros := make(map[*tierState]uint8, len(known))
	for i := range u.shards {
		u.shards[i].Lock()
		for _, t := range u.shards[i].sample.tiers {
			zeros[t] = max(zeros[t], t.thin[i].told)
		}
		u.shards[i].Unlock()
	}
	counted := make(map[*tierState]crowd, len(zeros))
	for i := range u.shards {
		u.shards[i].Lock()
		for j := range u.shards[i].sample.users {
			seen := &u.shards[i].sample.users[j]
			if seen.at+day <= now || zerosOf(seen.hash) < zeros[seen.tier] {
				continue
			}
			c := counted[seen.tier]
			c.seen++
			if seen.rejectedAt > 0 && seen.rejectedAt+day > now {
				c.rejected++
			}
			counted[seen.tier] = c
		}
		u.shards[i].Unlock()
	}
	crowds := make(map[string]crowd, len(known))
	for t, c := range counted {
		if known[t.name] == t {
			each := float64(uint64(1) << zeros[t])
			crowds[t.name] = crowd{c.seen * each, c.rejected * each}
		}
	}
	return crowds
}

// sinceWhen is the start of what is known of the users of a day.
func (u *Usage) sinceWhen(now time.Time) time.Time {
	if start := now.Add(-day * time.Second); start.After(u.started) {
		return start
	}
	return u.started
}
