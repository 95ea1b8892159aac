// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package drills

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/processtest"
)

// target is a replica in the eyes of a proxy.
type target struct {
	process *processtest.Process
	out     bool // no checks go there: it is not ready, or refuses connections
	leaving bool // it has asked to close a connection, and gets no new checks any more
}

// balancer gives checks to replicas in turn, as a proxy does. It takes one out that is not ready, refuses
// a connection, or asks to close one.
type balancer struct {
	mu      sync.Mutex
	targets []*target
	next    int
	// unready counts the times that a replica was found not ready.
	unready atomic.Int64
}

// newBalancer returns one that looks at the readiness of its replicas until the test ends.
func newBalancer(t *testing.T, replicas ...*processtest.Process) *balancer {
	t.Helper()
	b := &balancer{}
	for _, p := range replicas {
		b.add(p)
	}
	ctx, stop := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	t.Cleanup(func() {
		stop()
		wait.Wait()
	})
	wait.Go(func() {
		for ctx.Err() == nil {
			b.look()
			time.Sleep(200 * time.Millisecond)
		}
	})
	return b
}

// look asks all replicas whether they are ready.
func (b *balancer) look() {
	b.mu.Lock()
	targets := append([]*target(nil), b.targets...)
	b.mu.Unlock()
	for _, of := range targets {
		ready := of.process.Ready()
		b.mu.Lock()
		of.out = !ready
		b.mu.Unlock()
		if !ready {
			b.unready.Add(1)
		}
	}
}

func (b *balancer) add(p *processtest.Process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.targets = append(b.targets, &target{process: p})
}

// remove takes a replica out for good.
func (b *balancer) remove(p *processtest.Process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, of := range b.targets {
		if of.process == p {
			b.targets = append(b.targets[:i:i], b.targets[i+1:]...)
			return
		}
	}
}

// pick returns the replica whose turn it is, or nil if none is left.
func (b *balancer) pick() *target {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range b.targets {
		b.next++
		if of := b.targets[b.next%len(b.targets)]; !of.out && !of.leaving {
			return of
		}
	}
	return nil
}

// mark notes what a replica has told by its answer or by refusing a connection.
func (b *balancer) mark(of *target, refused, leaving bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	of.out = of.out || refused
	of.leaving = of.leaving || leaving
}
