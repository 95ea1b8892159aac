// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
)

const (
	moveBatch   = 100 // keys that one MIGRATE moves; it stops both servers for that long
	maxBatches  = 10_000
	moveTimeout = 5000 // milliseconds that a MIGRATE may wait for the other server
)

// MoveSlot moves a slot with its keys to another primary while clients may use it, and returns
// that primary. If during is not nil it is called when the move has begun and no key has moved:
// the old primary then answers for keys that it has and redirects with ASK for all others.
func (c *Cluster) MoveSlot(slot int, during func()) *Server {
	c.t.Helper()
	ctx := context.Background()
	source := c.owner(slot)
	primaries := c.primaries()
	var target *Server
	for i, node := range primaries {
		if node == source {
			target = primaries[(i+1)%len(primaries)]
		}
	}
	if target == nil || target == source {
		c.t.Fatalf("redistest: slot %d of %s cannot move: there is no other running primary", slot, source.addr)
	}
	sourceID, targetID := c.id(source), c.id(target)
	// The target first: it must know when it is asked.
	err := errors.Join(
		target.Client.Do(ctx, "cluster", "setslot", slot, "importing", sourceID).Err(),
		source.Client.Do(ctx, "cluster", "setslot", slot, "migrating", targetID).Err(),
	)
	if err != nil {
		c.t.Fatalf("redistest: moving slot %d from %s to %s: %v", slot, source.addr, target.addr, err)
	}
	if during != nil {
		during()
	}
	if err := c.moveKeys(ctx, slot, source, target); err != nil {
		c.t.Fatalf("redistest: moving keys of slot %d from %s to %s: %v", slot, source.addr, target.addr, err)
	}
	// The target first again: there is no moment without an owner.
	order := []*Server{target, source}
	for _, node := range primaries {
		if node != source && node != target {
			order = append(order, node)
		}
	}
	for _, node := range order {
		if err := node.Client.Do(ctx, "cluster", "setslot", slot, "node", targetID).Err(); err != nil {
			c.t.Fatalf("redistest: giving slot %d to %s: %s: %v", slot, target.addr, node.addr, err)
		}
	}
	return target
}

// primaries are the running nodes that have slots in their own eyes.
func (c *Cluster) primaries() []*Server {
	c.t.Helper()
	var list []*Server
	for _, node := range c.Nodes {
		if !node.running() {
			continue
		}
		view, err := viewOf(node)
		if err != nil {
			c.t.Fatalf("redistest: %v", err)
		}
		for _, n := range view {
			if n.addr == node.addr && len(n.slots) > 0 {
				list = append(list, node)
			}
		}
	}
	return list
}

// moveKeys comes to an end because the source takes no new keys for a slot that it is giving away.
func (c *Cluster) moveKeys(ctx context.Context, slot int, source, target *Server) error {
	host, port, _ := net.SplitHostPort(target.addr)
	for range maxBatches {
		keys, err := source.Client.ClusterGetKeysInSlot(ctx, slot, moveBatch).Result()
		if err != nil || len(keys) == 0 {
			return err
		}
		command := []any{"migrate", host, port, "", 0, moveTimeout}
		if c.password != "" {
			command = append(command, "auth", c.password)
		}
		command = append(command, "keys")
		for _, key := range keys {
			command = append(command, key)
		}
		if err := source.Client.Do(ctx, command...).Err(); err != nil {
			return err
		}
	}
	return fmt.Errorf("there are keys left after %d times %d", maxBatches, moveBatch)
}
