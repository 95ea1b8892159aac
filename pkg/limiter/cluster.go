// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

// clusterStore is the store in a Redis Cluster. Each primary has a pipeline and a breaker of its own, so
// that one that does not answer holds up no calls to others.
type clusterStore struct {
	client  *redis.ClusterClient
	timeout time.Duration
	servers sync.Map // of *redis.Client, to *server
	state   breaker  // of the question where the slots are
}

// retryEvery is how long to wait before a call is tried again when its slot is on the move, or its
// primary has just been replaced.
const retryEvery = 10 * time.Millisecond

func (c *clusterStore) open() bool {
	open := c.state.open()
	c.servers.Range(func(_, s any) bool {
		open = open || s.(*server).open()
		return !open
	})
	return open
}

func (c *clusterStore) do(ctx context.Context, call *call) (any, error) {
	server, err := c.serverOf(ctx, call.keys[0])
	if err != nil {
		return nil, err
	}
	reply, err := server.do(ctx, call)
	if err == nil || ctx.Err() != nil {
		return reply, c.noted(ctx, err)
	}
	for c.mayMoveOn(ctx, err) {
		// The client itself follows MOVED and ASK, and learns from them where the slots are now.
		call.again = true
		cmd := redis.NewCmd(ctx, call.command(true)...)
		_ = c.client.Process(ctx, cmd)
		if reply, err = cmd.Result(); err == nil || !isReply(err) || !wait(ctx, retryEvery) {
			break
		}
	}
	return reply, c.noted(ctx, err)
}

// noted makes the client look for new primaries if one does not answer.
func (c *clusterStore) noted(ctx context.Context, err error) error {
	if err != nil && isAway(err) {
		c.client.ReloadState(ctx)
	}
	return err
}

// mayMoveOn returns whether a call that failed may succeed on another primary, or on the same one
// when the move of a slot is over, for which it is worth waiting (TRYAGAIN).
func (c *clusterStore) mayMoveOn(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, ErrCircuitOpen) {
		return false
	}
	if !isReply(err) {
		return true
	}
	for _, prefix := range []string{"MOVED", "ASK", "TRYAGAIN", "READONLY"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// serverOf returns the store in the primary of a key. The client has one *redis.Client for each node.
func (c *clusterStore) serverOf(ctx context.Context, key string) (*server, error) {
	primary, err := c.state.do(func() (any, error) {
		primary, err := c.client.MasterForKey(ctx, key)
		return primary, excused(ctx, err)
	})
	if err != nil {
		return nil, err
	}
	if s, ok := c.servers.Load(primary); ok {
		return s.(*server), nil
	}
	s, _ := c.servers.LoadOrStore(primary, newServer(primary.(*redis.Client), c.timeout))
	return s.(*server), nil
}

// ready returns an error if calls about a key fail at once.
func (c *clusterStore) ready(ctx context.Context, key string) error {
	server, err := c.serverOf(ctx, key)
	if err == nil && server.breaker.circuit.State() == gobreaker.StateOpen {
		return errOpen
	}
	return err
}

// wait waits, and returns false if ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
