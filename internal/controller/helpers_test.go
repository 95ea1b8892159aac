// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
	"github.com/tierlimit/tierlimit/internal/tier"
)

// patience bounds what a test waits for. It is generous, because machines that run tests are slow;
// what is waited for takes far less.
const patience = 30 * time.Second

// replica is one Tierlimit as far as the controller goes: a manager with its own cache and table.
type replica struct {
	table *tier.Table
	log   *errorLog
	lists atomic.Int64 // how often the tiers were listed
	done  chan error
}

// countingClient counts lists.
type countingClient struct {
	client.Client
	lists *atomic.Int64
}

func (c countingClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	c.lists.Add(1)
	return c.Client.List(ctx, list, opts...)
}

// startReplicas starts replicas that differ in whether RATE_LIMIT_DISABLED is set. They stop, and
// all tiers are deleted, when the test ends.
func startReplicas(t *testing.T, disabled ...bool) []*replica {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	replicas := make([]*replica, len(disabled))
	for i := range disabled {
		replicas[i] = startReplica(ctx, t, disabled[i])
	}
	t.Cleanup(func() {
		for i, r := range replicas { // before they stop: an Event on its way then is an error to the client library
			for _, line := range r.log.all() {
				t.Errorf("replica %d logged an error: %s", i, line)
			}
		}
		cancel()
		for i, r := range replicas {
			if err := <-r.done; err != nil {
				t.Errorf("replica %d ended with: %v", i, err)
			}
		}
		deleteAll(t)
	})
	eventually(t, "every table is ready", func() error {
		return every(replicas, func(r *replica) error {
			if !r.table.Ready() {
				return fmt.Errorf("not ready")
			}
			return nil
		})
	})
	return replicas
}

func startReplica(ctx context.Context, t *testing.T, disabled bool) *replica {
	t.Helper()
	r := &replica{table: &tier.Table{}, log: &errorLog{}, done: make(chan error, 1)}
	mgr, err := ctrl.NewManager(restConfig(), ctrl.Options{
		Scheme:                 scheme(t),
		Logger:                 logr.New(r.log),
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller:             config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	reconciler := &Reconciler{
		Client:           countingClient{mgr.GetClient(), &r.lists},
		Recorder:         mgr.GetEventRecorder(name),
		Table:            r.table,
		GloballyDisabled: disabled,
	}
	if err := reconciler.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	go func() { r.done <- mgr.Start(ctx) }()
	return r
}

// every returns the first replica's objection, if there is one.
func every(replicas []*replica, check func(*replica) error) error {
	for i, r := range replicas {
		if err := check(r); err != nil {
			return fmt.Errorf("replica %d: %w", i, err)
		}
	}
	return nil
}

// inTables returns a check that a tier of a name is in force in every table as described, or not
// at all if the description is empty.
func inTables(replicas []*replica, name, want string) func() error {
	return func() error {
		return every(replicas, func(r *replica) error {
			got := ""
			if found := r.table.Lookup(name); found != nil {
				got = found.String()
			}
			if got != want {
				return fmt.Errorf("tier %s is %q, want %q", name, got, want)
			}
			return nil
		})
	}
}

func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, patience, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func restConfig() *rest.Config {
	c := rest.CopyConfig(cluster.Config)
	c.QPS = -1 // the API server's own fairness is enough
	return c
}

func scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return s
}

func newClient(t testing.TB) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(restConfig(), client.Options{Scheme: scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// object returns a tier of 5 requests a minute, changed by mutate.
func object(name string, mutate ...func(*v1alpha1.RateLimitTierSpec)) *v1alpha1.RateLimitTier {
	o := &v1alpha1.RateLimitTier{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.Spec.Requests.PerMinute = ptr.To[int32](5)
	for _, m := range mutate {
		m(&o.Spec)
	}
	return o
}

func perMinute(n int32) func(*v1alpha1.RateLimitTierSpec) {
	return func(s *v1alpha1.RateLimitTierSpec) { s.Requests.PerMinute = &n }
}

func mode(m v1alpha1.Mode) func(*v1alpha1.RateLimitTierSpec) {
	return func(s *v1alpha1.RateLimitTierSpec) { s.Mode = m }
}

func killSwitch(reason string, expiresAt *metav1.Time) func(*v1alpha1.RateLimitTierSpec) {
	return func(s *v1alpha1.RateLimitTierSpec) {
		s.KillSwitch = &v1alpha1.KillSwitch{Engaged: ptr.To(true), Reason: reason, ExpiresAt: expiresAt}
	}
}

func create(t *testing.T, c client.Client, o *v1alpha1.RateLimitTier) {
	t.Helper()
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func update(t *testing.T, c client.Client, name string, mutate ...func(*v1alpha1.RateLimitTierSpec)) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		o := get(t, c, name)
		for _, m := range mutate {
			m(&o.Spec)
		}
		return c.Update(t.Context(), o)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, c client.Client, name string) *v1alpha1.RateLimitTier {
	t.Helper()
	var o v1alpha1.RateLimitTier
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, &o); err != nil {
		t.Fatal(err)
	}
	return &o
}

func deleteAll(t *testing.T) {
	t.Helper()
	if err := newClient(t).DeleteAllOf(context.Background(), &v1alpha1.RateLimitTier{}); err != nil {
		t.Error(err)
	}
}

// reasons returns the reasons of the conditions Ready and Enforcing, if both speak of the
// generation, as "InForce/Enforcing".
func reasons(o *v1alpha1.RateLimitTier) string {
	ready := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
	enforcing := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionEnforcing)
	if ready == nil || enforcing == nil || ready.ObservedGeneration != o.Generation ||
		enforcing.ObservedGeneration != o.Generation || ptr.Deref(o.Status.ObservedGeneration, 0) != o.Generation {
		return "outdated"
	}
	return fmt.Sprintf("%s/%s", ready.Reason, enforcing.Reason)
}

func hasReasons(t *testing.T, c client.Client, name, want string) func() error {
	return func() error {
		if got := reasons(get(t, c, name)); got != want {
			return fmt.Errorf("conditions of %s are %s, want %s", name, got, want)
		}
		return nil
	}
}

// allReported returns a check that every tier is reported to be in force and enforcing.
func allReported(t *testing.T, c client.Client) func() error {
	return func() error {
		var list v1alpha1.RateLimitTierList
		if err := c.List(t.Context(), &list); err != nil {
			return err
		}
		for i := range list.Items {
			if got := reasons(&list.Items[i]); got != "InForce/Enforcing" {
				return fmt.Errorf("%s is %s", list.Items[i].Name, got)
			}
		}
		return nil
	}
}

// errorLog is a log that keeps errors and drops the rest.
type errorLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *errorLog) Init(logr.RuntimeInfo)          {}
func (l *errorLog) Enabled(int) bool               { return true }
func (l *errorLog) Info(int, string, ...any)       {}
func (l *errorLog) WithValues(...any) logr.LogSink { return l }
func (l *errorLog) WithName(string) logr.LogSink   { return l }
func (l *errorLog) Error(err error, m string, kv ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf("%s: %v %v", m, err, kv))
}

func (l *errorLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}
