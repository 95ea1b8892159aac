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

// statusFor returns the status that an object should have. Messages are for people and hold no
// time, so that they change only when something has.
func statusFor(object *v1alpha1.RateLimitTier, o outcome, globallyDisabled bool, now time.Time) v1alpha1.RateLimitTierStatus {
	status := *object.Status.DeepCopy()
	status.ObservedGeneration = ptr.To(object.Generation)
	for _, condition := range []metav1.Condition{
		readyCondition(object, o),
		enforcingCondition(object, o, globallyDisabled, now),
	} {
		condition.ObservedGeneration = object.Generation
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status
}

func readyCondition(object *v1alpha1.RateLimitTier, o outcome) metav1.Condition {
	if o.invalid != nil {
		message := fmt.Sprintf("The spec cannot be used: %v.", o.invalid)
		if o.inForce != nil {
			message += " The last good one stays in force."
		}
		return condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInvalid, message)
	}
	return condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonInForce,
		"Checks are answered by this spec: "+budget(object.Spec.Requests)+" for each user.")
}

func enforcingCondition(object *v1alpha1.RateLimitTier, o outcome, globallyDisabled bool, now time.Time) metav1.Condition {
	disabled := func(reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionEnforcing, metav1.ConditionFalse, reason, message)
	}
	switch {
	case globallyDisabled:
		return disabled(v1alpha1.ReasonGloballyDisabled,
			"RATE_LIMIT_DISABLED is set: every request of every tier passes. Unset it to limit again.")
	case o.inForce == nil:
		return disabled(v1alpha1.ReasonNotInForce, "Checks for this tier fall back to the default tier.")
	case o.inForce.KillSwitch.EngagedAt(now):
		return disabled(v1alpha1.ReasonKillSwitchEngaged, killSwitchMessage(object.Spec.KillSwitch))
	case o.inForce.DryRun:
		return disabled(v1alpha1.ReasonDryRun, "mode is DryRun: requests over the budget are counted and pass.")
	case o.inForce.KillSwitch.Engaged:
		return condition(v1alpha1.ConditionEnforcing, metav1.ConditionTrue, v1alpha1.ReasonKillSwitchExpired,
			"The kill switch has expired (spec.killSwitch.expiresAt) and does nothing: requests over the budget are rejected.")
	}
	return condition(v1alpha1.ConditionEnforcing, metav1.ConditionTrue, v1alpha1.ReasonEnforcing,
		"Requests over the budget are rejected.")
}

func killSwitchMessage(killSwitch *v1alpha1.KillSwitch) string {
	message := "The kill switch is engaged: every request of this tier passes."
	if killSwitch != nil && killSwitch.Reason != "" {
		message += fmt.Sprintf(" Reason: %s.", strings.TrimSuffix(killSwitch.Reason, "."))
	}
	if killSwitch != nil && killSwitch.ExpiresAt != nil {
		return message + " Limiting comes back by itself at spec.killSwitch.expiresAt."
	}
	return message + " Remove spec.killSwitch to limit again."
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
// a new spec in force.
func noticeFor(before, after v1alpha1.RateLimitTierStatus) *notice {
	was := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionEnforcing)
	is := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionEnforcing)
	ready := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionReady)
	switch {
	case is.Status == metav1.ConditionFalse && is.Reason != v1alpha1.ReasonNotInForce && (was == nil || was.Reason != is.Reason || was.Message != is.Message):
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
	case ready.Status == metav1.ConditionFalse:
		return &notice{corev1.EventTypeWarning, ready.Reason, "KeepLastGood", ready.Message}
	case ptr.Deref(before.ObservedGeneration, 0) != ptr.Deref(after.ObservedGeneration, 0):
		return &notice{corev1.EventTypeNormal, ready.Reason, "Publish", ready.Message}
	}
	return nil
}

// sameConditions returns whether two statuses say the same of the same generation. Since when does
// not matter.
func sameConditions(a, b v1alpha1.RateLimitTierStatus) bool {
	if ptr.Deref(a.ObservedGeneration, 0) != ptr.Deref(b.ObservedGeneration, 0) || len(a.Conditions) != len(b.Conditions) {
		return false
	}
	for _, ca := range a.Conditions {
		cb := meta.FindStatusCondition(b.Conditions, ca.Type)
		if cb == nil || ca.Status != cb.Status || ca.Reason != cb.Reason || ca.Message != cb.Message {
			return false
		}
	}
	return true
}
