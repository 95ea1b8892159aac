// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
)

// createMany creates n tiers. They are deleted when the test ends.
func createMany(t testing.TB, c client.Client, n int) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.DeleteAllOf(context.Background(), &v1alpha1.RateLimitTier{}); err != nil {
			t.Error(err)
		}
	})
	start := time.Now()
	atOnce(t, n, func(i int) error { return c.Create(context.Background(), object(tierNumber(i))) })
	t.Logf("%d tiers created in %v", n, time.Since(start).Round(time.Millisecond))
}

// atOnce calls a function n times, eight at a time as fast as the API server takes it.
func atOnce(t testing.TB, n int, call func(i int) error) {
	t.Helper()
	numbers := make(chan int)
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for i := range numbers {
				if err := call(i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	callers.Wait()
}

func tierNumber(i int) string { return fmt.Sprintf("tier-%05d", i) }

// cachedClient returns a client that reads from a cache as the one of a replica does, with n tiers.
func cachedClient(t testing.TB, n int) client.Client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	mgr, err := ctrl.NewManager(restConfig(), ctrl.Options{
		Scheme:                 scheme(t),
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller:             config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	eventually(t, "all tiers are in the cache", func() error {
		var list v1alpha1.RateLimitTierList
		if err := mgr.GetClient().List(ctx, &list); err != nil || len(list.Items) != n {
			return fmt.Errorf("%d tiers, want %d: %w", len(list.Items), n, err)
		}
		return nil
	})
	return mgr.GetClient()
}

// TestManyAtOnce changes 200 tiers at once in what does not concern them, so that there is nothing to
// report, and one in its budget. The table is made anew for many of them together, but the budget does
// not wait for all.
func TestManyAtOnce(t *testing.T) {
	const n = 200
	replicas := startReplicas(t, false)
	c := newClient(t)
	createMany(t, c, n)
	eventually(t, "every status is written", allReported(t, c))
	time.Sleep(time.Second) // for the last of them to come back through the cache
	start, before := time.Now(), replicas[0].lists.Load()
	atOnce(t, n, func(i int) error {
		patch := []byte(`{"metadata":{"annotations":{"team":"search"}}}`)
		if i == n/2 {
			patch = []byte(`{"spec":{"requests":{"perMinute":6}}}`)
		}
		return c.Patch(context.Background(), object(tierNumber(i)), client.RawPatch(types.MergePatchType, patch))
	})
	eventually(t, "the change is in force", inTables(replicas, tierNumber(n/2), "6 per 1m0s"))
	lists, elapsed := replicas[0].lists.Load()-before, time.Since(start)
	t.Logf("%d changes in %v, %d reconciliations", n, elapsed, lists)
	if most := int64(elapsed/minInterval) + 2; lists > most {
		t.Errorf("%d reconciliations in %v, want at most %d", lists, elapsed, most)
	}
}

// BenchmarkReconcile10000 measures what each event costs when there are 10,000 tiers, whose status is
// as it should be.
func BenchmarkReconcile10000(b *testing.B) {
	const n = 10_000
	createMany(b, newClient(b), n)
	d := newDirect(cachedClient(b, n), false)
	d.Recorder = &events.FakeRecorder{} // drops them
	reconcile := func() time.Duration {
		d.clock = time.Now()
		result, err := d.Reconcile(b.Context(), theTable)
		if err != nil {
			b.Fatal(err)
		}
		return result.RequeueAfter
	}
	// What was written comes back through the cache a little later.
	for start, quiet := time.Now(), 0; quiet < 20; time.Sleep(50 * time.Millisecond) {
		if quiet++; reconcile() > 0 {
			quiet = 0
		}
		if time.Since(start) > 5*time.Minute {
			b.Fatal("the status is never as it should be")
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if wait := reconcile(); wait > 0 {
			b.Fatalf("it wants to come back after %v", wait)
		}
	}
}
