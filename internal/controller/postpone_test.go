// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
)

func TestPostpone(t *testing.T) {
	now := time.Date(2026, 12, 1, 6, 0, 0, 0, time.UTC)
	lags := condition("Ready", metav1.ConditionFalse, "RollingOut", "2 of 3 replicas answer checks by this spec; waiting for c.")
	three, four := with(statusOf(2, inForceNow, enforces), 3, 3), with(statusOf(2, inForceNow, enforces), 4, 4)
	for name, tc := range map[string]struct {
		reason        string
		before, after v1alpha1.RateLimitTierStatus
		last          lastReport
		rested        time.Duration // numbers of replicas
		busy          bool          // with the statuses of other tiers
		old           bool          // the same as was written before
		want          time.Duration
	}{
		"InForce":     {reason: "every replica has it", before: statusOf(1, inForceNow, enforces), after: three},
		"InGrace":     {reason: "others are about to have it", before: statusOf(1, inForceNow, enforces), after: statusOf(2, lags, enforces), last: lastReport{behindSince: now.Add(-grace / 4)}, want: grace * 3 / 4},
		"AfterGrace":  {reason: "one does take its time", before: statusOf(1, inForceNow, enforces), after: statusOf(2, lags, enforces), last: lastReport{behindSince: now.Add(-grace)}},
		"Number":      {reason: "the number of replicas changes again soon", before: three, after: four, rested: time.Second, want: settleTime - time.Second},
		"NumberRests": {reason: "it does not", before: three, after: four, rested: settleTime},
		"Many":        {reason: "other tiers were written just now", before: three, after: four, rested: settleTime, busy: true, want: minorPause},
		"JustWritten": {reason: "a message does not follow every step", before: statusOf(2, lags, enforces), after: statusOf(2, condition("Ready", metav1.ConditionFalse, "ReplicaUnreachable", "c cannot be asked"), enforces),
			last: lastReport{written: now.Add(-time.Second)}, rested: time.Hour, want: settleTime - time.Second},
		"Overwritten":      {reason: "another is of another opinion", before: statusOf(2, inForceNow, disabled), after: three, old: true, want: firstPatience},
		"NumberOverwrites": {reason: "two installations count different replicas", before: three, after: four, rested: settleTime, old: true, want: firstPatience},
		"FalseReady":       {reason: "somebody waits for it", before: three, after: with(statusOf(2, lags, enforces), 3, 2), last: lastReport{behindSince: now.Add(-grace)}, old: true},
		"FalseEnforcing":   {reason: "another does not know that limits are off", before: three, after: with(statusOf(2, inForceNow, disabled), 3, 3), old: true},
		"NewSpec":          {reason: "nobody has reported it", before: statusOf(1, inForceNow, disabled), after: three, old: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := object("free")
			o.Generation, o.Status = 2, tc.before
			tc.last.patience = firstPatience
			r := &Reconciler{minors: newMinors()}
			if tc.busy {
				r.minors.AllowN(now, minorsAtOnce)
			}
			v := view{restsSince: now.Add(-tc.rested)}
			if got := r.postpone(o, &tc.after, &tc.last, &v, now, !tc.old); got != tc.want {
				t.Errorf("it waits %v, want %v: %s", got, tc.want, tc.reason)
			}
		})
	}
}
