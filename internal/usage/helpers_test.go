// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// clock is a time that only tests move.
type clock struct{ now time.Time }

func (c *clock) time() time.Time         { return c.now }
func (c *clock) advance(d time.Duration) { c.now = c.now.Add(d) }
func newClock() *clock                   { return &clock{now: time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)} }
func budget(name string, perMinute, perDay int64) *tier.Tier {
	return &tier.Tier{Name: name, Limits: []limiter.Limit{{Requests: perMinute, Window: tier.Minute}, {Requests: perDay, Window: tier.Day}}}
}

// newUsage returns a Usage with a clock and tiers of these names.
func newUsage(t testing.TB, names ...string) (*Usage, *clock, *tier.Table) {
	t.Helper()
	var table tier.Table
	var tiers []*tier.Tier
	for _, name := range names {
		tiers = append(tiers, budget(name, 5, 100))
	}
	table.Replace(tiers)
	c := newClock()
	return newAt(Options{Tiers: &table, Replica: "a", HashKey: []byte("secret")}, c.time), c, &table
}

// check records a check of a user by a tier.
func (c *clock) check(u *Usage, user, tier, outcome string) {
	u.Record(webhookserver.Decided{At: c.now, Subject: limiter.Subject{User: user}, Tier: tier, Outcome: outcome})
}
