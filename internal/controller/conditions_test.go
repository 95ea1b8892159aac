// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
)

func TestConditions(t *testing.T) {
	later := metav1.NewTime(time.Now().Add(time.Hour).Truncate(time.Second))
	past := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	for name, tc := range map[string]struct {
		reason   string
		disabled bool
		spec     []func(*v1alpha1.RateLimitTierSpec)
		want     string
	}{
		"Plain":              {reason: "a tier limits", want: "InForce/Enforcing"},
		"DryRun":             {reason: "in force, and yet nobody is rejected", spec: []func(*v1alpha1.RateLimitTierSpec){mode(v1alpha1.ModeDryRun)}, want: "InForce/DryRun"},
		"KillSwitch":         {reason: "it must not be forgotten", spec: []func(*v1alpha1.RateLimitTierSpec){killSwitch("Redis migration", nil)}, want: "InForce/KillSwitchEngaged"},
		"KillSwitchInDryRun": {reason: "the kill switch matters more", spec: []func(*v1alpha1.RateLimitTierSpec){mode(v1alpha1.ModeDryRun), killSwitch("Redis migration", nil)}, want: "InForce/KillSwitchEngaged"},
		"KillSwitchUntil":    {reason: "it has not expired", spec: []func(*v1alpha1.RateLimitTierSpec){killSwitch("Redis migration", &later)}, want: "InForce/KillSwitchEngaged"},
		"KillSwitchExpired":  {reason: "limiting is back", spec: []func(*v1alpha1.RateLimitTierSpec){killSwitch("Redis migration", &past)}, want: "InForce/KillSwitchExpired"},
		"GloballyDisabled":   {reason: "every request of every tier passes", disabled: true, want: "InForce/GloballyDisabled"},
		"GloballyDisabledAndKillSwitch": {reason: "unsetting one is not enough, the global one is named first", disabled: true,
			spec: []func(*v1alpha1.RateLimitTierSpec){killSwitch("Redis migration", nil)}, want: "InForce/GloballyDisabled"},
	} {
		t.Run(name, func(t *testing.T) {
			startReplicas(t, tc.disabled, tc.disabled)
			c := newClient(t)
			create(t, c, object("free", tc.spec...))
			eventually(t, tc.reason, hasReasons(t, c, "free", tc.want))
			update(t, c, "free", perMinute(6))
			eventually(t, "of the new generation as well", hasReasons(t, c, "free", tc.want))
		})
	}
}

// TestOneEventForEachChange counts what three replicas have to say.
func TestOneEventForEachChange(t *testing.T) {
	replicas := startReplicas(t, false, false, false)
	c := newClient(t)
	off := func(s *v1alpha1.RateLimitTierSpec) { s.KillSwitch = nil }

	create(t, c, object("counted"))
	eventually(t, "created", hasReasons(t, c, "counted", "InForce/Enforcing"))
	for _, change := range []struct {
		spec func(*v1alpha1.RateLimitTierSpec)
		want string
	}{
		{perMinute(6), "InForce/Enforcing"},
		{mode(v1alpha1.ModeDryRun), "InForce/DryRun"},
		{mode(v1alpha1.ModeEnforce), "InForce/Enforcing"},
		{killSwitch("Redis migration", nil), "InForce/KillSwitchEngaged"},
		{killSwitch("Redis migration, second part", nil), "InForce/KillSwitchEngaged"},
		{off, "InForce/Enforcing"},
	} {
		update(t, c, "counted", change.spec)
		eventually(t, "reported", hasReasons(t, c, "counted", change.want))
	}
	eventually(t, "in force", inTables(replicas, "counted", "6 per 1m0s"))
	exactly(t, "counted", map[string]int{
		"Normal InForce":            2, // created, perMinute changed
		"Normal DryRun":             1,
		"Normal Enforcing":          2, // back from DryRun, kill switch off
		"Warning KillSwitchEngaged": 2, // engaged, reason changed
	})
}

// TestExpiry has a kill switch expire. The tables know by themselves, and the condition and one
// Event follow.
func TestExpiry(t *testing.T) {
	replicas := startReplicas(t, false, false, false)
	c := newClient(t)
	expiresAt := metav1.NewTime(time.Now().Add(4 * time.Second).Truncate(time.Second))
	create(t, c, object("expiring", killSwitch("Redis migration", &expiresAt)))
	eventually(t, "engaged", hasReasons(t, c, "expiring", "InForce/KillSwitchEngaged"))
	for i, r := range replicas {
		k := r.table.Lookup("expiring").KillSwitch
		if !k.EngagedAt(expiresAt.Add(-time.Nanosecond)) || k.EngagedAt(expiresAt.Time) {
			t.Errorf("replica %d: %+v does not end at the second %v", i, k, expiresAt)
		}
	}
	eventually(t, "limiting is back", hasReasons(t, c, "expiring", "InForce/KillSwitchExpired"))
	if now := time.Now(); now.Before(expiresAt.Time) {
		t.Errorf("reported at %v that limiting is back, but that is at %v", now, expiresAt)
	}
	exactly(t, "expiring", map[string]int{"Warning KillSwitchEngaged": 1, "Normal KillSwitchExpired": 1})
}

// exactly waits until there are these Events of a tier, and then a second more for one too many.
func exactly(t *testing.T, name string, want map[string]int) {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(restConfig())
	if err != nil {
		t.Fatal(err)
	}
	count := func() (map[string]int, error) {
		list, err := clientset.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		got := map[string]int{}
		for _, event := range list.Items {
			if event.Regarding.Kind != v1alpha1.KindRateLimitTier || event.Regarding.Name != name {
				continue
			}
			n := 1
			if event.Series != nil {
				n = int(event.Series.Count)
			}
			got[event.Type+" "+event.Reason] += n
		}
		return got, nil
	}
	eventually(t, "the Events are there", func() error {
		got, err := count()
		if err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("Events %v, want %v", got, want)
		}
		return err
	})
	time.Sleep(time.Second)
	got, err := count()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Events a second later (-want +got):\n%s", diff)
	}
}
