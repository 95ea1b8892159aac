// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
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
// hold up the callers: a client of go-redis that does not is refused. NewClient makes one that does.
func NewSlidingWindow(client redis.Scripter, options Options) (*SlidingWindow, error) {
	if ignoresDeadlines(client) {
		return nil, errors.New("limiter: the Redis client ignores deadlines: set ContextTimeoutEnabled in its options")
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
// full is the answer. One call is one script execution and one round trip, however many limits.
//
// CheckAll blocks until Redis has answered, ctx has ended or the timeout of the options is over.
// The error wraps ErrInvalid, ErrReply, or else says why Redis could not be asked; the decision
// is then empty. Whether to let the request pass is the caller's choice.
func (s *SlidingWindow) CheckAll(ctx context.Context, subject Subject, limits ...Limit) (Decision, error) {
	return s.ask(ctx, s.members.make(), subject, limits)
}

// LookAll is CheckAll without the charge: it asks whether a request of the subject would be
// admitted now, and writes nothing. Remaining then still counts that request.
func (s *SlidingWindow) LookAll(ctx context.Context, subject Subject, limits ...Limit) (Decision, error) {
	return s.ask(ctx, noMember, subject, limits)
}

// noMember makes the script only look.
const noMember = ""

// ask runs the script for a member.
func (s *SlidingWindow) ask(ctx context.Context, member string, subject Subject, limits []Limit) (Decision, error) {
	if err := subject.validate(); err != nil {
		return Decision{}, fmt.Errorf("limiter: %w", err)
	}
	limits, err := shortestFirst(limits)
	if err != nil {
		return Decision{}, fmt.Errorf("limiter: %w", err)
	}
	if i := slices.IndexFunc(limits, func(l Limit) bool { return l.Requests == 0 }); i >= 0 {
		return Decision{Limit: limits[i]}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	keys, args := s.call(member, subject, limits)
	reply, err := slidingWindow.Run(ctx, s.client, keys, args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return Decision{}, fmt.Errorf("limiter: asking Redis: %w", err)
	}
	return decide(reply, limits)
}

// call returns the KEYS and ARGV that sliding_window.lua documents.
func (s *SlidingWindow) call(member string, subject Subject, limits []Limit) (keys []string, args []any) {
	keys = make([]string, len(limits))
	args = make([]any, 2, 2+2*len(limits))
	args[0], args[1] = member, s.now()
	for i, l := range limits {
		keys[i] = subject.Key(l.Window)
		args = append(args, l.Requests, int64(l.Window/time.Second)+1)
	}
	return keys, args
}

// maxWait is the longest wait, in microseconds, that a time.Duration of whole seconds can express.
const maxWait = math.MaxInt64 / int64(time.Second) * (int64(time.Second) / int64(time.Microsecond))

// decide turns the script's reply into a decision.
func decide(reply any, limits []Limit) (Decision, error) {
	numbers, ok := integers(reply)
	switch {
	case !ok || len(numbers) < 2 || numbers[0] < 0 || numbers[0] > int64(len(limits)):
	case numbers[0] > 0 && len(numbers) == 2 && numbers[1] > 0 && numbers[1] <= maxWait:
		return Decision{
			Limit:      limits[numbers[0]-1],
			RetryAfter: wholeSeconds(numbers[1]),
			Wait:       time.Duration(numbers[1]) * time.Microsecond,
		}, nil
	case numbers[0] == 0 && len(numbers) == 1+len(limits) && possible(numbers[1:], limits):
		return admitted(numbers[1:], limits), nil
	}
	return Decision{}, fmt.Errorf("limiter: %w: %v", ErrReply, reply)
}

// admitted is the decision to admit, with so many requests remaining of each limit.
func admitted(remaining []int64, limits []Limit) Decision {
	d := Decision{Allowed: true, Usage: make([]Usage, len(limits))}
	least := 0
	for i, r := range remaining {
		d.Usage[i] = Usage{Limit: limits[i], Remaining: r}
		if r < remaining[least] {
			least = i
		}
	}
	d.Limit, d.Remaining = limits[least], remaining[least]
	return d
}

// possible reports whether every limit can have that many requests remaining.
func possible(remaining []int64, limits []Limit) bool {
	for i, l := range limits {
		if remaining[i] < 0 || remaining[i] > l.Requests {
			return false
		}
	}
	return true
}

// integers returns the elements of an array reply, and whether it was one of integers only.
func integers(reply any) ([]int64, bool) {
	elements, ok := reply.([]any)
	if !ok {
		return nil, false
	}
	numbers := make([]int64, len(elements))
	for i, element := range elements {
		if numbers[i], ok = element.(int64); !ok {
			return nil, false
		}
	}
	return numbers, true
}

// wholeSeconds rounds microseconds, at least 1, up to whole seconds.
func wholeSeconds(microseconds int64) time.Duration {
	const second = int64(time.Second / time.Microsecond)
	return time.Duration((microseconds-1)/second+1) * time.Second
}
