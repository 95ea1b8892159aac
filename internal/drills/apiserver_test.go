// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package drills

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
	"github.com/tierlimit/tierlimit/internal/redistest"
)

// TestAPIServerAway takes the API server away for a minute. Others run meanwhile.
func TestAPIServerAway(t *testing.T) {
	t.Parallel()
	const perMinute = 120
	own := newInstallation(t)
	server := redistest.Start(t)
	own.apply(t, newTier("free", "", perMinute, 0))
	replicas := own.start(t, 2, server.URL(), patient)
	b := newBalancer(t, replicas...)
	expiry := time.Now().Add(40 * time.Second).Truncate(time.Second)
	switched := newTier("switched", "", perMinute, 0)
	switched.Spec.KillSwitch = &v1alpha1.KillSwitch{Engaged: ptr.To(true), Reason: "drill", ExpiresAt: ptr.To(metav1.NewTime(expiry))}
	own.apply(t, switched)
	for _, p := range replicas {
		eventually(t, "both tiers are in force", func() bool {
			return ask(t, p, "tier=switched&user=probe").enforcement() == "disabled" && ask(t, p, "tier=free&user=probe").decided()
		})
	}

	l := b.begin(t, 5, 40*time.Millisecond, "tier=free&user=a", "tier=free&user=b", "tier=switched&user=s")
	own.cluster.StopAPIServer(t)
	stopped := time.Now()
	time.Sleep(time.Minute)
	if !expiry.After(stopped) || !expiry.Before(time.Now()) {
		t.Errorf("the kill switch expired at %s and not while the API server was away, from %s on", expiry, stopped)
	}
	own.cluster.StartAPIServer(t)
	back := time.Now()
	own.patch(t, "free", fmt.Sprintf(`{"spec":{"requests":{"perMinute":%d}}}`, perMinute+1))
	took := eventually(t, "a change after the outage is in force on all replicas", func() bool {
		for _, p := range replicas {
			if ask(t, p, "tier=free&user=probe").header.Get("X-RateLimit-Limit") != fmt.Sprint(perMinute+1) {
				return false
			}
		}
		return true
	})
	all := l.end()

	all.answered(t)
	all.none(t, "checks with another status", func(a answer) bool { return a.status != 200 && a.status != 429 })
	if n := b.unready.Load(); n > 0 {
		t.Errorf("a replica was not ready %d times", n)
	}
	for _, user := range []string{"a", "b"} {
		all.of(user).allDecided(t)
		// The change raised the limit by one.
		if most := all.of(user).admitted().mostIn(minute); most < perMinute || most > perMinute+1 {
			t.Errorf("%s: %d admitted in a minute, want %d", user, most, perMinute)
		}
	}
	all.of("s").none(t, "rejected or charged before the kill switch expired", func(a answer) bool {
		return a.received.Before(expiry) && a.enforcement() != "disabled"
	})
	all.of("s").none(t, "let pass after the kill switch had expired", func(a answer) bool {
		return !a.sent.Before(expiry) && a.enforcement() == "disabled"
	})
	note(t, "API server away for %v, 2 replicas: %v", round(back.Sub(stopped)), all.during(stopped, back))
	note(t, "the last check without limits was sent %v before the kill switch expired, the first with limits was answered %v after",
		round(expiry.Sub(last(all.of("s").all(func(a answer) bool { return a.enforcement() == "disabled" })).sent)),
		round(all.of("s").all(answer.decided)[0].received.Sub(expiry)))
	note(t, "a change made when it was back was in force on both replicas %v later", round(took))
}

func last(all answers) answer { return all[len(all)-1] }
