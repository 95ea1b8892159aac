// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
	"github.com/tierlimit/tierlimit/internal/tier"
)

// fleet is some replicas in this process and the EndpointSlice that leads to them. Their addresses are
// for documentation, because the API server refuses those of the loopback interface, and dialled to
// where they listen.
type fleet struct {
	t        *testing.T
	client   client.Client // of endpoints
	slice    *discoveryv1.EndpointSlice
	config   *rest.Config // of Discovery
	port     string
	patience time.Duration

	mu     sync.Mutex
	dialed map[string]string // "198.51.100.1:8081" to where that listens
	writes atomic.Int64      // of status, tried
	asked  atomic.Int64      // questions
}

// member is one replica of a fleet.
type member struct {
	name, address string
	table         *tier.Table
	server        *httptest.Server
	disabled      bool
	stop          func() // the process
	blocked       sync.RWMutex
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, client: slicesClient(t), config: restConfig(), port: "8081", dialed: map[string]string{}}
	f.slice = createSlice(t, f.client, "default", "fleet-1", "fleet")
	t.Cleanup(func() { deleteAll(t) })
	return f
}

func (f *fleet) dial(ctx context.Context, network, address string) (net.Conn, error) {
	f.asked.Add(1)
	f.mu.Lock()
	to := f.dialed[address]
	f.mu.Unlock()
	if to == "" {
		return nil, errors.New("nobody listens there")
	}
	return new(net.Dialer).DialContext(ctx, network, to)
}

// start starts a replica, which is not an endpoint yet.
func (f *fleet) start(name string, disabled bool) *member {
	f.t.Helper()
	m := f.serve(name, disabled)
	ctx, cancel := context.WithCancel(context.Background())
	mgr, err := ctrl.NewManager(restConfig(), ctrl.Options{
		Scheme:                 scheme(f.t),
		Logger:                 logr.Discard(),
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller:             config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	discovery := &Discovery{Config: f.config, Namespace: "default", Service: "fleet", Pod: name, Port: f.port,
		Replicas: new(atomic.Int64), Log: logr.Discard(), dial: f.dial, patience: f.patience}
	reconciler := &Reconciler{
		Client:           f.counting(m, mgr.GetClient()),
		Recorder:         mgr.GetEventRecorder("fleet"),
		Table:            m.table,
		GloballyDisabled: disabled,
		Discovery:        discovery,
	}
	if err := errors.Join(reconciler.SetupWithManager(mgr), mgr.Add(discovery)); err != nil {
		f.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	m.stop = sync.OnceFunc(func() {
		m.server.CloseClientConnections()
		m.server.Close()
		cancel()
		if err := <-done; err != nil {
			f.t.Errorf("replica %s ended with: %v", name, err)
		}
	})
	f.t.Cleanup(m.stop)
	eventually(f.t, "the table is ready", func() error {
		if !m.table.Ready() {
			return errors.New("not ready")
		}
		return nil
	})
	return m
}

// serve starts the part of a replica that answers questions.
func (f *fleet) serve(name string, disabled bool) *member {
	m := &member{name: name, table: new(tier.Table), disabled: disabled}
	mux := http.NewServeMux()
	mux.Handle(LoadedPath, LoadedHandler(m.table, disabled))
	m.server = httptest.NewServer(mux)
	f.mu.Lock()
	defer f.mu.Unlock()
	m.address = fmt.Sprintf("198.51.100.%d", len(f.dialed)+1)
	f.dialed[m.address+":8081"] = m.server.Listener.Addr().String()
	return m
}

// counting counts writes of status, and does not list tiers while the member is blocked.
func (f *fleet) counting(m *member, c client.Client) client.Client {
	return interceptor.NewClient(withWatch{c}, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			m.blocked.RLock()
			defer m.blocked.RUnlock()
			return c.List(ctx, list, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			f.writes.Add(1)
			return c.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
	})
}

// withWatch makes an interceptor take a client that it does not watch with.
type withWatch struct{ client.Client }

func (withWatch) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	return nil, errors.New("not here")
}

// endpoints makes these the endpoints, ready ones.
func (f *fleet) endpoints(members ...*member) {
	f.t.Helper()
	f.slice.Endpoints = nil
	for _, m := range members {
		f.slice.Endpoints = append(f.slice.Endpoints, endpointOf(m.name, m.address))
	}
	f.update()
}

func (f *fleet) update() {
	f.t.Helper()
	if err := f.client.Update(f.t.Context(), f.slice); err != nil {
		f.t.Fatal(err)
	}
}

// stands returns a check that Ready is so, and of how many how many have the spec.
func (f *fleet) stands(name, want string) func() error {
	c := newClient(f.t)
	return func() error {
		o := get(f.t, c, name)
		ready := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.ObservedGeneration != o.Generation {
			return errors.New("nothing is reported of this generation")
		}
		got := fmt.Sprintf("%s %d/%d", ready.Reason, ptr.Deref(o.Status.UpdatedReplicas, -1), ptr.Deref(o.Status.Replicas, -1))
		if got != want {
			return fmt.Errorf("%s is %q, want %q: %s", name, got, want, ready.Message)
		}
		return nil
	}
}

// readyMessage returns what Ready says.
func readyMessage(t *testing.T, c client.Client, name string) string {
	t.Helper()
	ready := meta.FindStatusCondition(get(t, c, name).Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil {
		return ""
	}
	return ready.Message
}

// quiet waits until no status has been written for a second.
func (f *fleet) quiet() {
	f.t.Helper()
	last, since := f.writes.Load(), time.Now()
	eventually(f.t, "no status is written any more", func() error {
		if now := f.writes.Load(); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < time.Second {
			return errors.New("there was one just now")
		}
		return nil
	})
}
