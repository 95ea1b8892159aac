// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package drills

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
	"github.com/tierlimit/tierlimit/internal/redistest"
)

// TestRedisDown kills Redis under checks of three tiers, one for each failurePolicy, and brings it back
// with what it had on disk.
func TestRedisDown(t *testing.T) {
	t.Parallel()
	const perDay = 300
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always") // what it has answered it remembers
	api := shared.installed(t)
	api.apply(t, newTier("down-closed", v1alpha1.FailClosed, 0, perDay),
		newTier("down-local", v1alpha1.FailLocal, 0, perDay),
		newTier("down-open", v1alpha1.FailOpen, 0, perDay))
	users := []string{"closed", "local", "open"}
	replicas := api.start(t, 2, server.URL(), "--replicas", "2")
	inForce(t, replicas, "down-closed", "down-local", "down-open")
	l := newBalancer(t, replicas...).begin(t, 6, 40*time.Millisecond,
		"tier=down-closed&user=closed", "tier=down-local&user=local", "tier=down-open&user=open")
	eventually(t, "a part of each budget is spent", func() bool {
		admitted := l.all(answer.admitted)
		return len(admitted.of("closed")) > 50 && len(admitted.of("local")) > 50 && len(admitted.of("open")) > 50
	})

	server.Stop()
	stopped := time.Now()
	share := func(status int) func(answer) bool {
		return func(a answer) bool { return a.status == status && a.enforcement() == "local" }
	}
	eventually(t, "both replicas have spent their shares", func() bool {
		rejected := l.all(share(429))
		return len(rejected.by(replicas[0])) > 0 && len(rejected.by(replicas[1])) > 0
	})
	restarting := time.Now()
	server.Restart()
	for _, p := range replicas {
		eventually(t, "Redis decides again", func() bool {
			return len(l.all(func(a answer) bool { return a.replica == p && a.sent.After(restarting) && a.decided() })) > 0
		})
	}
	again := time.Now()
	eventually(t, "all budgets are spent", func() bool {
		rejected := l.all(func(a answer) bool { return a.status == 429 && a.decided() })
		return len(rejected.of("closed")) > 0 && len(rejected.of("local")) > 0 && len(rejected.of("open")) > 0
	})
	all := l.end()

	all.answered(t)
	away := all.during(stopped, restarting)
	away.of("closed").none(t, "FailClosed, not a 503", func(a answer) bool { return a.status != 503 })
	away.of("local").none(t, "FailLocal, not by the share", func(a answer) bool { return a.enforcement() != "local" })
	away.of("open").none(t, "FailOpen, not let pass", func(a answer) bool { return a.status != 200 || a.enforcement() != "failed-open" })
	for _, p := range replicas {
		if n := len(all.by(p).all(share(200))); n != perDay/2 {
			t.Errorf("a replica admitted %d by its share, want %d", n, perDay/2)
		}
	}
	for _, user := range users {
		all.spent(t, server.Client, user, perDay)
	}
	note(t, "Redis killed for %v, 2 replicas, budgets of %d a day, of which Redis remembered a part: FailClosed %v", round(restarting.Sub(stopped)), perDay, away.of("closed"))
	note(t, "FailLocal %v", away.of("local"))
	note(t, "FailOpen %v", away.of("open"))
	note(t, "all replicas had Redis decide again %v after it was started; by then and until the budgets were spent: %v",
		round(again.Sub(restarting)), all.during(restarting, time.Now()))
}
