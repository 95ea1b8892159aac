// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"math/bits"
	"slices"
	"strconv"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

// MergeTop puts together what replicas have answered, the heaviest users first, limit of them at the most. A
// user of several replicas is one for each tier. Whom a replica has not
// named it adds nothing to: ask each for many more users than are wanted.
func MergeTop(tops []adminapi.Top, limit int) adminapi.Top {
	merged := adminapi.Top{Replicas: []string{}, By: ByUsed, Users: []adminapi.TopUser{}}
	var users []adminapi.TopUser
	for _, top := range tops {
		merged.Replicas = append(merged.Replicas, top.Replicas...)
		merged.By = top.By
		merged.WindowSeconds = max(merged.WindowSeconds, top.WindowSeconds)
		users = append(users, top.Users...)
	}
	merged.Replicas = distinct(merged.Replicas)
	users = mergeUsers(users, merged.By)
	merged.Users = append(merged.Users, users[:min(len(users), max(limit, 0))]...)
	return merged
}

// mergeUsers adds up the numbers of each user and orders them.
func mergeUsers(users []adminapi.TopUser, by string) []adminapi.TopUser {
	order := heavier(by)
	at := map[adminapi.Seen]int{}
	var merged []adminapi.TopUser
	for _, u := range users {
		user := adminapi.Seen{Subject: u.Subject, Tier: u.Tier}
		i, found := at[user]
		if !found {
			at[user] = len(merged)
			merged = append(merged, u)
			continue
		}
		m := &merged[i]
		m.Used += u.Used
		m.UsedError += u.UsedError
		m.Rejected += u.Rejected
		m.RejectedError += u.RejectedError
	}
	slices.SortFunc(merged, order)
	return merged
}

// MergeDecisions puts together what replicas have answered. Now is the latest of their times, and StartedAt
// the earliest. A tier's mode is that of the first replica that has it in force, and its kill switch is
// shown if it is engaged at any.
func MergeDecisions(all []adminapi.Decisions) adminapi.Decisions {
	merged := adminapi.Decisions{Replicas: []string{}, Tiers: []adminapi.TierDecisions{}}
	at := map[string]int{}
	for _, d := range all {
		merged.Replicas = append(merged.Replicas, d.Replicas...)
		if d.Now.After(merged.Now) {
			merged.Now = d.Now
		}
		if merged.StartedAt.IsZero() || d.StartedAt.Before(merged.StartedAt) {
			merged.StartedAt = d.StartedAt
		}
		for _, t := range d.Tiers {
			i, found := at[t.Tier]
			if !found {
				i = len(merged.Tiers)
				at[t.Tier] = i
				merged.Tiers = append(merged.Tiers, adminapi.TierDecisions{Tier: t.Tier, Outcomes: map[string]int64{}})
			}
			m := &merged.Tiers[i]
			m.Mode = cmp.Or(m.Mode, t.Mode)
			m.KillSwitch = cmp.Or(m.KillSwitch, t.KillSwitch)
			for outcome, n := range t.Outcomes {
				m.Outcomes[outcome] += n
			}
			m.Users = append(m.Users, t.Users...)
		}
	}
	merged.Replicas = distinct(merged.Replicas)
	for i := range merged.Tiers {
		merged.Tiers[i].Users = firstRejected(mergeUsers(merged.Tiers[i].Users, ByRejected))
	}
	sortTiers(merged.Tiers)
	return merged
}

// MergeSimulations puts together what replicas have answered about the same tier and the same limits. A user
// of several replicas is one, as the last one has read it. Where samples differ, the smallest counts.
func MergeSimulations(all []adminapi.Simulation) adminapi.Simulation {
	merged := adminapi.Simulation{Replicas: []string{}, Limits: []adminapi.Limit{}, SampledOneIn: 1, Users: []adminapi.SimulatedUser{}}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b adminapi.Simulation) int { return b.Now.Compare(a.Now) })
	for i, s := range all {
		merged.Replicas = append(merged.Replicas, s.Replicas...)
		merged.SampledOneIn = max(merged.SampledOneIn, s.SampledOneIn)
		merged.TooLong = max(merged.TooLong, s.TooLong)
		if s.Since.After(merged.Since) {
			merged.Since = s.Since
		}
		if i == 0 {
			merged.Tier, merged.Limits, merged.Now, merged.KnownSeconds = s.Tier, s.Limits, s.Now, s.KnownSeconds
		}
		merged.KnownSeconds = min(merged.KnownSeconds, s.KnownSeconds)
	}
	merged.Replicas = distinct(merged.Replicas)
	zeros := bits.Len64(uint64(merged.SampledOneIn)) - 1 //nolint:gosec // G115: at least 1
	seen := map[string]bool{}
	for _, s := range all {
		for _, u := range s.Users {
			hash, err := strconv.ParseUint(u.ID, 16, 64)
			if err != nil || bits.LeadingZeros64(hash) < zeros || seen[u.ID] {
				continue
			}
			seen[u.ID] = true
			merged.Users = append(merged.Users, u)
		}
	}
	sortSimulated(merged.Users)
	return merged
}

// sortSimulated puts users with the most rejected requests first.
func sortSimulated(users []adminapi.SimulatedUser) {
	slices.SortFunc(users, func(a, b adminapi.SimulatedUser) int {
		return cmp.Or(cmp.Compare(b.Rejected, a.Rejected), cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.ID, b.ID))
	})
}

// distinct orders names and leaves out those that are there twice.
func distinct(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}
