// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"time"
)

// TestAPIServerOutage has the API server go away and come back. Checks are answered by the last
// good table meanwhile, and no replica ends.
func TestAPIServerOutage(t *testing.T) {
	replicas := startReplicas(t, false, false)
	c := newClient(t)
	create(t, c, object("free"))
	eventually(t, "in force", inTables(replicas, "free", "5 per 1m0s"))
	eventually(t, "reported", hasReasons(t, c, "free", "InForce/Enforcing"))

	cluster.StopAPIServer(t)
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err := stillThere(replicas); err != nil {
			t.Error(err)
			break
		}
	}
	cluster.StartAPIServer(t)

	c = newClient(t)
	eventually(t, "the API server is back", func() error {
		o := object("free")
		return c.Get(t.Context(), clientKey("free"), o)
	})
	update(t, c, "free", perMinute(8))
	eventually(t, "a change after the outage is in force", inTables(replicas, "free", "8 per 1m0s"))
	eventually(t, "and reported", hasReasons(t, c, "free", "InForce/Enforcing"))
	if err := stillThere(replicas); err == nil {
		t.Error("the table has not been replaced")
	}
}

// stillThere returns an error if a replica has ended or answers by another tier than the first.
func stillThere(replicas []*replica) error {
	for i, r := range replicas {
		select {
		case err := <-r.done:
			r.done <- err
			return fmt.Errorf("replica %d ended: %w", i, err)
		default:
		}
	}
	return inTables(replicas, "free", "5 per 1m0s")()
}
