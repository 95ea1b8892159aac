// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
)

const (
	// retryDelay is how long a status that another replica was faster to write is left alone.
	retryDelay = 500 * time.Millisecond
	// reportBudget is how long reporting goes on before changed tiers are published again: with
	// thousands of tiers to report, none waits for its turn to be in force.
	reportBudget = 100 * time.Millisecond
	// patchTimeout bounds one write of a status.
	patchTimeout = 2 * time.Second
	// firstPatience is how long a status by which another replica has overwritten this one's is
	// left standing.
	firstPatience = time.Minute
)

// lastReport is the status that this replica wrote last for a tier, or found to be true.
type lastReport struct {
	status v1alpha1.RateLimitTierStatus
	// trueOf is the resource version of which status was found to be what it should be; "" if none was.
	trueOf string
	// killed is whether a kill switch was engaged then.
	killed bool
	// overwritten is since when another replica says something else; the zero time if none does.
	overwritten time.Time
	// patience is how long that is left standing.
	patience time.Duration
}

// report writes the status of every tier where it is not true, and asks to be called again when
// the next kill switch expires.
func (r *Reconciler) report(ctx context.Context, objects []v1alpha1.RateLimitTier, outcomes []outcome) (reconcile.Result, error) {
	var errs []error
	next := time.Duration(0)
	soonest := func(delay time.Duration) {
		if next == 0 || delay < next {
			next = delay
		}
	}
	now := r.now()
	for i := range objects {
		if r.now().Sub(now) > reportBudget {
			soonest(time.Millisecond)
			break
		}
		wait, err := r.reportOne(ctx, &objects[i], outcomes[i], now)
		switch {
		case ctx.Err() != nil: // the process ends, which is no error
			return reconcile.Result{}, nil
		case err == nil:
			if wait > 0 {
				soonest(wait)
			}
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			soonest(retryDelay)
		case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
			// The API server cannot be reached, and would not be for the others.
			return reconcile.Result{}, fmt.Errorf("writing the status of RateLimitTier %q: %w", objects[i].Name, err)
		default:
			errs = append(errs, fmt.Errorf("writing the status of RateLimitTier %q: %w", objects[i].Name, err))
		}
		if o := outcomes[i]; o.inForce != nil {
			if at := o.inForce.KillSwitch.NextExpiry(now); !at.IsZero() {
				soonest(at.Sub(now))
			}
		}
	}
	r.forget(objects)
	return reconcile.Result{RequeueAfter: next}, errors.Join(errs...)
}

// reportOne writes the status of one tier. Of several replicas the optimistic lock lets one win,
// and only that one emits the Event. If another replica's status is left standing for now, it
// returns for how long.
func (r *Reconciler) reportOne(ctx context.Context, object *v1alpha1.RateLimitTier, o outcome, now time.Time) (time.Duration, error) {
	last, known := r.reported[object.UID]
	if last.stillTrue(object, o, now) {
		return 0, nil
	}
	status := statusFor(object, o, r.GloballyDisabled, now)
	news := !known || !sameConditions(last.status, status)
	if news {
		last = lastReport{status: status, patience: firstPatience}
	}
	switch {
	case equality.Semantic.DeepEqual(object.Status, status):
		last.overwritten = time.Time{}
		last.trueOf, last.killed = object.ResourceVersion, o.engagedAt(now)
		r.reported[object.UID] = last
		return 0, nil
	case !news && reportedByAnother(object):
		wait := last.leaveStanding(now)
		r.reported[object.UID] = last
		if wait > 0 {
			return wait, nil
		}
	}
	if err := r.write(ctx, object, status); err != nil {
		return 0, err
	}
	r.reported[object.UID] = last
	return 0, nil
}

// stillTrue returns whether a status that was as it should be cannot have ceased to be so: of thousands
// of tiers that is nearly every one, each time. It depends on the object, and else only on a kill
// switch that expires; on the last good tier too if the spec cannot be used.
func (l *lastReport) stillTrue(object *v1alpha1.RateLimitTier, o outcome, now time.Time) bool {
	return l.trueOf != "" && l.trueOf == object.ResourceVersion && o.invalid == nil && l.killed == o.engagedAt(now)
}

// leaveStanding returns for how long to leave a status alone by which another replica has
// overwritten this one's, while nothing has changed for this one. That happens when replicas
// differ: in RATE_LIMIT_DISABLED during a roll-out, or in their clocks around an expiry. Writing it
// back at once would be answered in kind, for ever. An example with replicas A and B:
//
//   - B starts with RATE_LIMIT_DISABLED and reports GloballyDisabled. A, which does not have it,
//     lets that stand for a minute: most likely it is about to be replaced by another B.
//   - B went away instead, as after a roll-back. After the minute A reports Enforcing again.
//   - Or B is still there and lets A's Enforcing stand for a minute. Then they take turns, but the
//     time doubles with each, so that replicas which go on to differ come to rest.
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

// reportedByAnother returns whether the status of an object is a replica's whole report on its
// present spec, and not just out of date.
func reportedByAnother(object *v1alpha1.RateLimitTier) bool {
	conditions := object.Status.Conditions
	return ptr.Deref(object.Status.ObservedGeneration, 0) == object.Generation &&
		meta.FindStatusCondition(conditions, v1alpha1.ConditionReady) != nil &&
		meta.FindStatusCondition(conditions, v1alpha1.ConditionEnforcing) != nil
}

// write patches the status of a tier unless the tier has changed meanwhile, and emits the Event.
func (r *Reconciler) write(ctx context.Context, object *v1alpha1.RateLimitTier, status v1alpha1.RateLimitTierStatus) error {
	patched := object.DeepCopy()
	patched.Status = status
	patch := client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{})
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	if err := r.Client.Status().Patch(ctx, patched, patch); err != nil {
		return err
	}
	if n := noticeFor(object.Status, status); n != nil {
		r.Recorder.Eventf(object, nil, n.eventType, n.reason, n.action, "%s", n.message)
	}
	return nil
}

// forget drops what was reported of tiers that are gone.
func (r *Reconciler) forget(objects []v1alpha1.RateLimitTier) {
	if len(r.reported) <= len(objects) {
		return
	}
	exists := make(map[types.UID]bool, len(objects))
	for i := range objects {
		exists[objects[i].UID] = true
	}
	for uid := range r.reported {
		if !exists[uid] {
			delete(r.reported, uid)
		}
	}
}
