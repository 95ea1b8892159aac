// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// idsOf are the users of a tier's sample by the hash that replicas have in common.
func idsOf(u *Usage, tier string, most int) ([]uint64, uint8) {
	users, zeros := u.seenBy(tier, most)
	var ids []uint64
	for _, s := range users {
		ids = append(ids, s.hash)
	}
	slices.Sort(ids)
	return ids, zeros
}

// TestSampleIsCompleteBelowItsCapacity asks for every user by name.
func TestSampleIsCompleteBelowItsCapacity(t *testing.T) {
	u, c, _ := newUsage(t, "free", "pro")
	const users = 17_000
	for i := range users {
		c.check(u, fmt.Sprint(i), "free", "admitted")
		c.check(u, fmt.Sprint(i), []string{"free", "pro"}[i%2], "admitted")
	}
	for tier, want := range map[string]int{"free": users, "pro": users / 2, "gold": 0} {
		if ids, zeros := idsOf(u, tier, math.MaxInt); len(ids) != want || zeros != 0 {
			t.Errorf("%s: %d users, one in 2^%d, want all %d", tier, len(ids), zeros, want)
		}
	}
	if ids, zeros := idsOf(u, "free", 8192); len(ids) > 8192 || len(ids) < 4096 || zeros != 2 {
		t.Errorf("of %d users %d are looked at, one in 2^%d", users, len(ids), zeros)
	}
}

// TestSampleIsUniform has many more users than there is room for beside a small tier, and two replicas that
// see them in another order and in another number: both have the same users where both have seen them.
func TestSampleIsUniform(t *testing.T) {
	const users, few = 300_000, 500
	fill := func(from int) (*Usage, *clock) {
		u, c, _ := newUsage(t, "free", "pro")
		for i := range few {
			c.check(u, fmt.Sprint("pro-", i), "pro", "admitted")
		}
		for i := range users {
			outcome := "admitted"
			if i%4 == 0 {
				outcome = "dry_run_rejected"
			}
			c.check(u, fmt.Sprint((i*7+from)%users), "free", outcome)
		}
		return u, c
	}
	u, _ := fill(0)
	crowds := u.crowds()
	if got := crowds["pro"]; got.seen != few || got.rejected != 0 {
		t.Errorf("a small tier has %+v, want all %d", got, few)
	}
	for what, is := range map[string]float64{"seen": crowds["free"].seen / users, "rejected": crowds["free"].rejected / (users / 4)} {
		if is < 0.9 || is > 1.1 { // about 9,000 users are in the sample: the standard error is 1 or 2 %
			t.Errorf("%s users are estimated as %.3f times what they are", what, is)
		}
	}
	size := 0
	for i := range u.shards {
		size += len(u.shards[i].sample.users)
		if n := len(u.shards[i].sample.users); n > sampleUsers {
			t.Errorf("a shard keeps %d users", n)
		}
	}
	if size < shards*sampleUsers/4 {
		t.Errorf("%d users are kept, of %d for whom there is room", size, shards*sampleUsers)
	}
	other, _ := fill(1234)
	ids, zeros := idsOf(u, "free", math.MaxInt)
	others, othersZeros := idsOf(other, "free", math.MaxInt)
	coarsest := max(zeros, othersZeros)
	aligned := func(ids []uint64) []uint64 {
		return slices.DeleteFunc(slices.Clone(ids), func(id uint64) bool { return zerosOf(id) < coarsest })
	}
	if zeros < 3 || zeros > 5 || !slices.Equal(aligned(ids), aligned(others)) {
		t.Errorf("replicas have sampled %d and %d users, one in 2^%d and 2^%d, and not the same", len(ids), len(others), zeros, othersZeros)
	}
}

// TestUnknownKey has a client who knows the hash without the key, and chooses names that would be in each sample.
func TestUnknownKey(t *testing.T) {
	u, c, _ := newUsage(t, "free")
	guess, _, _ := newUsage(t, "free")
	guess.hasher = newHasher(nil)
	chosen := 0
	for i := range 400_000 {
		user := fmt.Sprint(i)
		if name := append([]byte{byte(len(user)), 0, 0, 0}, user...); zerosOf(guess.hasher.sum(name)) >= 3 {
			c.check(u, user, "free", "admitted")
			chosen++
		}
	}
	if got := u.crowds()["free"].seen / float64(chosen); got < 0.9 || got > 1.1 {
		t.Errorf("%d users are estimated as %.3f times as many", chosen, got)
	}
}

// TestSampleForgets lets days pass: users are forgotten, and after a flood the sample is complete again.
func TestSampleForgets(t *testing.T) {
	u, c, _ := newUsage(t, "free", "pro")
	c.check(u, "alice", "free", "rejected")
	c.advance(23 * time.Hour)
	c.check(u, "alice", "free", "admitted")
	if got := u.crowds()["free"]; got != (crowd{1, 1}) {
		t.Errorf("after 23 hours: %+v", got)
	}
	c.advance(2 * time.Hour)
	if got := u.crowds()["free"]; got != (crowd{1, 0}) {
		t.Errorf("the rejection is more than a day ago: %+v", got)
	}
	for i := range 200_000 {
		c.check(u, fmt.Sprint(i), "free", "admitted")
	}
	if _, zeros := idsOf(u, "free", math.MaxInt); zeros < 2 {
		t.Fatalf("a flood of users is sampled one in 2^%d", zeros)
	}
	c.advance(24 * time.Hour)
	if got := u.crowds()["free"]; got.seen != 0 {
		t.Errorf("a day later: %+v", got)
	}
	const users = 1000
	for range 60 { // hours of few users
		for i := range users {
			c.check(u, fmt.Sprint("u", i), "free", "admitted")
		}
		c.advance(time.Hour)
	}
	if ids, zeros := idsOf(u, "free", math.MaxInt); len(ids) != users || zeros != 0 {
		t.Errorf("days later: %d users, one in 2^%d, want all %d", len(ids), zeros, users)
	}
	c.advance(3 * 24 * time.Hour)
	for range 26 {
		for i := range users {
			c.check(u, fmt.Sprint("p", i), "pro", "admitted")
		}
		c.advance(time.Hour)
	}
	for i := range u.shards {
		if n := len(u.shards[i].sample.tiers); n != 1 {
			t.Fatalf("a shard still has %d tiers, want pro alone", n)
		}
	}
}

// TestSampleIsToldSafely lowers the threshold after a flood: until a day has passed the sample is spoken of as it
// was, because users have been left out.
func TestSampleIsToldSafely(t *testing.T) {
	u, c, _ := newUsage(t, "free", "pro")
	for i := range 200_000 {
		c.check(u, fmt.Sprint(i), "free", "admitted")
	}
	c.advance(23 * time.Hour)
	const stay, come = 4000, 2000
	for i := range stay {
		c.check(u, fmt.Sprint(i), "free", "admitted")
	}
	want := stay
	for hour := range 6 {
		c.advance(time.Hour)
		for i := range 300 { // whom every shard sees, so that it tidies up
			c.check(u, fmt.Sprint("pro-", i), "pro", "admitted")
		}
		if hour == 3 {
			for i := range come {
				c.check(u, fmt.Sprint("new-", i), "free", "admitted")
			}
			want += come
		}
		if got := u.crowds()["free"].seen / float64(want); hour > 1 && (got < 0.7 || got > 1.3) {
			t.Errorf("%d hours after: %d users are estimated as %.2f times as many", hour, want, got)
		}
	}
}

// TestManyTiers has more tiers than a shard has room for users.
func TestManyTiers(t *testing.T) {
	names := make([]string, 5000)
	for i := range names {
		names[i] = fmt.Sprintf("tier-%04d", i)
	}
	u, c, _ := newUsage(t, names...)
	for user := range 20 {
		for _, name := range names {
			c.check(u, fmt.Sprint(name, user), name, "admitted")
		}
	}
	sum := 0.0
	for _, crowd := range u.crowds() {
		sum += crowd.seen
	}
	if want := float64(20 * len(names)); sum < want*0.9 || sum > want*1.1 {
		t.Errorf("%.0f users of tiers, want about %.0f", sum, want)
	}
}

// TestUserMetrics reads what is scraped.
func TestUserMetrics(t *testing.T) {
	u, c, _ := newUsage(t, "free", "trial", "unused")
	for _, check := range []struct{ user, tier, outcome string }{
		{"alice", "free", "admitted"}, {"alice", "free", "rejected"}, {"alice", "free", "rejected"}, {"bob", "free", "admitted"},
		{"carol", "trial", "dry_run_rejected"}, {"dave", "trial", "admitted"}, {"erin", "trial", "failed_open"}, {"frank", "gone", "admitted"},
	} {
		c.check(u, check.user, check.tier, check.outcome)
	}
	u.Record(webhookserver.Decided{At: c.now, Subject: limiter.Subject{User: "bob"}, Tier: "free", Outcome: "rejected", Upstream: true})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(u)
	want := `
# HELP tierlimit_rejected_users Users of a tier among tierlimit_seen_users of whom it has rejected at least one request in that time, or would have (mode DryRun).
# TYPE tierlimit_rejected_users gauge
tierlimit_rejected_users{tier="free"} 1
tierlimit_rejected_users{tier="trial"} 1
tierlimit_rejected_users{tier="unused"} 0
# HELP tierlimit_seen_users Users of a tier that this replica has seen in the last day, or since it started: distinct ones, estimated where they are too many to be kept.
# TYPE tierlimit_seen_users gauge
tierlimit_seen_users{tier="free"} 2
tierlimit_seen_users{tier="trial"} 3
tierlimit_seen_users{tier="unused"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

// TestTiersThatComeAndGo creates a tier, checks a user by it and deletes it, again and again: what is kept of
// tiers that are gone is bounded.
func TestTiersThatComeAndGo(t *testing.T) {
	u, c, table := newUsage(t, "free")
	for i := range 20_000 {
		name := fmt.Sprint("tier-", i)
		table.Replace([]*tier.Tier{budget("free", 5, 100), budget(name, 5, 100)})
		c.check(u, fmt.Sprint("user-", i), name, "admitted")
		if i%100 == 0 {
			c.now = c.now.Add(time.Minute)
		}
	}
	c.now = c.now.Add(2 * time.Hour)
	for i := range 1000 { // so that each shard tidies up
		c.check(u, fmt.Sprint(i), "free", "admitted")
	}
	listed := map[*tierState]bool{}
	for i := range u.shards {
		for _, t := range u.shards[i].sample.tiers {
			listed[t] = true
		}
		for _, user := range u.shards[i].sample.users {
			listed[user.tier] = true
		}
	}
	if most := maxGone + 2; len(listed) > most || len(*u.tiers.known.Load()) > most+1 {
		t.Errorf("%d tiers are kept in samples and %d are known, want %d at the most", len(listed), len(*u.tiers.known.Load()), most)
	}
}
