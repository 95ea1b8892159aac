// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

// store executes scripts. All keys of a call are in one slot of a Redis Cluster. It returns when ctx
// ends at the latest.
type store interface {
	do(ctx context.Context, c *call) (any, error)
	// open returns whether calls fail at once, or some of them, because Redis does not answer.
	open() bool
}

const (
	// tripAfter is how many calls must have failed in a row before calls fail without being made.
	tripAfter = 5
	// tripFor is for how long they then do, before one call tries again.
	tripFor = 500 * time.Millisecond
)

// breaker fails calls at once while the store behind it is away: checks do not wait for a Redis that
// does not answer, and it is not asked by all of them again and again.
type breaker struct {
	circuit *gobreaker.CircuitBreaker[any]
}

func newBreaker() breaker {
	return breaker{gobreaker.NewCircuitBreaker[any](gobreaker.Settings{
		MaxRequests:  1,
		Timeout:      tripFor,
		ReadyToTrip:  func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= tripAfter },
		IsSuccessful: func(err error) bool { return err == nil || !isAway(err) },
		IsExcluded:   func(err error) bool { return errors.As(err, new(callerLeft)) },
	})}
}

func (b breaker) do(ask func() (any, error)) (any, error) {
	reply, err := b.circuit.Execute(ask)
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return nil, errOpen
	}
	return reply, err
}

var errOpen = fmt.Errorf("%w: the last %d checks failed, and one tries again every %v", ErrCircuitOpen, tripAfter, tripFor)

func (b breaker) open() bool { return b.circuit.State() != gobreaker.StateClosed }

// callerLeft is the error for a call whose caller did not wait for the timeout, which says nothing
// about Redis.
type callerLeft struct{ error }

func (c callerLeft) Unwrap() error { return c.error }

// caller is the key of the caller's context in that of a check, which also has the timeout.
type caller struct{}

// excused marks an error as the caller's if it is.
func excused(ctx context.Context, err error) error {
	if err == nil || isReply(err) {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return callerLeft{err}
	}
	its, ok := ctx.Value(caller{}).(context.Context)
	if !ok {
		return err
	}
	if deadline, limited := its.Deadline(); limited && !time.Now().Before(deadline) { // also if its timer is late
		return callerLeft{context.DeadlineExceeded}
	}
	return err
}

// isAway returns whether an error says that there is nobody to decide. With any other reply Redis has
// decided not to.
func isAway(err error) bool {
	for _, prefix := range []string{"LOADING", "MASTERDOWN", "CLUSTERDOWN", "READONLY"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return !isReply(err)
}

// isReply returns whether an error is an answer of Redis.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// newStore returns the store behind a client.
func newStore(client redis.UniversalClient, timeout time.Duration) (store, error) {
	if ignoresDeadlines(client) {
		return nil, errors.New("the Redis client ignores deadlines: set ContextTimeoutEnabled in its options")
	}
	switch c := client.(type) {
	case *redis.Client:
		return newServer(c, timeout), nil
	case *redis.ClusterClient:
		return &clusterStore{client: c, timeout: timeout, state: newBreaker()}, nil
	}
	return nil, fmt.Errorf("a %T is not a client of one Redis, of Sentinel or of Redis Cluster", client)
}

// openFor is for how long a server that failed is said to be away, if it is not asked again.
const openFor = 5 * time.Second

// server is the store in one Redis: the only one, the primary that Sentinel names, or one of a
// cluster.
type server struct {
	pipeline *pipeline
	breaker  breaker
	failed   atomic.Int64 // when a call failed last, in nanoseconds since the epoch
}

func newServer(client *redis.Client, timeout time.Duration) *server {
	return &server{pipeline: newPipeline(client, timeout), breaker: newBreaker()}
}

func (s *server) do(ctx context.Context, c *call) (any, error) {
	reply, err := s.breaker.do(func() (any, error) {
		reply, err := s.pipeline.do(ctx, c)
		return reply, excused(ctx, err)
	})
	if err != nil {
		s.failed.Store(time.Now().UnixNano())
	}
	return reply, err
}

func (s *server) open() bool {
	return s.breaker.open() && time.Since(time.Unix(0, s.failed.Load())) < openFor
}
