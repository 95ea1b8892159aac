// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
)

func TestEmptyClusterBecomesReady(t *testing.T) {
	replicas := startReplicas(t, false, false) // waits until every table is ready
	for i, r := range replicas {
		if all := r.table.All(); len(all) != 0 {
			t.Errorf("replica %d: %d tiers in an empty cluster", i, len(all))
		}
	}
}

func TestChangesReachEveryReplica(t *testing.T) {
	replicas := startReplicas(t, false, false, false)
	c := newClient(t)

	create(t, c, object("free"))
	eventually(t, "created", inTables(replicas, "free", "5 per 1m0s"))

	update(t, c, "free", perMinute(7))
	eventually(t, "updated", inTables(replicas, "free", "7 per 1m0s"))

	update(t, c, "free", mode(v1alpha1.ModeDryRun))
	eventually(t, "mode changed", inTables(replicas, "free", "7 per 1m0s, dry run"))

	update(t, c, "free", killSwitch("Redis migration", nil))
	eventually(t, "kill switch engaged", inTables(replicas, "free", "7 per 1m0s, dry run, KILL SWITCH ENGAGED: every request passes"))

	if err := c.Delete(t.Context(), object("free")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "deleted", inTables(replicas, "free", ""))

	create(t, c, object("free", perMinute(9)))
	eventually(t, "created again under the same name", inTables(replicas, "free", "9 per 1m0s"))
	eventually(t, "reported again", hasReasons(t, c, "free", "InForce/Enforcing"))
}

func TestBurst(t *testing.T) {
	const tiers, writers = 200, 8
	replicas := startReplicas(t, false, false)
	c := newClient(t)

	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := w; i < tiers; i += writers {
				if err := c.Create(t.Context(), object(fmt.Sprintf("burst-%03d", i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	holds := func(want int) func() error {
		return func() error {
			return every(replicas, func(r *replica) error {
				if got := len(r.table.All()); got != want {
					return fmt.Errorf("%d tiers, want %d", got, want)
				}
				return nil
			})
		}
	}
	eventually(t, "all in force", holds(tiers))
	eventually(t, "all reported", allReported(t, c))
	deleteAll(t)
	eventually(t, "none in force", holds(0))
}

// TestConcurrentUpdates has several people change the same tiers, so that the replicas' writes of
// the status conflict with theirs and with one another. startReplicas fails the test if that shows
// in a log.
func TestConcurrentUpdates(t *testing.T) {
	const tiers, people, changes = 3, 3, 15
	replicas := startReplicas(t, false, false, false)
	c := newClient(t)
	for i := range tiers {
		create(t, c, object(fmt.Sprintf("busy-%d", i)))
	}
	var group sync.WaitGroup
	for p := range people {
		group.Go(func() {
			for n := range changes {
				name := fmt.Sprintf("busy-%d", (p+n)%tiers)
				var o v1alpha1.RateLimitTier
				if err := c.Get(t.Context(), client.ObjectKey{Name: name}, &o); err != nil {
					t.Error(err)
					return
				}
				perMinute(int32(10 + p*changes + n))(&o.Spec)
				_ = c.Update(t.Context(), &o) // somebody else may have been faster
			}
		})
	}
	group.Wait()
	for i := range tiers {
		name := fmt.Sprintf("busy-%d", i)
		update(t, c, name, perMinute(int32(1000+i)))
		eventually(t, "the last change is in force", inTables(replicas, name, fmt.Sprintf("%d per 1m0s", 1000+i)))
		eventually(t, "and reported", hasReasons(t, c, name, "InForce/Enforcing"))
	}
}

// TestDisagreeingReplicasComeToRest has replicas differ in RATE_LIMIT_DISABLED, as they do during a
// roll-out. Each has its say once, and then the status is left alone.
func TestDisagreeingReplicasComeToRest(t *testing.T) {
	startReplicas(t, true, false, false)
	c := newClient(t)
	create(t, c, object("free"))
	comesToRest(t, c, "free")
	update(t, c, "free", perMinute(6))
	comesToRest(t, c, "free")
}

// comesToRest waits until a tier has a status and has not been written for two seconds.
func comesToRest(t *testing.T, c client.Client, name string) {
	t.Helper()
	version, since := "", time.Now()
	eventually(t, "the status comes to rest", func() error {
		o := get(t, c, name)
		if o.ResourceVersion != version || reasons(o) == "outdated" {
			version, since = o.ResourceVersion, time.Now()
		}
		if rest := time.Since(since); rest < 2*time.Second {
			return fmt.Errorf("resourceVersion %s, conditions %s, unchanged for %v", version, reasons(o), rest)
		}
		return nil
	})
}
