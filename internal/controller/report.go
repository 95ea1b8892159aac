// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
)

const (
	// retryDelay is how long a status that another replica was faster to write is left alone.
	retryDelay = 500 * time.Millisecond
	// refusedDelay is when a status is tried again that the API server has refused.
	refusedDelay = 10 * time.Second
	// reportBudget is how long statuses are written before changed tiers are published again: with
	// thousands of tiers to report, none waits for its turn to be in force.
	reportBudget = 100 * time.Millisecond
	// patchTimeout bounds one write of a status.
	patchTimeout = 2 * time.Second
)

// report writes the status of every tier where it is not true, if this replica is the one that does,
// and asks to be called again when there is more to report or the next kill switch expires.
func (r *Reconciler) report(ctx context.Context, objects []v1alpha1.RateLimitTier, outcomes []outcome) (reconcile.Result, error) {
	now := r.now()
	next := soonest{}
	for i := range outcomes {
		if o := outcomes[i]; o.inForce != nil {
			if at := o.inForce.KillSwitch.NextExpiry(now); !at.IsZero() {
				next.after(at.Sub(now))
			}
		}
	}
	v := r.look()
	if !v.reports {
		clear(r.reported)
		return reconcile.Result{RequeueAfter: next.delay}, nil
	}
	reports := r.track(&v, objects, outcomes)
	r.writing = 0
	for i := range objects {
		if r.writing > reportBudget {
			next.after(time.Millisecond)
			break
		}
		wait, err := r.reportOne(ctx, &objects[i], outcomes[i], reports[i], &v, now)
		switch {
		case ctx.Err() != nil: // the process ends, which is no error
			return reconcile.Result{}, nil
		case err == nil:
			next.after(wait)
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			next.after(retryDelay)
		case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
			// The API server cannot be reached, and would not be for the others.
			return reconcile.Result{}, fmt.Errorf("writing the status of RateLimitTier %q: %w", objects[i].Name, err)
		default: // only this one: as an error it would hold up what has a time of its own, such as an expiry
			ctrl.LoggerFrom(ctx).Error(err, "the status of a RateLimitTier cannot be written", "tier", objects[i].Name)
			next.after(refusedDelay)
		}
	}
	return reconcile.Result{RequeueAfter: next.delay}, nil
}

// soonest is the shortest of some delays; 0 if there is none.
type soonest struct{ delay time.Duration }

func (s *soonest) after(delay time.Duration) {
	if delay > 0 && (s.delay == 0 || delay < s.delay) {
		s.delay = delay
	}
}

// look returns what is known of all replicas.
func (r *Reconciler) look() view {
	v := alone()
	if r.Discovery != nil {
		v = r.Discovery.view()
	}
	v.countDisabled(r.GloballyDisabled)
	return v
}

// track returns what was reported of each tier, gives each new generation a number, and has the other
// replicas asked for them.
func (r *Reconciler) track(v *view, objects []v1alpha1.RateLimitTier, outcomes []outcome) []*lastReport {
	if v.term != r.term { // others may have written since
		clear(r.reported)
		r.term = v.term
	}
	changed := false
	reports := make([]*lastReport, len(objects))
	for i := range objects {
		l := r.reported[objects[i].UID]
		if l == nil {
			l = &lastReport{patience: firstPatience}
			r.reported[objects[i].UID] = l
		}
		if invalid := outcomes[i].invalid != nil; l.number == 0 || l.generation != objects[i].Generation || l.wasInvalid != invalid {
			r.numbers++
			l.number, l.generation, l.wasInvalid = r.numbers, objects[i].Generation, invalid
			l.behindSince = time.Time{}
			changed = true
		}
		reports[i] = l
	}
	if r.forget(objects) || changed {
		r.ask(v, objects, reports)
	}
	return reports
}

// ask has the other replicas asked for all tiers that can be used.
func (r *Reconciler) ask(v *view, objects []v1alpha1.RateLimitTier, reports []*lastReport) {
	if r.Discovery == nil || v.unreadable != "" {
		return
	}
	wants := make([]want, 0, len(objects))
	for i := range objects {
		if l := reports[i]; !l.wasInvalid {
			wants = append(wants, want{tierRef{objects[i].Name, string(objects[i].UID), l.generation}, l.number})
		}
	}
	r.Discovery.want(v.term, wants, r.numbers)
}

// forget drops what was reported of tiers that are gone, and returns whether there were any.
func (r *Reconciler) forget(objects []v1alpha1.RateLimitTier) bool {
	if len(r.reported) <= len(objects) {
		return false
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
	return true
}

// reportOne writes the status of one tier. If that is to wait, it returns for how long.
func (r *Reconciler) reportOne(ctx context.Context, object *v1alpha1.RateLimitTier, o outcome, l *lastReport, v *view, now time.Time) (time.Duration, error) {
	if l.base != "" && l.base == object.ResourceVersion {
		return 0, nil // the cache does not show what this replica has written; it will tell
	}
	p := progress{} // of a spec that cannot be used nobody has anything
	if o.invalid == nil {
		p = v.progress(object.UID, l.number)
	}
	l.noteProgress(&p, now)
	on := basisOf(o, v, &p, now)
	if l.stillTrue(object, &on) {
		return 0, nil
	}
	status := statusFor(object, o, v, &p, now)
	news := !saysTheSame(l.status, status)
	if news {
		l.overwritten, l.patience = time.Time{}, firstPatience
	}
	if equality.Semantic.DeepEqual(object.Status, status) {
		l.found(object.ResourceVersion, status, on)
		return 0, nil
	}
	if wait := r.postpone(object, &status, l, v, now, news); wait > 0 {
		return wait, nil
	}
	version, err := r.write(ctx, object, status, l)
	if err != nil {
		return 0, err
	}
	l.status, l.written = status, now
	if version == object.ResourceVersion {
		// Nothing was stored: the CustomResourceDefinition is an older one, without some field.
		l.found(version, status, on)
		return 0, nil
	}
	l.base = object.ResourceVersion
	return 0, nil
}

// write patches the status of a tier unless the tier has changed meanwhile, emits the Event, and
// returns the new resource version.
func (r *Reconciler) write(ctx context.Context, object *v1alpha1.RateLimitTier, status v1alpha1.RateLimitTierStatus, l *lastReport) (string, error) {
	patched := object.DeepCopy()
	patched.Status = status
	patch := client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{})
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	begun := r.now()
	defer func() { r.writing += r.now().Sub(begun) }()
	if err := r.Client.Status().Patch(ctx, patched, patch); err != nil {
		return "", err
	}
	if n := noticeFor(object.Status, status, l.announced); n != nil {
		r.Recorder.Eventf(object, nil, n.eventType, n.reason, n.action, "%s", n.message)
	}
	if isReady(status) {
		l.announced = object.Generation
	}
	return patched.ResourceVersion, nil
}
