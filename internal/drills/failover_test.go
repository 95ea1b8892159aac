// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package drills

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
	"github.com/tierlimit/tierlimit/internal/redistest"
)

// TestRedisFailover kills the primary of three servers that Sentinels watch, under load, and lets it come
// back as a replica.
func TestRedisFailover(t *testing.T) {
	t.Parallel()
	const before, perDay = 50, 1000
	sentinel := redistest.StartSentinel(t)
	api := shared.installed(t)
	api.apply(t, newTier("failover-before", v1alpha1.FailClosed, 0, before), newTier("failover", v1alpha1.FailClosed, 0, perDay))
	replicas := api.start(t, 2, sentinel.URL())
	inForce(t, replicas, "failover-before", "failover")
	b := newBalancer(t, replicas...)
	l := b.begin(t, 4, 10*time.Millisecond, "tier=failover-before&user=before")
	eventually(t, "a budget is spent", func() bool { return len(l.all(func(a answer) bool { return a.status == 429 })) > 0 })
	if n := len(l.end().admitted()); n != before {
		t.Errorf("before the failover %d were admitted, want %d", n, before)
	}
	sentinel.WaitReplicated()

	l = b.begin(t, 8, 20*time.Millisecond, "tier=failover-before&user=before", "tier=failover&user=during")
	time.Sleep(time.Second)
	killed := time.Now()
	sentinel.KillPrimary()
	dead := time.Now()
	sentinel.WaitFailover()
	replaced := time.Now()
	for _, p := range replicas {
		eventually(t, "Redis decides again", func() bool {
			return len(l.all(func(a answer) bool { return a.replica == p && a.sent.After(dead) && a.decided() && !remembered(a) })) > 0
		})
	}
	again := time.Now()
	sentinel.RestartKilled()
	eventually(t, "the other budget is spent", func() bool {
		return len(l.all(func(a answer) bool { return a.status == 429 }).of("during")) > 0
	})
	all := l.end()

	all.answered(t)
	all.none(t, "neither decided nor 503", func(a answer) bool { return !a.decided() && a.status != 503 })
	all.of("before").none(t, "admitted although its budget was spent and replicated", answer.admitted)
	client := sentinel.PrimaryClient()
	if n := entries(t, client, "before", day); n != before {
		t.Errorf("the new primary remembers %d, want %d", n, before)
	}
	admitted, undecided := len(all.of("during").admitted()), len(all.of("during").all(func(a answer) bool { return !a.decided() }))
	if n := entries(t, client, "during", day); n != perDay || admitted+undecided < perDay {
		t.Errorf("%d admitted, %d undecided, the new primary remembers %d; the budget is %d", admitted, undecided, n, perDay)
	}
	note(t, "primary killed, 2 replicas, down-after-milliseconds 1000: Sentinel had replaced it after %v; all replicas had answers of Redis again after %v",
		round(replaced.Sub(killed)), round(again.Sub(killed)))
	note(t, "in between: %v", all.during(dead, again))
	note(t, "admitted beyond the budget of %d, because the old primary had not replicated them: %d", perDay, max(0, admitted-perDay))
}

// remembered returns whether an answer may come from the replica's memory of rejections.
func remembered(a answer) bool { return a.status == 429 }
