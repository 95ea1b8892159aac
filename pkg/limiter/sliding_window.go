// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// DefaultTimeout bounds a check when Options.Timeout is 0.
	DefaultTimeout = time.Second
	// MaxTimeout is the largest Options.Timeout.
	MaxTimeout = time.Minute
	// MaxDenyMemory is the largest Options.DenyMemory.
	MaxDenyMemory = time.Minute
)

// Options configures a SlidingWindow.
type Options struct {
	// Timeout is the longest that one check may take, waiting for a connection and repeated
	// attempts included. 0 to MaxTimeout; 0 means DefaultTimeout.
	Timeout time.Duration
	// DenyMemory is the longest time for which a rejection is remembered in this process: until then,
	// and not beyond the end of the wait, the same subject with the same limits is rejected without
	// asking Redis. 0 to MaxDenyMemory; 0 remembers nothing. It is also how long a log that was
	// cleared may still be taken for full.
	DenyMemory time.Duration
}

// SlidingWindow checks requests against an exact sliding-window log kept in Redis. It is safe for
// concurrent use, and any number of processes may share the same Redis.
type SlidingWindow struct {
	store   store
	apart   bool // budgets are in different places, and one script cannot decide on them together
	timeout time.Duration
	members *members
	denials *denials
	now     func() string // what the script gets as the time; "" for Redis's own, tests differ
}

// NewSlidingWindow returns a limiter over a client of one Redis, of Sentinel or of Redis Cluster.
// The client must obey the deadline of a context (ContextTimeoutEnabled in its options), or else a
// Redis that has stopped answering would hold up the callers: one that does not is refused.
// NewClient makes one that does.
func NewSlidingWindow(client redis.UniversalClient, options Options) (*SlidingWindow, error) {
	if options.Timeout < 0 || options.Timeout > MaxTimeout {
		return nil, fmt.Errorf("limiter: a timeout of %v is outside 0 to %v", options.Timeout, MaxTimeout)
	}
	if options.DenyMemory < 0 || options.DenyMemory > MaxDenyMemory {
		return nil, fmt.Errorf("limiter: a deny memory of %v is outside 0 to %v", options.DenyMemory, MaxDenyMemory)
	}
	timeout := cmp.Or(options.Timeout, DefaultTimeout)
	store, err := newStore(client, timeout)
	if err != nil {
		return nil, fmt.Errorf("limiter: %w", err)
	}
	_, apart := store.(*clusterStore)
	return &SlidingWindow{
		store:   store,
		apart:   apart,
		timeout: timeout,
		members: newMembers(),
		denials: newDenials(options.DenyMemory),
		now:     func() string { return "" },
	}, nil
}

// CircuitOpen returns whether checks are answered with ErrCircuitOpen now, or some of them in a
// cluster, because Redis does not answer.
func (s *SlidingWindow) CircuitOpen() bool { return s.store.open() }

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
	return s.ask(ctx, true, budgets)
}

// LookBudgets is CheckBudgets without the charge.
func (s *SlidingWindow) LookBudgets(ctx context.Context, budgets ...Budget) (Decision, error) {
	return s.ask(ctx, false, budgets)
}

func (s *SlidingWindow) ask(ctx context.Context, charge bool, budgets []Budget) (Decision, error) {
	budgets, err := normalized(budgets)
	if err != nil {
		return Decision{}, fmt.Errorf("limiter: %w", err)
	}
	if rejection, ok := byZero(budgets); ok {
		return rejection, nil
	}
	if rejection, ok := s.denials.recall(budgets); ok {
		return rejection, nil
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, caller{}, ctx), s.timeout)
	defer cancel()
	sent := s.denials.now()
	var d Decision
	switch {
	case !charge:
		d, err = s.look(ctx, budgets)
	case s.apart && len(budgets) > 1:
		d, err = s.chargeApart(ctx, budgets)
	default:
		d, err = s.run(ctx, s.call(s.members.make(budgets), budgets), budgets, nil)
	}
	if err != nil {
		return Decision{}, fmt.Errorf("limiter: %w", err)
	}
	if !d.Allowed {
		s.denials.remember(budgets[d.Budget], d, sent)
	}
	return d, nil
}

// noMember makes the script only look.
const noMember = ""

// look asks whether a request would be admitted.
func (s *SlidingWindow) look(ctx context.Context, budgets []Budget) (Decision, error) {
	if s.apart {
		return eachApart(budgets, func(i int, b []Budget) (Decision, error) {
			return s.run(ctx, s.callOf(i, noMember, b), b, nil)
		})
	}
	return s.run(ctx, s.call(noMember, budgets), budgets, nil)
}

// run executes a call of the script, for budgets whose logs are in one place. While others hold
// reservations that make the difference, which usually takes a round trip, it asks again, unless
// otherwise decides meanwhile (nil: nothing does).
func (s *SlidingWindow) run(ctx context.Context, c *call, budgets []Budget, otherwise func(context.Context) (Decision, bool)) (Decision, error) {
	d, err := s.once(ctx, c, budgets)
	if err != errUndecided { //nolint:errorlint // it comes as it is
		return d, err
	}
	// From here on it is this request's time that ends, whatever Redis does.
	ctx = context.WithValue(ctx, caller{}, ctx)
	for pause := undecidedFor; ; pause = min(2*pause, 16*undecidedFor) {
		if otherwise != nil {
			if d, ok := otherwise(ctx); ok {
				return d, nil
			}
		}
		if !wait(ctx, pause/2+rand.N(pause)) { //nolint:gosec // it only spreads them
			return Decision{}, errUndecided
		}
		if d, err = s.once(ctx, c, budgets); err != errUndecided { //nolint:errorlint // it comes as it is
			return d, err
		}
	}
}

// undecidedFor is how long to wait about for others to be decided before asking again.
const undecidedFor = 2 * time.Millisecond

func (s *SlidingWindow) once(ctx context.Context, c *call, budgets []Budget) (Decision, error) {
	reply, err := s.store.do(ctx, c)
	if err != nil && err != redis.Nil { //nolint:errorlint // wrapped in another error it is none of this script's replies
		return Decision{}, fmt.Errorf("asking Redis: %w", err)
	}
	return decide(reply, budgets)
}

// call returns the call that sliding_window.lua documents, with the grant of the first budget.
func (s *SlidingWindow) call(member string, budgets []Budget) *call {
	n := windowsOf(budgets)
	c := &call{script: slidingWindow, keys: make([]string, 0, n+1), args: make([]any, 0, 1+2*n), now: s.now()}
	c.args = append(c.args, member)
	var grant string
	for i, b := range budgets {
		var another string
		c.keys, another = b.Subject.appendKeys(c.keys, b.Limits, s.apart)
		if i == 0 {
			grant = another
		}
		for _, l := range b.Limits {
			c.args = append(c.args, l.Requests, int64(l.Window/time.Second)+1)
		}
	}
	c.keys = append(c.keys, grant)
	if len(budgets) > 1 {
		c.own = strconv.Itoa(len(budgets[0].Limits))
	}
	if s.apart {
		c.lease = strconv.FormatInt(s.lease().Microseconds(), 10)
	}
	return c
}

// callOf is call for the budget of an index alone. A grant is for the first one only.
func (s *SlidingWindow) callOf(index int, member string, b []Budget) *call {
	c := s.call(member, b)
	if index > 0 {
		c.own = "0"
	}
	return c
}

// key returns the name of a log.
func (s *SlidingWindow) key(subject Subject, window time.Duration) string {
	return subject.log(window, s.apart)
}
