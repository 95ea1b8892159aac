// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
	"github.com/tierlimit/tierlimit/internal/tier"
)

// outcome is what became of one RateLimitTier: the tier that checks are answered by, if any, and
// why its spec could not be used, if so.
type outcome struct {
	inForce *tier.Tier
	invalid error
}

// engagedAt returns whether a kill switch stops limiting at a moment.
func (o outcome) engagedAt(now time.Time) bool {
	return o.inForce != nil && o.inForce.KillSwitch.EngagedAt(now)
}

// statusFor returns the status that an object should have. Messages are for people and hold no time
// but that of the spec, so that they change only when something has.
func statusFor(object *v1alpha1.RateLimitTier, o outcome, v *view, p *progress, now time.Time) v1alpha1.RateLimitTierStatus {
	status := *object.Status.DeepCopy()
	status.ObservedGeneration = ptr.To(object.Generation)
	status.Replicas, status.UpdatedReplicas = nil, nil
	if v.unreadable == "" {
		status.Replicas, status.UpdatedReplicas = ptr.To(int32(v.replicas)), ptr.To(int32(p.updated)) //nolint:gosec // no Service has so many endpoints
	}
	ready, enforcing := readyCondition(object, o, v, p), enforcingCondition(object, o, v, now)
	if !p.everywhere() {
		enforcing = notYet(object, enforcing)
	}
	for _, condition := range []metav1.Condition{ready, enforcing} {
		condition.ObservedGeneration = object.Generation
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status
}

func readyCondition(object *v1alpha1.RateLimitTier, o outcome, v *view, p *progress) metav1.Condition {
	ready := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionReady, status, reason, message)
	}
	switch {
	case o.invalid != nil:
		message := fmt.Sprintf("The spec cannot be used: %v.", o.invalid)
		if o.inForce != nil {
			message += " The last good one stays in force."
		}
		return ready(metav1.ConditionFalse, v1alpha1.ReasonInvalid, message)
	case v.unreadable != "":
		return ready(metav1.ConditionUnknown, v1alpha1.ReasonReplicasUnknown, "At least one replica answers checks by this spec. Which others there are is not known, because the EndpointSlices of Service "+
			v.unreadable+" cannot be read: let Tierlimit's service account list and watch endpointslices in that namespace (config/rbac).")
	case p.everywhere():
		return ready(metav1.ConditionTrue, v1alpha1.ReasonInForce,
			"Checks are answered by this spec: "+budget(object.Spec.Requests)+" for each user.")
	case len(p.silent) > 0:
		return ready(metav1.ConditionFalse, v1alpha1.ReasonReplicaUnreachable, p.message(v))
	}
	return ready(metav1.ConditionFalse, v1alpha1.ReasonRollingOut, p.message(v))
}

func enforcingCondition(object *v1alpha1.RateLimitTier, o outcome, v *view, now time.Time) metav1.Condition {
	disabled := func(reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionEnforcing, metav1.ConditionFalse, reason, message)
	}
	killed := o.engagedAt(now)
	switch {
	case v.disabled > 0 && v.disabled == v.replicas:
		message := "RATE_LIMIT_DISABLED is set: every request of every tier passes. Unset it to limit again."
		if killed {
			message += " " + killSwitchMessage(object, o)
		}
		return disabled(v1alpha1.ReasonGloballyDisabled, message)
	case o.inForce == nil:
		return disabled(v1alpha1.ReasonNotInForce, "Checks for this tier fall back to the default tier.")
	case killed:
		return disabled(v1alpha1.ReasonKillSwitchEngaged, killSwitchMessage(object, o))
	case v.disabled > 0:
		return disabled(v1alpha1.ReasonGloballyDisabled, fmt.Sprintf(
			"RATE_LIMIT_DISABLED is set on %d of %s: every request of every tier that they answer passes. Unset it to limit again.",
			v.disabled, number(v.replicas, "replica", "replicas")))
	case o.inForce.DryRun:
		return disabled(v1alpha1.ReasonDryRun, "mode is DryRun: requests over the budget are counted and pass.")
	case o.inForce.KillSwitch.Engaged:
		return condition(v1alpha1.ConditionEnforcing, metav1.ConditionTrue, v1alpha1.ReasonKillSwitchExpired,
			"The kill switch has expired at "+o.inForce.KillSwitch.ExpiresAt.UTC().Format(time.RFC3339)+
				" (spec.killSwitch.expiresAt) and does nothing: requests over the budget are rejected.")
	}
	return condition(v1alpha1.ConditionEnforcing, metav1.ConditionTrue, v1alpha1.ReasonEnforcing,
		"Requests over the budget are rejected.")
}

// notYetMessage is why a tier does not count as enforcing although its new spec does.
const notYetMessage = "Not every replica has the new spec yet, as Ready says: some still let requests over the budget pass."

// notYet returns what to say of Enforcing while replicas lag behind: the earlier spec let requests over
// the budget pass, and does so until the last replica has the new one.
func notYet(object *v1alpha1.RateLimitTier, enforcing metav1.Condition) metav1.Condition {
	was := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionEnforcing)
	if was == nil || was.Status != metav1.ConditionFalse || enforcing.Status != metav1.ConditionTrue {
		return enforcing
	}
	return condition(v1alpha1.ConditionEnforcing, metav1.ConditionFalse, was.Reason, notYetMessage)
}

// killSwitchMessage describes the kill switch that is in force, which is that of the last good spec
// where this one cannot be used.
func killSwitchMessage(object *v1alpha1.RateLimitTier, o outcome) string {
	message := "The kill switch is engaged: every request of this tier passes."
	if k := object.Spec.KillSwitch; o.invalid == nil && k != nil && k.Reason != "" {
		message += fmt.Sprintf(" Reason: %s.", strings.TrimSuffix(k.Reason, "."))
	}
	expiry := o.inForce.KillSwitch.ExpiresAt
	if !expiry.IsZero() {
		message += fmt.Sprintf(" Limiting comes back by itself at %s (spec.killSwitch.expiresAt).", expiry.UTC().Format(time.RFC3339))
	}
	if o.invalid != nil {
		return message + " It is that of the last good spec: mend the spec to change it."
	}
	if !expiry.IsZero() {
		return message
	}
	return message + " It does not expire: remove spec.killSwitch to limit again."
}

func condition(conditionType string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message}
}

// budget describes a budget in words: "5 requests a minute and 100 a day".
func budget(b v1alpha1.RequestBudget) string {
	switch {
	case b.PerMinute != nil && b.PerDay != nil:
		return fmt.Sprintf("%d requests a minute and %d a day", *b.PerMinute, *b.PerDay)
	case b.PerMinute != nil:
		return fmt.Sprintf("%d requests a minute", *b.PerMinute)
	case b.PerDay != nil:
		return fmt.Sprintf("%d requests a day", *b.PerDay)
	}
	return "no budget"
}

// notice is an Event to be.
type notice struct {
	eventType, reason, action, message string
}

// noticeFor returns the one Event that a change of status is worth, or nil. What it says is the
// news that matters most: enforcement ending or coming back, then a spec that cannot be used, then
// a new spec in force everywhere, unless it was announced.
func noticeFor(before, after v1alpha1.RateLimitTierStatus, announced int64) *notice {
	was := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionEnforcing)
	is := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionEnforcing)
	wasReady := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionReady)
	ready := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionReady)
	generation := ptr.Deref(after.ObservedGeneration, 0)
	anew := ptr.Deref(before.ObservedGeneration, 0) != generation
	switch {
	// The message of one generation changes only with the number of replicas.
	case is.Status == metav1.ConditionFalse && is.Reason != v1alpha1.ReasonNotInForce && is.Message != notYetMessage &&
		(was == nil || was.Reason != is.Reason || anew && was.Message != is.Message):
		eventType := corev1.EventTypeWarning
		if is.Reason == v1alpha1.ReasonDryRun { // chosen calmly, and nothing to act on
			eventType = corev1.EventTypeNormal
		}
		return &notice{eventType, is.Reason, "StopEnforcing", is.Message}
	case is.Reason == v1alpha1.ReasonKillSwitchExpired && (was == nil || was.Status == metav1.ConditionTrue && was.Reason != is.Reason):
		// It never took effect, although somebody believes that limiting is off.
		return &notice{corev1.EventTypeWarning, is.Reason, "Enforce", is.Message}
	case is.Status == metav1.ConditionTrue && was != nil && was.Status == metav1.ConditionFalse:
		return &notice{corev1.EventTypeNormal, is.Reason, "Enforce", is.Message + " " + ready.Message}
	case ready.Reason == v1alpha1.ReasonInvalid && (wasReady == nil || anew || wasReady.Reason != ready.Reason || wasReady.Message != ready.Message):
		return &notice{corev1.EventTypeWarning, ready.Reason, "KeepLastGood", ready.Message}
	case ready.Status == metav1.ConditionTrue && announced != generation && (anew || !isReady(before)):
		return &notice{corev1.EventTypeNormal, ready.Reason, "Publish", ready.Message}
	}
	return nil
}
