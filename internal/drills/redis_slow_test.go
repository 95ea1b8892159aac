// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package drills

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
	"github.com/tierlimit/tierlimit/internal/redistest"
)

// TestRedisSlow delays the replies of Redis, in the end beyond what a check waits for.
func TestRedisSlow(t *testing.T) {
	t.Parallel()
	const perDay, timeout = 600, 2 * time.Second
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	api := shared.installed(t)
	api.apply(t, newTier("slow-closed", v1alpha1.FailClosed, 0, perDay), newTier("slow-open", v1alpha1.FailOpen, 0, perDay))
	replicas := api.start(t, 2, proxy.URL(), "--redis-timeout", timeout.String())
	inForce(t, replicas, "slow-closed", "slow-open")
	b := newBalancer(t, replicas...)
	queries := []string{"tier=slow-closed&user=slow-closed", "tier=slow-open&user=slow-open"}

	var all answers
	for _, delay := range []time.Duration{0, 30 * time.Millisecond, 300 * time.Millisecond} {
		proxy.Delay(delay)
		time.Sleep(delay)
		l := b.begin(t, 8, 50*time.Millisecond, queries...)
		time.Sleep(2 * time.Second)
		phase := l.end()
		phase.answered(t)
		phase.allDecided(t)
		phase.none(t, "answered before Redis can have", func(a answer) bool { return a.took() < delay })
		note(t, "Redis %v late: half of the checks within %v; %v", delay, round(phase.median()), phase)
		all = append(all, phase...)
	}

	proxy.Delay(3 * timeout)
	late := time.Now()
	l := b.begin(t, 8, 50*time.Millisecond, queries...)
	// The first checks wait for Redis, until it counts as away.
	for _, p := range replicas {
		eventually(t, "checks are answered without waiting", func() bool {
			return len(l.all(func(a answer) bool { return a.replica == p && !a.decided() && a.took() < timeout/4 })) > 20
		})
	}
	healed := time.Now()
	proxy.Delay(0)
	for _, p := range replicas {
		eventually(t, "Redis decides again", func() bool {
			return len(l.all(func(a answer) bool { return a.replica == p && a.sent.After(healed) && a.decided() })) > 0
		})
	}
	again := time.Now()
	eventually(t, "the budgets are spent", func() bool {
		rejected := l.all(func(a answer) bool { return a.status == 429 })
		return len(rejected.of("slow-closed")) > 0 && len(rejected.of("slow-open")) > 0
	})
	phase := l.end()
	phase.answered(t)
	phase.of("slow-closed").none(t, "FailClosed, neither decided nor 503", func(a answer) bool { return !a.decided() && a.status != 503 })
	phase.of("slow-open").none(t, "FailOpen, neither decided nor let pass", func(a answer) bool { return !a.decided() && a.status != 200 })
	all = append(all, phase...)
	all.spent(t, server.Client, "slow-closed", perDay)
	all.spent(t, server.Client, "slow-open", perDay)
	without := phase.during(late, healed)
	note(t, "Redis %v late, --redis-timeout %v: half of the checks within %v; %v", 3*timeout, timeout, round(without.median()), without)
	note(t, "all replicas had Redis decide again %v after it was quick", round(again.Sub(healed)))
}
