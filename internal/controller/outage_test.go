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
	name := fmt.Sprintf("outage-%d", time.Now().UnixNano()) // Events of another run would be counted
	replicas := startReplicas(t, false, false)
	c := newClient(t)
	create(t, c, object(name))
	eventually(t, "in force", inTables(replicas, name, "5 per 1m0s"))
	eventually(t, "reported", hasReasons(t, c, name, "InForce/Enforcing"))

	exactly(t, name, map[string]int{"Normal InForce": 1}) // it is written behind the status

	cluster.StopAPIServer(t)
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err := stillThere(replicas, name); err != nil {
			t.Error(err)
			break
		}
	}
	cluster.StartAPIServer(t)

	c = newClient(t)
	eventually(t, "the API server is back", func() error {
		o := object(name)
		return c.Get(t.Context(), clientKey(name), o)
	})
	update(t, c, name, perMinute(8))
	eventually(t, "a change after the outage is in force", inTables(replicas, name, "8 per 1m0s"))
	eventually(t, "and reported", hasReasons(t, c, name, "InForce/Enforcing"))
	if err := stillThere(replicas, name); err == nil {
		t.Error("the table has not been replaced")
	}
}

// stillThere returns an error if a replica has ended or answers by another tier than the first.
func stillThere(replicas []*replica, name string) error {
	for i, r := range replicas {
		select {
		case err := <-r.done:
			r.done <- err
			return fmt.Errorf("replica %d ended: %w", i, err)
		default:
		}
	}
	return inTables(replicas, name, "5 per 1m0s")()
}
