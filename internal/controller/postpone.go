// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
	"github.com/tierlimit/tierlimit/internal/tier"
)

const (
	// grace is how long the replicas are given before status says that some lag behind. Usually all
	// have a change by then, and it takes one write.
	grace = 500 * time.Millisecond
	// settleTime is how long numbers and names of replicas must have rested before a status is written for
	// them alone.
	settleTime = 5 * time.Second
	// minorsPerSecond and minorsAtOnce bound such writes; minorPause is when to try again.
	minorsPerSecond, minorsAtOnce = 100, 20
	minorPause                    = 200 * time.Millisecond
	// firstPatience is how long a status by which somebody else has overwritten this replica's is left
	// standing, at first and at the most.
	firstPatience, lastPatience = time.Second, 10 * time.Minute
)

// newMinors returns what bounds the writes of minor changes.
func newMinors() *rate.Limiter { return rate.NewLimiter(minorsPerSecond, minorsAtOnce) }

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

	// trueOf is the resource version of which status was found to be what it should be; "" if none was.
	trueOf string
	// basis is what that depended on.
	basis basis

	// overwritten is since when somebody else says something else; the zero time if nobody does.
	overwritten time.Time
	// patience is how long that is left standing.
	patience time.Duration
}

// basis is everything beside the object that its status depends on.
type basis struct {
	replicas, disabled int
	unreadable         string
	progress           progress
	killed             bool
	invalid            string
	lastGood           *tier.Tier // of a spec that cannot be used
}

// basisOf returns what a status depends on at a moment.
func basisOf(o outcome, v *view, p *progress, now time.Time) basis {
	b := basis{replicas: v.replicas, disabled: v.disabled, unreadable: v.unreadable, progress: *p, killed: o.engagedAt(now)}
	if o.invalid != nil {
		b.invalid, b.lastGood = o.invalid.Error(), o.inForce
	}
	return b
}

// same returns whether a status depends on the same as another.
func (b *basis) same(other *basis) bool {
	return b.replicas == other.replicas && b.disabled == other.disabled && b.unreadable == other.unreadable &&
		b.killed == other.killed && b.invalid == other.invalid && b.lastGood == other.lastGood && b.progress.same(&other.progress)
}

// noteProgress notes since when a replica has lagged behind.
func (l *lastReport) noteProgress(p *progress, now time.Time) {
	if p.everywhere() {
		l.behindSince = time.Time{}
	} else if l.behindSince.IsZero() {
		l.behindSince = now
	}
}

// found notes that a status is as it should be.
func (l *lastReport) found(version string, status v1alpha1.RateLimitTierStatus, on basis) {
	l.status, l.overwritten, l.base = status, time.Time{}, ""
	l.trueOf, l.basis = version, on
	if isReady(status) {
		l.announced = l.generation
	}
}

// stillTrue returns whether a status that was as it should be cannot have ceased to be so: of thousands
// of tiers that is nearly every one, each time, also while a replica lags behind.
func (l *lastReport) stillTrue(object *v1alpha1.RateLimitTier, on *basis) bool {
	return l.trueOf != "" && l.trueOf == object.ResourceVersion && l.basis.same(on)
}

// postpone returns for how long to leave a status as it is, although it should be another; 0 to write it
// now.
func (r *Reconciler) postpone(object *v1alpha1.RateLimitTier, status *v1alpha1.RateLimitTierStatus, l *lastReport, v *view, now time.Time, news bool) time.Duration {
	if minor(object.Status, *status) {
		if wait := max(l.written.Add(settleTime).Sub(now), v.restsSince.Add(settleTime).Sub(now)); wait > 0 {
			return wait
		}
		if !news {
			if wait := l.leaveStanding(now); wait > 0 {
				return wait
			}
		}
		if !r.minors.AllowN(now, 1) {
			return minorPause
		}
		return 0
	}
	if wait := l.behindSince.Add(grace).Sub(now); !l.behindSince.IsZero() && wait > 0 {
		return wait
	}
	if !news && reportedByAnother(object) && !promisesTooMuch(object.Status, *status) {
		return l.leaveStanding(now)
	}
	return 0
}

// promisesTooMuch returns whether a status says that a tier is in force everywhere, or that it is
// enforced, where another knows better. People act on these, so they do not stand for a moment more.
func promisesTooMuch(says, knows v1alpha1.RateLimitTierStatus) bool {
	for _, conditionType := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionEnforcing} {
		if meta.IsStatusConditionTrue(says.Conditions, conditionType) && !meta.IsStatusConditionTrue(knows.Conditions, conditionType) {
			return true
		}
	}
	return false
}

// leaveStanding returns for how long to leave a status alone by which somebody else has overwritten
// this replica's, while nothing has changed for this one. There is one reporter, but for a moment when
// another takes over, and several where they do not know of each other: without --service, while
// EndpointSlices cannot be read, or with two installations in a cluster. If these differ, in
// RATE_LIMIT_DISABLED or in how many replicas there are, writing it back at once would be answered in
// kind, for ever. So they take turns, and the time doubles with each. What promises too much is the
// exception: whoever knows better says so at once, and only the other waits longer each time.
func (l *lastReport) leaveStanding(now time.Time) time.Duration {
	if l.overwritten.IsZero() {
		l.overwritten = now
	}
	wait := l.overwritten.Add(l.patience).Sub(now)
	if wait <= 0 {
		l.overwritten, l.patience = time.Time{}, min(2*l.patience, lastPatience)
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

// saysTheSame returns whether two statuses say the same of the same generation. Since when does not
// matter.
func saysTheSame(a, b v1alpha1.RateLimitTierStatus) bool {
	if ptr.Deref(a.ObservedGeneration, 0) != ptr.Deref(b.ObservedGeneration, 0) || len(a.Conditions) != len(b.Conditions) ||
		!ptr.Equal(a.Replicas, b.Replicas) || !ptr.Equal(a.UpdatedReplicas, b.UpdatedReplicas) {
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
