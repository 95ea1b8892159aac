// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestSpaced calls a reconciler that may run once in minInterval.
func TestSpaced(t *testing.T) {
	now, calls := time.Now(), 0
	s := spaced{now: func() time.Time { return now }, reconciler: reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		calls++
		return reconcile.Result{RequeueAfter: time.Hour}, nil
	})}
	for _, step := range []struct {
		reason string
		passes time.Duration
		calls  int
		wait   time.Duration
	}{
		{"the first does not wait", 0, 1, time.Hour},
		{"the next does", time.Millisecond, 1, minInterval - time.Millisecond},
		{"until a nanosecond before its time", minInterval - time.Millisecond - 1, 1, 1},
		{"then it runs", 1, 2, time.Hour},
		{"a clock that was set back does not stop it", -time.Hour, 2, minInterval},
		{"one after a pause does not wait", 2 * time.Hour, 3, time.Hour},
	} {
		now = now.Add(step.passes)
		result, err := s.Reconcile(t.Context(), theTable)
		if err != nil || calls != step.calls || result.RequeueAfter != step.wait {
			t.Errorf("%s: %d calls, again in %v, error %v; want %d, %v", step.reason, calls, result.RequeueAfter, err, step.calls, step.wait)
		}
	}
}
