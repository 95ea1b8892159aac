// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// +kubebuilder:rbac:groups=discovery.k8s.io,namespace=tierlimit-system,resources=endpointslices,verbs=list;watch

// discoveryRetry is how long to wait before the API server is asked again which kinds it has.
const discoveryRetry = 5 * time.Second

// Discovery counts the replicas of Tierlimit: the ready endpoints of its Service. It runs on every
// replica, and nothing waits for it. While EndpointSlices cannot be read the last number stays.
type Discovery struct {
	// Config is the access to the cluster.
	Config *rest.Config
	// Namespace and Service name the Service that leads to every replica.
	Namespace, Service string
	// Replicas is kept equal to the number of ready endpoints, at least 1.
	Replicas *atomic.Int64
	// Log is told when the number changes.
	Log logr.Logger
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (d *Discovery) NeedLeaderElection() bool { return false }

// Start counts until ctx ends. It has a cache of its own: the controller of the tiers waits until
// all of the manager's is filled, which it never is without the right to read EndpointSlices.
func (d *Discovery) Start(ctx context.Context) error {
	scheme := runtime.NewScheme()
	if err := discoveryv1.AddToScheme(scheme); err != nil {
		return err
	}
	slices, err := cache.New(d.Config, cache.Options{
		Scheme:               scheme,
		DefaultNamespaces:    map[string]cache.Config{d.Namespace: {}},
		DefaultLabelSelector: labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: d.Service}),
		NewInformer:          NewInformer(d.Log),
	})
	if err != nil {
		return fmt.Errorf("counting replicas: %w", err)
	}
	var informer cache.Informer
	if err := wait.PollUntilContextCancel(ctx, discoveryRetry, true, func(ctx context.Context) (bool, error) {
		var err error
		if informer, err = slices.GetInformer(ctx, &discoveryv1.EndpointSlice{}, cache.BlockUntilSynced(false)); err != nil {
			d.Log.Error(err, "replicas cannot be counted yet", "replicas", d.Replicas.Load())
		}
		return err == nil, nil
	}); err != nil {
		return nil //nolint:nilerr // the process ends, which is no error
	}
	count := func() { d.count(ctx, slices) }
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { count() },
		UpdateFunc: func(any, any) { count() },
		DeleteFunc: func(any) { count() },
	}); err != nil {
		return fmt.Errorf("counting replicas: %w", err)
	}
	return slices.Start(ctx)
}

// count counts the replicas anew. The cache is filled, because it has told of a change.
func (d *Discovery) count(ctx context.Context, slices cache.Cache) {
	var list discoveryv1.EndpointSliceList
	if err := slices.List(ctx, &list); err != nil {
		if ctx.Err() == nil {
			d.Log.Error(err, "replicas cannot be counted", "replicas", d.Replicas.Load())
		}
		return
	}
	now := int64(max(readyEndpoints(list.Items), 1))
	if was := d.Replicas.Swap(now); was != now {
		d.Log.Info("replicas changed", "replicas", now, "before", was)
	}
}

// readyEndpoints returns how many endpoints serve and are not about to stop. One that is in two
// slices, or has an address of each family, counts once.
func readyEndpoints(slices []discoveryv1.EndpointSlice) int {
	ready := map[string]bool{}
	for i := range slices {
		for j := range slices[i].Endpoints {
			endpoint := &slices[i].Endpoints[j]
			c := endpoint.Conditions
			// Absent conditions mean ready, and serving what ready says (the API's documentation).
			if ptr.Deref(c.Serving, ptr.Deref(c.Ready, true)) && !ptr.Deref(c.Terminating, false) {
				ready[nameOf(endpoint)] = true
			}
		}
	}
	return len(ready)
}

// nameOf returns what tells one endpoint from another: its Pod or, where there is none, its address.
func nameOf(endpoint *discoveryv1.Endpoint) string {
	if pod := endpoint.TargetRef; pod != nil {
		return fmt.Sprintf("%s %s/%s %s", pod.Kind, pod.Namespace, pod.Name, pod.UID)
	}
	if len(endpoint.Addresses) > 0 {
		return endpoint.Addresses[0]
	}
	return ""
}
