// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// endpointOf returns an endpoint of a Pod with its conditions ready, serving and terminating.
func endpointOf(pod, address string, conditions ...*bool) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{address}}
	if pod != "" {
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: pod, UID: types.UID("uid-" + pod)}
	}
	if len(conditions) == 3 {
		e.Conditions = discoveryv1.EndpointConditions{Ready: conditions[0], Serving: conditions[1], Terminating: conditions[2]}
	}
	return e
}

func TestReadyEndpoints(t *testing.T) {
	yes, no := ptr.To(true), ptr.To(false)
	slice := func(endpoints ...discoveryv1.Endpoint) discoveryv1.EndpointSlice {
		return discoveryv1.EndpointSlice{Endpoints: endpoints}
	}
	for name, tc := range map[string]struct {
		reason string
		slices []discoveryv1.EndpointSlice
		want   int
	}{
		"None":        {"no slice at all", nil, 0},
		"Two":         {"of one slice", []discoveryv1.EndpointSlice{slice(endpointOf("a", "192.0.2.1", yes, yes, no), endpointOf("b", "192.0.2.2", yes, yes, no))}, 2},
		"Unsaid":      {"absent conditions mean ready", []discoveryv1.EndpointSlice{slice(endpointOf("a", "192.0.2.1"))}, 1},
		"NotReady":    {"one that does not serve yet", []discoveryv1.EndpointSlice{slice(endpointOf("a", "192.0.2.1", no, no, no), endpointOf("b", "192.0.2.2", no, nil, nil))}, 0},
		"Terminating": {"one that still serves and is about to stop", []discoveryv1.EndpointSlice{slice(endpointOf("a", "192.0.2.1", no, yes, yes))}, 0},
		"TwoSlices":   {"the same Pod in two slices, as while it moves between them", []discoveryv1.EndpointSlice{slice(endpointOf("a", "192.0.2.1")), slice(endpointOf("a", "192.0.2.1"))}, 1},
		"TwoFamilies": {"IPv4 and IPv6 are slices of their own", []discoveryv1.EndpointSlice{slice(endpointOf("a", "192.0.2.1"), endpointOf("b", "192.0.2.2")), slice(endpointOf("a", "2001:db8::1"), endpointOf("b", "2001:db8::2"))}, 2},
		"Replaced":    {"a Pod of the same name is another if it was made anew", []discoveryv1.EndpointSlice{slice(endpointOf("a", "192.0.2.1"), func() discoveryv1.Endpoint { e := endpointOf("a", "192.0.2.2"); e.TargetRef.UID = "new"; return e }())}, 2},
		"NoPods":      {"without Pods the address tells", []discoveryv1.EndpointSlice{slice(endpointOf("", "192.0.2.1"), endpointOf("", "192.0.2.2")), slice(endpointOf("", "192.0.2.1"))}, 2},
	} {
		var objects []any
		for i := range tc.slices {
			objects = append(objects, &tc.slices[i])
		}
		got := 0
		for _, e := range endpointsOf(objects) {
			if !e.stopping {
				got++
			}
		}
		if got != tc.want {
			t.Errorf("%s: %d ready endpoints, want %d: %s", name, got, tc.want, tc.reason)
		}
	}
}

// startDiscovery counts the replicas of Service tierlimit in a namespace until the test ends.
func startDiscovery(t *testing.T, config *rest.Config, namespace string, first int64) (*atomic.Int64, *errorLog) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	replicas, log, done := new(atomic.Int64), &errorLog{}, make(chan error, 1)
	replicas.Store(first)
	d := &Discovery{Config: config, Namespace: namespace, Service: "tierlimit", Replicas: replicas, Log: logr.New(log)}
	go func() { done <- d.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("ended with: %v", err)
		}
	})
	return replicas, log
}

func counts(replicas *atomic.Int64, want int64) func() error {
	return func() error {
		if got := replicas.Load(); got != want {
			return fmt.Errorf("%d replicas, want %d", got, want)
		}
		return nil
	}
}

func slicesClient(t *testing.T) client.Client {
	t.Helper()
	s := scheme(t)
	for _, add := range []func() error{func() error { return discoveryv1.AddToScheme(s) }, func() error { return corev1.AddToScheme(s) }} {
		if err := add(); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(restConfig(), client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// createSlice creates an EndpointSlice as the cluster's own controller does.
func createSlice(t *testing.T, c client.Client, namespace, name, service string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	t.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
	}
	if err := c.Create(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), slice); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return slice
}

func TestDiscovery(t *testing.T) {
	c := slicesClient(t)
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "discovery-other"}}
	if err := c.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	yes, no := ptr.To(true), ptr.To(false)
	one := createSlice(t, c, "default", "tierlimit-1", "tierlimit", endpointOf("a", "192.0.2.1", yes, yes, no), endpointOf("b", "192.0.2.2", yes, yes, no))
	// These are not replicas.
	createSlice(t, c, "default", "metrics-1", "tierlimit-metrics", endpointOf("x", "192.0.2.8"))
	createSlice(t, c, other.Name, "tierlimit-1", "tierlimit", endpointOf("y", "192.0.2.9"))

	replicas, log := startDiscovery(t, restConfig(), "default", 7)
	eventually(t, "the first count", counts(replicas, 2))
	two := createSlice(t, c, "default", "tierlimit-2", "tierlimit", endpointOf("b", "192.0.2.2"), endpointOf("c", "192.0.2.3"))
	eventually(t, "a second slice", counts(replicas, 3))
	one.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: no, Serving: yes, Terminating: yes}
	if err := c.Update(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	eventually(t, "one is about to stop", counts(replicas, 2))
	for _, slice := range []*discoveryv1.EndpointSlice{one, two} {
		if err := c.Delete(t.Context(), slice); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "never below 1", counts(replicas, 1))
	if lines := log.all(); len(lines) > 0 {
		t.Errorf("errors in the log: %v", lines)
	}
}

// Without the right to read, or without an API server, the number stays, and a count begins once
// that has changed.
func TestDiscoveryWithoutEndpointSlices(t *testing.T) {
	c := slicesClient(t)
	createSlice(t, c, "default", "tierlimit-1", "tierlimit", endpointOf("a", "192.0.2.1"), endpointOf("b", "192.0.2.2"))
	powerless := restConfig()
	powerless.Impersonate.UserName = "somebody"
	refused, _ := startDiscovery(t, powerless, "default", 7)
	allowed, _ := startDiscovery(t, restConfig(), "default", 7)
	eventually(t, "the first count", counts(allowed, 2))

	cluster.StopAPIServer(t)
	late, _ := startDiscovery(t, restConfig(), "default", 5)
	time.Sleep(time.Second)
	for what, check := range map[string]func() error{"refused": counts(refused, 7), "away": counts(allowed, 2), "late": counts(late, 5)} {
		if err := check(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	cluster.StartAPIServer(t)
	eventually(t, "a count after the outage", counts(late, 2))
	createSlice(t, c, "default", "tierlimit-2", "tierlimit", endpointOf("c", "192.0.2.3"))
	eventually(t, "a change after the outage", counts(allowed, 3))
	if err := counts(refused, 7)(); err != nil {
		t.Error(err)
	}
}
