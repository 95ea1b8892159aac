// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
)

const (
	// grace is how long the replicas are given before status says that some lag behind. Usually all
	// have a change by then, and it takes one write.
	grace = 500 * time.Millisecond
	// settleTime is how long numbers and names of replicas must have rested before a status is written for
	// them alone.
	settleTime = 5 * time.Second
	// minorsAtOnce and minorPause bound such writes to 100 a second.
	minorsAtOnce, minorPause = 20, 200 * time.Millisecond
	// firstPatience is how long a status by which somebody else has overwritten this replica's is left
	// standing.
	firstPatience = time.Second
)

// lastReport is what this replica knows of the report on a tier.
type lastReport struct {
	// number is that of the generation, and of whether it was invalid, when replicas were last asked.
	number     uint64
	generation int64
	wasInvalid bool

	// status is the one that this replica wrote last, or found to be true.
	status v1alpha1.RateLimitTierStatus
	// base is the resource version on which this replica's last write was based.
	base string
	// written is when that was.
	written time.Time
	// announced is the generation that was last known to be in force everywhere.
	announced int64
	// behindSince is since when some replica has lagged behind; the zero time if none does.
	behindSince time.Time

	// trueOf is the resource version of which status was found to be what it should be, of a generation
	// that is in force everywhere; "" if none was.
	trueOf string
	// killed is whether a kill switch was engaged then, and seen what there was to see of the replicas.
	killed bool
	seen   summary

	// overwritten is since when somebody else says something else; the zero time if nobody does.
	overwritten time.Time
	// patience is how long that is left standing.
	patience time.Duration
}

// summary is what the status of a tier that is in force everywhere tells of the replicas.
type summary struct {
	replicas, disabled int
	unreadable         string
}

func (v *view) summary() summary { return summary{v.replicas, v.disabled, v.unreadable} }

// noteProgress notes since when a replica has lagged behind.
func (l *lastReport) noteProgress(p *progress, now time.Time) {
	if p.everywhere() {
		l.behindSince = time.Time{}
	} else if l.behindSince.IsZero() {
		l.behindSince = now
	}
}

// found notes that a status is as it should be.
func (l *lastReport) found(version string, o outcome, status v1alpha1.RateLimitTierStatus, p *progress, seen summary, now time.Time) {
	l.status, l.overwritten, l.base = status, time.Time{}, ""
	l.trueOf, l.killed, l.seen = "", o.engagedAt(now), seen
	if p.everywhere() {
		l.trueOf = version
	}
	if isReady(status) {
		l.announced = l.generation
	}
}

// stillTrue returns whether a status that was as it should be cannot have ceased to be so: of thousands
// of tiers that is nearly every one, each time. It depends on the object and on what is seen of the
// replicas, and else only on a kill switch that expires; on the last good tier too if the spec cannot
// be used.
func (l *lastReport) stillTrue(object *v1alpha1.RateLimitTier, o outcome, p *progress, seen summary, now time.Time) bool {
	return l.trueOf != "" && l.trueOf == object.ResourceVersion && o.invalid == nil && p.everywhere() &&
		l.seen == seen && l.killed == o.engagedAt(now)
}

// postpone returns for how long to leave a status as it is, although it should be another; 0 to write it
// now.
func (r *Reconciler) postpone(object *v1alpha1.RateLimitTier, status *v1alpha1.RateLimitTierStatus, l *lastReport, v *view, now time.Time, news bool) time.Duration {
	if minor(object.Status, *status) {
		if wait := max(l.written.Add(settleTime).Sub(now), v.restsSince.Add(settleTime).Sub(now)); wait > 0 {
			return wait
		}
		if r.minorLeft == 0 {
			return minorPause
		}
		if !news {
			if wait := l.leaveStanding(now); wait > 0 {
				return wait
			}
		}
		r.minorLeft--
		return 0
	}
	if wait := l.behindSince.Add(grace).Sub(now); !l.behindSince.IsZero() && wait > 0 {
		return wait
	}
	if !news && reportedByAnother(object) {
		return l.leaveStanding(now)
	}
	return 0
}

// leaveStanding returns for how long to leave a status alone by which somebody else has overwritten
// this replica's, while nothing has changed for this one. There is one reporter, but for a moment when
// another takes over, and several where they do not know of each other: without --service, while
// EndpointSlices cannot be read, or with two installations in a cluster. If these differ, in
// RATE_LIMIT_DISABLED or in how many replicas there are, writing it back at once would be answered in
// kind, for ever. So they take turns, and the time doubles with each.
func (l *lastReport) leaveStanding(now time.Time) time.Duration {
	if l.overwritten.IsZero() {
		l.overwritten = now
	}
	wait := l.overwritten.Add(l.patience).Sub(now)
	if wait <= 0 {
		l.overwritten, l.patience = time.Time{}, 2*l.patience
	}
	return wait
}

// reportedByAnother returns whether the status of an object is a whole report on its present spec, and
// not just out of date.
func reportedByAnother(object *v1alpha1.RateLimitTier) bool {
	conditions := object.Status.Conditions
	return ptr.Deref(object.Status.ObservedGeneration, 0) == object.Generation &&
		meta.FindStatusCondition(conditions, v1alpha1.ConditionReady) != nil &&
		meta.FindStatusCondition(conditions, v1alpha1.ConditionEnforcing) != nil
}

// minor returns whether two statuses of one generation differ only in numbers and names of replicas, or
// in why it is not everywhere yet.
func minor(before, after v1alpha1.RateLimitTierStatus) bool {
	if ptr.Deref(before.ObservedGeneration, 0) != ptr.Deref(after.ObservedGeneration, 0) {
		return false
	}
	for _, conditionType := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionEnforcing} {
		was, is := meta.FindStatusCondition(before.Conditions, conditionType), meta.FindStatusCondition(after.Conditions, conditionType)
		if was == nil || is == nil || was.Status != is.Status || was.ObservedGeneration != is.ObservedGeneration {
			return false
		}
		if was.Reason != is.Reason && (!lagging(was) || !lagging(is)) {
			return false
		}
	}
	return true
}

// lagging returns whether a condition says that some replica does not have the spec.
func lagging(c *metav1.Condition) bool {
	return c.Type == v1alpha1.ConditionReady && (c.Reason == v1alpha1.ReasonRollingOut || c.Reason == v1alpha1.ReasonReplicaUnreachable)
}

// isReady returns whether a status says that its generation is in force everywhere.
func isReady(status v1alpha1.RateLimitTierStatus) bool {
	return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady)
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
