// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed sliding_window.lua
var slidingWindowSource string

// slidingWindow is called by its SHA-1 (EVALSHA). When Redis has lost it, by SCRIPT FLUSH, restart
// or failover, that one call repeats it in full (EVAL), which loads it again.
var slidingWindow = redis.NewScript(slidingWindowSource)

const (
	// DefaultTimeout bounds a check when Options.Timeout is 0.
	DefaultTimeout = time.Second
	// MaxTimeout is the largest Options.Timeout.
	MaxTimeout = time.Minute
)

// Options configures a SlidingWindow.
type Options struct {
	// Timeout is the longest that one check may take, waiting for a connection and repeated
	// attempts included. 0 to MaxTimeout; 0 means DefaultTimeout.
	Timeout time.Duration
}

// SlidingWindow checks requests against an exact sliding-window log kept in Redis. It is safe for
// concurrent use, and any number of processes may share the same Redis.
type SlidingWindow struct {
	client  redis.Scripter
	timeout time.Duration
	members *members
	now     func() string // what the script gets as the time; "" for Redis's own, tests differ
}

// NewSlidingWindow returns a limiter over a Redis client. The client must obey the deadline of a
// context (ContextTimeoutEnabled in its options), or else a Redis that has stopped answering would
// hold up the callers: a *redis.Client that does not is refused. NewClient makes one that does.
func NewSlidingWindow(client redis.Scripter, options Options) (*SlidingWindow, error) {
	if c, ok := client.(*redis.Client); ok && !c.Options().ContextTimeoutEnabled {
		return nil, errors.New("limiter: the Redis client ignores deadlines: set ContextTimeoutEnabled in its redis.Options")
	}
	if options.Timeout < 0 || options.Timeout > MaxTimeout {
		return nil, fmt.Errorf("limiter: a timeout of %v is outside 0 to %v", options.Timeout, MaxTimeout)
	}
	if options.Timeout == 0 {
		options.Timeout = DefaultTimeout
	}
	return &SlidingWindow{
		client:  client,
		timeout: options.Timeout,
		members: newMembers(),
		now:     func() string { return "" },
	}, nil
}

// Check asks whether one more request of the user fits into limit requests per window, and
// charges it if so. It is CheckAll for a Subject that is just a user, with a single Limit.
func (s *SlidingWindow) Check(ctx context.Context, user string, limit int64, window time.Duration) (Decision, error) {
	return s.CheckAll(ctx, Subject{User: user}, Limit{Requests: limit, Window: window})
}

// CheckAll asks whether one more request of the subject fits into every limit, and charges it to
// all of them if so, else to none. The shortest window is looked at first, and the first that is
// full is the answer. It is CheckBudgets with a single Budget.
func (s *SlidingWindow) CheckAll(ctx context.Context, subject Subject, limits ...Limit) (Decision, error) {
	return s.CheckBudgets(ctx, Budget{Subject: subject, Limits: limits})
}

// LookAll is CheckAll without the charge: it asks whether a request of the subject would be
// admitted now, and writes nothing. Remaining then still counts that request.
func (s *SlidingWindow) LookAll(ctx context.Context, subject Subject, limits ...Limit) (Decision, error) {
	return s.LookBudgets(ctx, Budget{Subject: subject, Limits: limits})
}

// CheckBudgets asks whether one more request fits into every limit of every budget, and charges it
// to all of them if so, else to none: that of a user, say, and one that all users share. Budgets
// are looked at in the order given and each by its shortest window first; the first window that is
// full is the answer. One call is one script execution and one round trip, however many limits; see
// the package's documentation for several budgets on Redis Cluster.
//
// CheckBudgets blocks until Redis has answered, ctx has ended or the timeout of the options is over.
// The error wraps ErrInvalid, ErrReply, ErrCircuitOpen, or else says why Redis could not be asked;
// the decision is then empty. Whether to let the request pass is the caller's choice.
func (s *SlidingWindow) CheckBudgets(ctx context.Context, budgets ...Budget) (Decision, error) {
	return s.ask(ctx, s.members.make(), budgets)
}

// LookBudgets is CheckBudgets without the charge.
func (s *SlidingWindow) LookBudgets(ctx context.Context, budgets ...Budget) (Decision, error) {
	return s.ask(ctx, noMember, budgets)
}

// noMember makes the script only look.
const noMember = ""

// ask runs the script for a member.
func (s *SlidingWindow) ask(ctx context.Context, member string, budgets []Budget) (Decision, error) {
	budgets, err := normalized(budgets)
	if err != nil {
		return Decision{}, fmt.Errorf("limiter: %w", err)
	}
	for i, b := range budgets {
		if zero := slices.IndexFunc(b.Limits, func(l Limit) bool { return l.Requests == 0 }); zero >= 0 {
			return Decision{Limit: b.Limits[zero], Budget: i}, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	keys, args := s.call(member, budgets)
	reply, err := slidingWindow.Run(ctx, s.client, keys, args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return Decision{}, fmt.Errorf("limiter: asking Redis: %w", err)
	}
	return decide(reply, budgets)
}

// call returns the KEYS and ARGV that sliding_window.lua documents.
func (s *SlidingWindow) call(member string, budgets []Budget) (keys []string, args []any) {
	args = append(args, member, s.now())
	for _, b := range budgets {
		for _, l := range b.Limits {
			keys = append(keys, b.Subject.Key(l.Window))
			args = append(args, l.Requests, int64(l.Window/time.Second)+1)
		}
	}
	return keys, args
}
