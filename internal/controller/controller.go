// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller keeps this replica's tier table equal to the RateLimitTiers of the cluster,
// and their status equal to the truth.
package controller

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
	"github.com/tierlimit/tierlimit/internal/tier"
)

// +kubebuilder:rbac:groups=tierlimit.dev,resources=ratelimittiers,verbs=get;list;watch
// +kubebuilder:rbac:groups=tierlimit.dev,resources=ratelimittiers/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// name is the name of the controller, in logs and metrics, and the reporter of its Events.
const name = "tierlimit"

// Reconciler fills a tier table from the RateLimitTiers of the cluster. It runs on every replica,
// without a leader: each needs the table. Status is written by the one that reports.
type Reconciler struct {
	// Client reads RateLimitTiers from a cache and patches their status.
	Client client.Client
	// Recorder records Events.
	Recorder events.EventRecorder
	// Table is filled.
	Table *tier.Table
	// GloballyDisabled says that RATE_LIMIT_DISABLED is set in this process.
	GloballyDisabled bool
	// Discovery knows the other replicas. Without it this one reports, and takes itself for the only one.
	Discovery *Discovery

	now      func() time.Time
	reported map[types.UID]*lastReport
	term     uint64        // of the view by which was reported last
	numbers  uint64        // the largest that a generation was given
	minors   *rate.Limiter // of minor changes
	writing  time.Duration // spent in writes this time
}

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.now = time.Now
	r.reported = map[types.UID]*lastReport{}
	r.minors = newMinors()
	return ctrl.NewControllerManagedBy(mgr).
		Named(name).
		Watches(&v1alpha1.RateLimitTier{}, handler.EnqueueRequestsFromMapFunc(
			func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{theTable} })).
		WatchesRawSource(source.Func(r.fill)).
		WithOptions(controller.Options{
			NeedLeaderElection: ptr.To(false),
			// A burst of events is one item in the queue; retries after an error never wait long.
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, 10*time.Second),
		}).
		Complete(&spaced{reconciler: r, now: time.Now})
}

// theTable is the one work item. Whatever happens to whichever tier, the table is made anew from
// all of them, so that creations, deletions, bursts and missed events are one case.
var theTable = reconcile.Request{NamespacedName: types.NamespacedName{Name: "all"}}

// fill asks for the table at the start, since in an empty cluster no event would, and whenever there is
// news of other replicas.
func (r *Reconciler) fill(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	if r.Discovery != nil {
		r.Discovery.onChange(func() { queue.Add(theTable) })
	}
	queue.Add(theTable)
	return nil
}

// Reconcile lists the tiers, compiles them, publishes the table and reports in their status.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var list v1alpha1.RateLimitTierList
	// The objects of the cache itself: copies of thousands would cost more than all the rest. They are
	// only read; what is written to the API server is a copy.
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing RateLimitTiers: %w", err)
	}
	outcomes := r.compile(list.Items)
	for _, change := range r.Table.Replace(inForce(outcomes)) {
		ctrl.LoggerFrom(ctx).Info("tier changed", "tier", change.Name, "now", change.Now)
	}
	return r.report(ctx, list.Items, outcomes)
}

// compile compiles every tier. One that cannot be used keeps what is in force for its name, and
// does not affect the others.
func (r *Reconciler) compile(objects []v1alpha1.RateLimitTier) []outcome {
	outcomes := make([]outcome, len(objects))
	for i := range objects {
		compiled, err := Compile(&objects[i])
		if err != nil {
			compiled = r.Table.Lookup(objects[i].Name)
		}
		outcomes[i] = outcome{inForce: compiled, invalid: err}
	}
	return outcomes
}

func inForce(outcomes []outcome) []*tier.Tier {
	tiers := make([]*tier.Tier, 0, len(outcomes))
	for _, o := range outcomes {
		if o.inForce != nil {
			tiers = append(tiers, o.inForce)
		}
	}
	return tiers
}
