// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
	"github.com/tierlimit/tierlimit/internal/tier"
)

// statusOf returns a status of a generation with these reasons and messages.
func statusOf(generation int64, ready, enforcing metav1.Condition) v1alpha1.RateLimitTierStatus {
	ready.ObservedGeneration, enforcing.ObservedGeneration = generation, generation
	return v1alpha1.RateLimitTierStatus{ObservedGeneration: ptr.To(generation), Conditions: []metav1.Condition{ready, enforcing}}
}

// with returns a status with these numbers of replicas.
func with(s v1alpha1.RateLimitTierStatus, updated, replicas int32) v1alpha1.RateLimitTierStatus {
	s.Replicas, s.UpdatedReplicas = &replicas, &updated
	return s
}

var (
	inForceNow = condition("Ready", metav1.ConditionTrue, "InForce", "Checks are answered by this spec: 5 requests a minute for each user.")
	enforces   = condition("Enforcing", metav1.ConditionTrue, "Enforcing", "Requests over the budget are rejected.")
	dryRun     = condition("Enforcing", metav1.ConditionFalse, "DryRun", "mode is DryRun: requests over the budget are counted and pass.")
	disabled   = condition("Enforcing", metav1.ConditionFalse, "GloballyDisabled", "RATE_LIMIT_DISABLED is set: every request of every tier passes. Unset it to limit again.")
	killed     = condition("Enforcing", metav1.ConditionFalse, "KillSwitchEngaged", "The kill switch is engaged: every request of this tier passes. Reason: Redis migration. It does not expire: remove spec.killSwitch to limit again.")
	expired    = condition("Enforcing", metav1.ConditionTrue, "KillSwitchExpired", "The kill switch has expired at 2026-12-01T06:00:00Z (spec.killSwitch.expiresAt) and does nothing: requests over the budget are rejected.")
	notInForce = condition("Enforcing", metav1.ConditionFalse, "NotInForce", "Checks for this tier fall back to the default tier.")
	invalid    = condition("Ready", metav1.ConditionFalse, "Invalid", "The spec cannot be used: spec.mode is bad. The last good one stays in force.")
	neverGood  = condition("Ready", metav1.ConditionFalse, "Invalid", "The spec cannot be used: spec.mode is bad.")
)

func TestStatusFor(t *testing.T) {
	now := time.Date(2026, 12, 1, 6, 0, 0, 0, time.UTC)
	at := metav1.NewTime(now)
	bad := errors.New("spec.mode is bad")
	until := killed
	until.Message = strings.Replace(killed.Message, "It does not expire: remove spec.killSwitch to limit again.", "Limiting comes back by itself at 2026-12-01T06:00:00Z (spec.killSwitch.expiresAt).", 1)
	killedLastGood := condition("Enforcing", metav1.ConditionFalse, "KillSwitchEngaged", "The kill switch is engaged: every request of this tier passes. "+
		"Limiting comes back by itself at "+at.UTC().Format(time.RFC3339)+" (spec.killSwitch.expiresAt). It is that of the last good spec: mend the spec to change it.")
	for name, tc := range map[string]struct {
		reason   string
		spec     []func(*v1alpha1.RateLimitTierSpec)
		lastGood *tier.Tier
		invalid  error
		disabled bool
		now      time.Time
		want     v1alpha1.RateLimitTierStatus
	}{
		"Plain":            {reason: "a tier limits", want: statusOf(3, inForceNow, enforces)},
		"DryRun":           {reason: "nobody is rejected", spec: []func(*v1alpha1.RateLimitTierSpec){mode(v1alpha1.ModeDryRun)}, want: statusOf(3, inForceNow, dryRun)},
		"KillSwitch":       {reason: "and why", spec: []func(*v1alpha1.RateLimitTierSpec){killSwitch("Redis migration.", nil)}, want: statusOf(3, inForceNow, killed)},
		"BeforeExpiry":     {reason: "a moment before", spec: []func(*v1alpha1.RateLimitTierSpec){killSwitch("Redis migration", &at)}, now: now.Add(-1), want: statusOf(3, inForceNow, until)},
		"AtExpiry":         {reason: "to the second", spec: []func(*v1alpha1.RateLimitTierSpec){killSwitch("Redis migration", &at)}, now: now, want: statusOf(3, inForceNow, expired)},
		"GloballyDisabled": {reason: "goes before everything", disabled: true, invalid: bad, want: statusOf(3, neverGood, disabled)},
		"Invalid":          {reason: "the last good one limits", invalid: bad, lastGood: &tier.Tier{Name: "free"}, want: statusOf(3, invalid, enforces)},
		"InvalidDryRun":    {reason: "it is the last good one's mode that counts", invalid: bad, lastGood: &tier.Tier{Name: "free", DryRun: true}, want: statusOf(3, invalid, dryRun)},
		"InvalidKilled": {reason: "the kill switch is the last good one's, whatever the spec says now", invalid: bad, lastGood: &tier.Tier{Name: "free", KillSwitch: tier.KillSwitch{Engaged: true, ExpiresAt: at.Time}},
			spec: []func(*v1alpha1.RateLimitTierSpec){killSwitch("Another reason", nil)}, now: now.Add(-1), want: statusOf(3, invalid, killedLastGood)},
		"NeverGood": {reason: "checks go elsewhere", invalid: bad, want: statusOf(3, neverGood, notInForce)},
	} {
		t.Run(name, func(t *testing.T) {
			o := object("free", tc.spec...)
			o.Generation = 3
			out := outcome{inForce: tc.lastGood, invalid: tc.invalid}
			if tc.invalid == nil {
				var err error
				if out.inForce, err = Compile(o); err != nil {
					t.Fatal(err)
				}
			}
			v, p := alone(), progress{}
			v.countDisabled(tc.disabled)
			if tc.invalid == nil {
				p.updated = 1
			}
			got := statusFor(o, out, &v, &p, tc.now)
			if diff := cmp.Diff(with(tc.want, int32(p.updated), 1), got, cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestNoticeFor(t *testing.T) {
	otherReason := killed
	otherReason.Message = "Another."
	lags := condition("Ready", metav1.ConditionFalse, "RollingOut", "2 of 3 replicas answer checks by this spec; waiting for c.")
	killedStill := condition("Enforcing", metav1.ConditionFalse, "KillSwitchEngaged", notYetMessage)
	moreDisabled := disabled
	moreDisabled.Message = "Another."
	none := v1alpha1.RateLimitTierStatus{}
	for name, tc := range map[string]struct {
		reason        string
		before, after v1alpha1.RateLimitTierStatus
		want          *notice
		announced     int64
	}{
		"New":          {"a new tier is in force", none, statusOf(1, inForceNow, enforces), &notice{"Normal", "InForce", "Publish", inForceNow.Message}, 0},
		"Changed":      {"a new spec is in force", statusOf(1, inForceNow, enforces), statusOf(2, inForceNow, enforces), &notice{"Normal", "InForce", "Publish", inForceNow.Message}, 0},
		"Unchanged":    {"nothing happened", statusOf(2, inForceNow, enforces), statusOf(2, inForceNow, enforces), nil, 0},
		"Engaged":      {"limiting ends", statusOf(1, inForceNow, enforces), statusOf(2, inForceNow, killed), &notice{"Warning", "KillSwitchEngaged", "StopEnforcing", killed.Message}, 0},
		"OtherReason":  {"the reason shows in an Event", statusOf(1, inForceNow, killed), statusOf(2, inForceNow, otherReason), &notice{"Warning", "KillSwitchEngaged", "StopEnforcing", "Another."}, 0},
		"Released":     {"limiting is back", statusOf(2, inForceNow, killed), statusOf(3, inForceNow, enforces), &notice{"Normal", "Enforcing", "Enforce", enforces.Message + " " + inForceNow.Message}, 0},
		"Expired":      {"limiting is back, of the same generation", statusOf(2, inForceNow, killed), statusOf(2, inForceNow, expired), &notice{"Normal", "KillSwitchExpired", "Enforce", expired.Message + " " + inForceNow.Message}, 0},
		"TooLate":      {"somebody believes that limiting is off", statusOf(1, inForceNow, enforces), statusOf(2, inForceNow, expired), &notice{"Warning", "KillSwitchExpired", "Enforce", expired.Message}, 0},
		"NewTooLate":   {"from the start", none, statusOf(1, inForceNow, expired), &notice{"Warning", "KillSwitchExpired", "Enforce", expired.Message}, 0},
		"LongExpired":  {"once is enough", statusOf(2, inForceNow, expired), statusOf(3, inForceNow, expired), &notice{"Normal", "InForce", "Publish", inForceNow.Message}, 0},
		"DryRun":       {"chosen calmly", none, statusOf(1, inForceNow, dryRun), &notice{"Normal", "DryRun", "StopEnforcing", dryRun.Message}, 0},
		"StillDryRun":  {"a new budget to try out", statusOf(1, inForceNow, dryRun), statusOf(2, inForceNow, dryRun), &notice{"Normal", "InForce", "Publish", inForceNow.Message}, 0},
		"Disabled":     {"somebody has to act", statusOf(1, inForceNow, enforces), statusOf(1, inForceNow, disabled), &notice{"Warning", "GloballyDisabled", "StopEnforcing", disabled.Message}, 0},
		"Invalid":      {"the last good one stays", statusOf(1, inForceNow, enforces), statusOf(2, invalid, enforces), &notice{"Warning", "Invalid", "KeepLastGood", invalid.Message}, 0},
		"StillInvalid": {"once is enough", statusOf(2, invalid, enforces), with(statusOf(2, invalid, enforces), 0, 4), nil, 0},
		"NeverGood":    {"what is wrong matters more than what follows", none, statusOf(1, neverGood, notInForce), &notice{"Warning", "Invalid", "KeepLastGood", neverGood.Message}, 0},
		"Engaging":     {"a replica lags, and limiting ends", statusOf(1, inForceNow, enforces), statusOf(2, lags, killed), &notice{"Warning", "KillSwitchEngaged", "StopEnforcing", killed.Message}, 1},
		"AllEngaged":   {"now on every replica", statusOf(2, lags, killed), statusOf(2, inForceNow, killed), &notice{"Normal", "InForce", "Publish", inForceNow.Message}, 1},
		"Releasing":    {"not before every replica limits", statusOf(2, inForceNow, killed), statusOf(3, lags, killedStill), nil, 2},
		"AllReleased":  {"now every replica does", statusOf(3, lags, killedStill), statusOf(3, inForceNow, enforces), &notice{"Normal", "Enforcing", "Enforce", enforces.Message + " " + inForceNow.Message}, 2},
		"RollingOut":   {"it takes moments", statusOf(1, inForceNow, enforces), statusOf(2, lags, enforces), nil, 1},
		"RolledOut":    {"a new spec is in force", statusOf(2, lags, enforces), statusOf(2, inForceNow, enforces), &notice{"Normal", "InForce", "Publish", inForceNow.Message}, 1},
		"NewReplica":   {"it has what was in force before", statusOf(2, lags, enforces), statusOf(2, inForceNow, enforces), nil, 2},
		"MoreDisabled": {"one replica more is no news", statusOf(2, inForceNow, disabled), statusOf(2, inForceNow, moreDisabled), nil, 2},
		"BothSwitches": {"the kill switch is engaged too", statusOf(1, inForceNow, disabled), statusOf(2, inForceNow, moreDisabled), &notice{"Warning", "GloballyDisabled", "StopEnforcing", moreDisabled.Message}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, noticeFor(tc.before, tc.after, tc.announced), cmp.AllowUnexported(notice{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestReportedByAnother(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		stored v1alpha1.RateLimitTierStatus
		want   bool
	}{
		"Overwritten":   {"another replica says something else", statusOf(2, inForceNow, disabled), true},
		"NewGeneration": {"nobody has reported the new spec yet", statusOf(1, inForceNow, disabled), false},
		"Emptied":       {"somebody has removed the conditions", v1alpha1.RateLimitTierStatus{ObservedGeneration: ptr.To[int64](2)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := object("free")
			o.Generation, o.Status = 2, tc.stored
			if got := reportedByAnother(o); got != tc.want {
				t.Errorf("it is %v, want %v: %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestSameConditions(t *testing.T) {
	later := statusOf(2, inForceNow, enforces)
	later.Conditions[0].LastTransitionTime = metav1.Now()
	swapped := statusOf(2, enforces, inForceNow)
	for name, tc := range map[string]struct {
		reason string
		other  v1alpha1.RateLimitTierStatus
		want   bool
	}{
		"Since":      {"since when does not matter", later, true},
		"Order":      {"nor does the order", swapped, true},
		"Generation": {"another spec", statusOf(3, inForceNow, enforces), false},
		"Reason":     {"another condition", statusOf(2, inForceNow, dryRun), false},
		"Missing":    {"one condition less", v1alpha1.RateLimitTierStatus{ObservedGeneration: ptr.To[int64](2), Conditions: later.Conditions[:1]}, false},
	} {
		if got := saysTheSame(statusOf(2, inForceNow, enforces), tc.other); got != tc.want {
			t.Errorf("%s: same is %v, want %v: %s", name, got, tc.want, tc.reason)
		}
	}
}
