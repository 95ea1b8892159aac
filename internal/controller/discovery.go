// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
)

// +kubebuilder:rbac:groups=discovery.k8s.io,namespace=tierlimit-system,resources=endpointslices,verbs=list;watch

// refusalPatience is how long the API server has to refuse EndpointSlices before status says so.
const refusalPatience = 10 * time.Second

// Discovery knows the replicas of Tierlimit, which are the endpoints of its Service, and, where this
// one is the reporter, what each of them has in force. It runs on every replica, and no check and no
// tier waits for it. While EndpointSlices cannot be read the last ones stay.
type Discovery struct {
	// Config is the access to the cluster.
	Config *rest.Config
	// Namespace and Service name the Service that leads to every replica.
	Namespace, Service string
	// Pod is the name of this replica's Pod.
	Pod string
	// Port is where every replica answers [LoadedPath]. Example: "8081". Without it no other can be asked.
	Port string
	// Replicas is kept equal to the number of ready endpoints, at least 1.
	Replicas *atomic.Int64
	// Log is told when the number changes, and of replicas that cannot be asked.
	Log logr.Logger

	dial     func(ctx context.Context, network, address string) (net.Conn, error) // nil but in tests
	patience time.Duration                                                        // refusalPatience if 0

	mu        sync.Mutex
	running   context.Context // ends with Start
	followers sync.WaitGroup
	slots     chan struct{} // as many as may be asked at once
	client    *http.Client
	notify    func() // told when there is something new to report
	roll      roll
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (d *Discovery) NeedLeaderElection() bool { return false }

// Start follows the replicas until ctx ends. Its informer is not the manager's: there the controller
// of the tiers would wait for it, and without the right to read EndpointSlices for ever.
func (d *Discovery) Start(ctx context.Context) error {
	clientset, err := kubernetes.NewForConfig(d.Config)
	if err != nil {
		return fmt.Errorf("counting replicas: %w", err)
	}
	d.mu.Lock()
	d.running, d.slots, d.client = ctx, make(chan struct{}, maxAsked), newAskClient(d.dial)
	d.mu.Unlock()
	defer d.followers.Wait()

	var (
		store      toolscache.Store
		controller toolscache.Controller
	)
	update := func() {
		d.mu.Lock() // around the list too: an earlier one must not come later
		defer d.mu.Unlock()
		if controller.HasSynced() { // before, some may be missing
			d.update(endpointsOf(store.List()))
		}
	}
	store, controller = toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: newSteady(d.slices(clientset), d.Log, awayInterval),
		ObjectType:    &discoveryv1.EndpointSlice{},
		Handler: toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { update() },
			UpdateFunc: func(any, any) { update() },
			DeleteFunc: func(any) { update() },
		},
	})
	synced := make(chan struct{})
	go func() {
		defer close(synced)
		if toolscache.WaitForCacheSync(ctx.Done(), controller.HasSynced) {
			update() // a Service without slices has no events
		}
	}()
	controller.RunWithContext(ctx)
	<-synced
	return nil
}

// slices lists and watches the EndpointSlices of the Service, and notes whether it may.
func (d *Discovery) slices(clientset kubernetes.Interface) *toolscache.ListWatch {
	slices := clientset.DiscoveryV1().EndpointSlices(d.Namespace)
	selector := labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: d.Service}).String()
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			list, err := slices.List(ctx, options)
			if err != nil { // what is listed and cannot be watched is soon out of date
				d.noteAccess(err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			events, err := slices.Watch(ctx, options)
			d.noteAccess(err)
			return events, err
		},
	}
}

// noteAccess notes how the API server has answered. Only a refusal matters: while it cannot be
// reached no status can be written either, and afterwards the endpoints are read again.
func (d *Discovery) noteAccess(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil:
		if !d.roll.refusedSince.IsZero() {
			d.roll.refusedSince = time.Time{}
			d.changed()
		}
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		if d.roll.refusedSince.IsZero() {
			d.roll.refusedSince = time.Now()
			d.Log.Error(err, "the replicas are not known: EndpointSlices cannot be read", "replicas", d.Replicas.Load())
			time.AfterFunc(d.refusalPatience(), func() {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.changed()
			})
		}
	}
}

func (d *Discovery) refusalPatience() time.Duration {
	if d.patience > 0 {
		return d.patience
	}
	return refusalPatience
}

// onChange has a function called, which must not block, whenever there may be something new to report.
func (d *Discovery) onChange(notify func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notify = notify
}

// changed tells whoever reports. The lock is held.
func (d *Discovery) changed() {
	if d.notify != nil {
		d.notify()
	}
}

// update takes in the endpoints as they are now. The lock is held.
func (d *Discovery) update(endpoints []endpoint) {
	ready := 0
	for i := range endpoints {
		if !endpoints[i].stopping {
			ready++
		}
	}
	now := int64(max(ready, 1))
	if was := d.Replicas.Swap(now); was != now {
		d.Log.Info("replicas changed", "replicas", now, "before", was)
	}
	d.setEndpoints(endpoints)
}
