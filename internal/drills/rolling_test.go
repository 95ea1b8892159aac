// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package drills

import (
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// TestRollingRestart replaces three replicas one after the other, as a Deployment with maxUnavailable 0 does,
// under load. The load balancing learns of the end of each as late as it may: when its preStop sleep is over.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	const small, wide = 30, 1200
	server := redistest.Start(t)
	api := shared.installed(t)
	api.apply(t, newTier("rolling-small", "", small, 100_000), newTier("rolling-wide", "", wide, 100_000))
	old := api.start(t, 3, server.URL(), patient)
	inForce(t, old, "rolling-small", "rolling-wide")
	b := newBalancer(t, old...)
	users := map[string]int{"small-a": small, "small-b": small, "wide": wide}
	l := b.begin(t, 8, 30*time.Millisecond, "tier=rolling-wide&user=wide", "tier=rolling-small&user=small-a",
		"tier=rolling-wide&user=wide", "tier=rolling-small&user=small-b")
	time.Sleep(time.Second)
	begin := time.Now()
	for _, p := range old {
		successor := api.start(t, 1, server.URL(), patient)[0]
		b.add(successor)
		time.Sleep(2 * time.Second) // the preStop sleep; 5 seconds in config/manager
		b.remove(p)
		p.Terminate()
		if err := p.Wait(); err != nil {
			t.Errorf("a replica ended with %v", err)
		}
	}
	replaced := time.Now()
	eventually(t, "all budgets are spent", func() bool {
		rejected := l.all(func(a answer) bool { return a.status == 429 })
		return len(rejected.of("wide")) > 0 && len(rejected.of("small-a")) > 0 && len(rejected.of("small-b")) > 0
	})
	all := l.end()

	all.answered(t)
	all.allDecided(t)
	for user, perMinute := range users {
		admitted := all.of(user).admitted()
		if most := admitted.mostIn(minute); most > perMinute || len(admitted) < perMinute {
			t.Errorf("%s: %d admitted in a minute and %d over all, want %d a minute", user, most, len(admitted), perMinute)
		}
		if n := entries(t, server.Client, user, day); n != len(admitted) {
			t.Errorf("%s: %d admitted, Redis remembers %d", user, len(admitted), n)
		}
	}
	note(t, "3 replicas replaced in %v: %v", round(replaced.Sub(begin)), all.during(begin, replaced))
	note(t, "admitted over all: %d of %d a minute, %d and %d of %d a minute, as many as Redis remembers", len(all.of("wide").admitted()), wide,
		len(all.of("small-a").admitted()), len(all.of("small-b").admitted()), small)
}

// TestTermination sends SIGTERM to a replica in the middle of a burst, of which nobody has been told. Its
// clients even go on opening new connections to it when they are asked to close one. Redis is slow, so that
// many checks are in flight.
func TestTermination(t *testing.T) {
	t.Parallel()
	const perDay = 800
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	proxy.Delay(150 * time.Millisecond)
	api := shared.installed(t)
	api.apply(t, newTier("termination", "", 0, perDay))
	replicas := api.start(t, 2, proxy.URL(), patient)
	inForce(t, replicas, "termination")
	l := &load{t: t, balancer: newBalancer(t, replicas...), stubborn: true}
	l.begin(30, time.Millisecond, "tier=termination&user=u")
	eventually(t, "the burst has begun", func() bool { return len(l.all(answer.admitted)) > 100 })
	terminated := time.Now()
	replicas[0].Terminate()
	if err := replicas[0].Wait(); err != nil {
		t.Errorf("the replica ended with %v", err)
	}
	ended := time.Now()
	eventually(t, "the budget is spent", func() bool { return len(l.all(func(a answer) bool { return a.status == 429 })) > 0 })
	all := l.end()

	all.none(t, "checks that were sent and not answered", func(a answer) bool {
		return a.err != nil && !errors.Is(a.err, errRefused) && !errors.Is(a.err, errNeverTaken)
	})
	all.all(func(a answer) bool { return a.err == nil }).allDecided(t)
	admitted := len(all.admitted())
	if n := entries(t, server.Client, "u", day); n != perDay || admitted != perDay {
		t.Errorf("%d admitted, Redis remembers %d; the budget is %d", admitted, n, perDay)
	}
	of := all.by(replicas[0]).during(terminated, time.Now())
	// Whether anybody still asks it when it refuses is up to how soon the load balancing notices.
	if len(of.admitted()) == 0 {
		t.Errorf("after SIGTERM: %v; want some answered", of)
	}
	note(t, "SIGTERM in a burst of 30 clients, replies of Redis 150 ms late: it ended after %v; checks it was sent meanwhile: %v", round(ended.Sub(terminated)), of)
	note(t, "admitted over all: %d of %d, as many as Redis remembers", admitted, perDay)
}
