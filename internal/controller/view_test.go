// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
)

// TestStatusOfSeveralReplicas says what the status of generation 3, number 7, is by what other replicas
// have answered.
func TestStatusOfSeveralReplicas(t *testing.T) {
	has := func(name string) other { return other{endpoint: endpoint{pod: name}, asked: 7} }
	lacks := func(name string) other {
		o := has(name)
		o.lacking = map[types.UID]bool{"uid": true}
		return o
	}
	unasked := func(name string) other { return other{endpoint: endpoint{pod: name}, asked: 6} }
	with := func(o other, change func(*other)) other { change(&o); return o }
	silent := func(o *other) { o.failures = 1 }
	stopping := func(o *other) { o.stopping = true }
	off := func(o *other) { o.disabled = true }
	engaged := []func(*v1alpha1.RateLimitTierSpec){killSwitch("Redis migration", nil)}
	inForce := "True InForce: " + inForceNow.Message

	for name, tc := range map[string]struct {
		reason           string
		others           []other
		disabled         bool
		unreadable       string
		spec             []func(*v1alpha1.RateLimitTierSpec)
		before           metav1.Condition // Enforcing, of generation 2
		ready, enforcing string
		counts           [2]int32
	}{
		"All": {reason: "every replica has it", others: []other{has("b"), has("c")}, ready: inForce, counts: [2]int32{3, 3}},
		"Lacks": {reason: "one has an earlier generation", others: []other{has("b"), lacks("c")},
			ready: "False RollingOut: 2 of 3 replicas answer checks by this spec; waiting for c.", counts: [2]int32{2, 3}},
		"Unasked": {reason: "one was not asked about this generation yet", others: []other{has("b"), unasked("c")},
			ready: "False RollingOut: 2 of 3 replicas answer checks by this spec; waiting for c.", counts: [2]int32{2, 3}},
		"Silent": {reason: "nobody knows what it answers by", others: []other{lacks("b"), with(unasked("c"), silent)},
			ready: "False ReplicaUnreachable: 1 of 3 replicas answer checks by this spec; waiting for b; c cannot be asked on port 8081: " +
				"let the Pods of Tierlimit reach each other there (NetworkPolicy), and delete a Pod that hangs.", counts: [2]int32{1, 3}},
		"SilentSince": {reason: "it had this generation before it fell silent", others: []other{with(has("b"), silent)}, ready: inForce, counts: [2]int32{2, 2}},
		"Many": {reason: "a message is no list", others: []other{lacks("f"), lacks("e"), lacks("d"), lacks("c"), lacks("b")},
			ready: "False RollingOut: 1 of 6 replicas answer checks by this spec; waiting for b, c, d and 2 more.", counts: [2]int32{1, 6}},
		"Stopping": {reason: "it still answers checks, by an earlier spec", others: []other{has("b"), with(lacks("c"), stopping)},
			ready: "False RollingOut: 2 of 2 replicas answer checks by this spec; waiting for c to stop.", counts: [2]int32{2, 2}},
		"StoppingHasIt": {reason: "it does not count any more", others: []other{has("b"), with(has("c"), stopping)}, ready: inForce, counts: [2]int32{2, 2}},
		"Disabled": {reason: "one lets everything pass", others: []other{has("b"), with(has("c"), off)}, ready: inForce, counts: [2]int32{3, 3},
			enforcing: "False GloballyDisabled: RATE_LIMIT_DISABLED is set on 1 of 3 replicas: every request of every tier that they answer passes. Unset it to limit again."},
		"AllDisabled": {reason: "all do", others: []other{with(has("b"), off)}, disabled: true, ready: inForce, counts: [2]int32{2, 2}, enforcing: "False GloballyDisabled: " + disabled.Message},
		"DisabledAndKilled": {reason: "the kill switch does it on every replica", others: []other{with(has("b"), off)}, spec: engaged, ready: inForce, counts: [2]int32{2, 2},
			enforcing: "False KillSwitchEngaged: " + killed.Message},
		"AllDisabledAndKilled": {reason: "releasing one is not enough", others: []other{with(has("b"), off)}, disabled: true, spec: engaged, ready: inForce, counts: [2]int32{2, 2},
			enforcing: "False GloballyDisabled: " + disabled.Message + " " + killed.Message},
		"DisabledStopping": {reason: "it does not count any more", others: []other{with(with(has("b"), off), stopping)}, ready: inForce, counts: [2]int32{1, 1}},
		"Releasing": {reason: "one still lets everything pass by the earlier spec", others: []other{lacks("b")}, before: killed, counts: [2]int32{1, 2},
			ready: "False RollingOut: 1 of 2 replicas answer checks by this spec; waiting for b.", enforcing: "False KillSwitchEngaged: " + notYetMessage},
		"Released": {reason: "none does any more", others: []other{has("b")}, before: killed, ready: inForce, counts: [2]int32{2, 2}},
		"Unreadable": {reason: "nobody knows which replicas there are", unreadable: "ns/tierlimit", counts: [2]int32{-1, -1},
			ready: "Unknown ReplicasUnknown: At least one replica answers checks by this spec. Which others there are is not known, because the EndpointSlices of Service ns/tierlimit cannot be read: " +
				"let Tierlimit's service account list and watch endpointslices in that namespace (config/rbac)."},
	} {
		t.Run(name, func(t *testing.T) {
			o := object("free", tc.spec...)
			o.UID, o.Generation = "uid", 3
			if tc.before.Type != "" {
				o.Status = statusOf(2, inForceNow, tc.before)
			}
			compiled, err := Compile(o)
			if err != nil {
				t.Fatal(err)
			}
			v := view{port: "8081", replicas: 1, others: tc.others, unreadable: tc.unreadable}
			for i := range tc.others {
				if !tc.others[i].stopping {
					v.replicas++
				}
			}
			v.countDisabled(tc.disabled)
			p := v.progress(o.UID, 7)
			got := statusFor(o, outcome{inForce: compiled}, &v, &p, time.Now())
			if tc.enforcing == "" {
				tc.enforcing = "True Enforcing: " + enforces.Message
			}
			want := []string{tc.ready, tc.enforcing}
			if diff := cmp.Diff(want, []string{words(got.Conditions[0]), words(got.Conditions[1])}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			counts := [2]int32{-1, -1}
			if got.Replicas != nil && got.UpdatedReplicas != nil {
				counts = [2]int32{*got.UpdatedReplicas, *got.Replicas}
			}
			if counts != tc.counts {
				t.Errorf("%s: %v replicas, want %v", tc.reason, counts, tc.counts)
			}
		})
	}
}

func words(c metav1.Condition) string { return string(c.Status) + " " + c.Reason + ": " + c.Message }

// TestReleasingComesToAnEnd reports twice while a replica lags behind, and then once more.
func TestReleasingComesToAnEnd(t *testing.T) {
	o := object("free")
	o.UID, o.Generation, o.Status = "uid", 3, statusOf(2, inForceNow, killed)
	compiled, err := Compile(o)
	if err != nil {
		t.Fatal(err)
	}
	v := view{replicas: 2, others: []other{{endpoint: endpoint{pod: "b"}}}}
	for i, want := range []string{notYetMessage, notYetMessage, enforces.Message} {
		if i == 2 {
			v.others[0].asked = 7
		}
		p := v.progress(o.UID, 7)
		o.Status = statusFor(o, outcome{inForce: compiled}, &v, &p, time.Now())
		if got := o.Status.Conditions[1].Message; got != want {
			t.Errorf("report %d says %q, want %q", i, got, want)
		}
	}
}

// TestExpiryWaitsForTheLast has a kill switch expire that one replica has in an earlier form, without an
// end: it lets every request pass, and so Enforcing must not be True.
func TestExpiryWaitsForTheLast(t *testing.T) {
	expiresAt := metav1.NewTime(time.Now().Add(time.Hour).Truncate(time.Second))
	o := object("free", killSwitch("Redis migration", &expiresAt))
	o.UID, o.Generation = "uid", 2
	compiled, err := Compile(o)
	if err != nil {
		t.Fatal(err)
	}
	v := view{replicas: 2, others: []other{{endpoint: endpoint{pod: "b"}}}}
	for i, want := range []string{"KillSwitchEngaged", "KillSwitchEngaged", "KillSwitchExpired"} {
		now := expiresAt.Add(time.Duration(i-1) * time.Second)
		if i == 2 {
			v.others[0].asked = 7
		}
		p := v.progress(o.UID, 7)
		o.Status = statusFor(o, outcome{inForce: compiled}, &v, &p, now)
		if got := o.Status.Conditions[1].Reason; got != want {
			t.Errorf("report %d says %s, want %s", i, got, want)
		}
	}
}

func TestMinor(t *testing.T) {
	lags := condition("Ready", metav1.ConditionFalse, "RollingOut", "waiting for b")
	silent := condition("Ready", metav1.ConditionFalse, "ReplicaUnreachable", "b cannot be asked")
	for name, tc := range map[string]struct {
		reason        string
		before, after v1alpha1.RateLimitTierStatus
		want          bool
	}{
		"Replicas":    {"one replica more", with(statusOf(2, inForceNow, enforces), 2, 2), with(statusOf(2, inForceNow, enforces), 3, 3), true},
		"Names":       {"another replica lags", statusOf(2, lags, enforces), statusOf(2, condition("Ready", metav1.ConditionFalse, "RollingOut", "waiting for c"), enforces), true},
		"Why":         {"it has not answered, and then does not", statusOf(2, lags, enforces), statusOf(2, silent, enforces), true},
		"Generation":  {"a new spec", statusOf(1, inForceNow, enforces), statusOf(2, inForceNow, enforces), false},
		"Ready":       {"every replica has it", statusOf(2, lags, enforces), statusOf(2, inForceNow, enforces), false},
		"NotReady":    {"one does not", statusOf(2, inForceNow, enforces), statusOf(2, lags, enforces), false},
		"Disabled":    {"limiting ends", statusOf(2, inForceNow, enforces), statusOf(2, inForceNow, disabled), false},
		"KillExpired": {"limiting ends for another reason", statusOf(2, inForceNow, killed), statusOf(2, inForceNow, disabled), false},
		"New":         {"nothing was said yet", v1alpha1.RateLimitTierStatus{}, statusOf(1, inForceNow, enforces), false},
	} {
		if got := minor(tc.before, tc.after); got != tc.want {
			t.Errorf("%s: minor is %v, want %v: %s", name, got, tc.want, tc.reason)
		}
	}
}
