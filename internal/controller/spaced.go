// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// minInterval is the time from the beginning of one reconciliation to that of the next. A single
// change does not wait. In a burst, such as 10,000 creations, each of which would otherwise have the
// whole table made anew, they are taken together: each reconciliation takes a few milliseconds then,
// so that the interval bounds what a burst costs to a part of a core.
const minInterval = 50 * time.Millisecond

// spaced reconciles at most once in minInterval. It is for one worker.
type spaced struct {
	reconciler reconcile.Reconciler
	now        func() time.Time
	begun      time.Time
}

// Reconcile reconciles, or asks to be called again when it is time.
func (s *spaced) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	now := s.now()
	if wait := s.begun.Add(minInterval).Sub(now); wait > 0 {
		return reconcile.Result{RequeueAfter: min(wait, minInterval)}, nil
	}
	s.begun = now
	return s.reconciler.Reconcile(ctx, request)
}
