// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// Bounds of a grant and of what is told.
const (
	// MaxGrant is the most requests that can be granted. Each that is made takes about 80 bytes in Redis
	// until the grant expires.
	MaxGrant = 100_000
	// MaxGrantTime is the longest time for which they can be.
	MaxGrantTime = 31 * 24 * time.Hour
	// MaxLast is how many of the last requests Inspect tells at the most.
	MaxLast = 1_000
)

// Grant is a temporary allowance of a subject on top of its limits.
type Grant struct {
	// Requests is how many requests were granted. Example: 100.
	Requests int64
	// Used is how many of them were made.
	Used int64
	// ExpiresAt is when what is left lapses, by the clock of Redis.
	ExpiresAt time.Time
}

// State is what is known about a subject at one moment.
type State struct {
	// Now is that moment, by the clock of Redis.
	Now time.Time
	// Windows are the logs, in the order of the shortest window first.
	Windows []WindowState
	// Grant is the grant in force; nil if there is none.
	Grant *Grant
}

// WindowState is the state of one window.
type WindowState struct {
	// Limit is the limit that was asked about.
	Limit Limit
	// Used is how many requests count; it is more than the limit after that was lowered.
	Used int64
	// NextSlotAt is when the window admits one more than now: for a full one when it has room again,
	// else when its oldest entry leaves. Zero for an empty log and for a limit of 0.
	NextSlotAt time.Time
	// EmptyAt is when its newest entry leaves. Zero for an empty log.
	EmptyAt time.Time
	// Last are the times of the newest requests, newest first.
	Last []time.Time
}

// Inspect returns the state of a subject, with the times of the last requests of each window, 0 to
// MaxLast of them. It writes nothing. Errors are those of CheckBudgets.
func (s *SlidingWindow) Inspect(ctx context.Context, subject Subject, last int, limits ...Limit) (State, error) {
	budgets, err := normalized([]Budget{{Subject: subject, Limits: limits}})
	if err == nil && (last < 0 || last > MaxLast) {
		err = fmt.Errorf("%w: the last %d requests are outside 0 to %d", ErrInvalid, last, MaxLast)
	}
	if err != nil {
		return State{}, fmt.Errorf("limiter: %w", err)
	}
	c := s.call(strconv.Itoa(last), budgets)
	c.script, c.lease = inspectScript, ""
	reply, err := s.tell(ctx, c)
	if err != nil {
		return State{}, err
	}
	state, ok := stateOf(reply, budgets[0].Limits)
	if !ok {
		return State{}, unexpected(reply)
	}
	return state, nil
}

// Reset clears the logs of windows, at least one, and returns how many requests each counted. A rejection that
// this process remembers is forgotten; other processes may remember theirs for their
// Options.DenyMemory. Errors are those of CheckBudgets; after one the logs may be cleared or not. If a
// reply was lost on the way and the call was repeated, the numbers may be 0.
func (s *SlidingWindow) Reset(ctx context.Context, subject Subject, windows ...time.Duration) ([]int64, error) {
	limits := make([]Limit, len(windows))
	for i, w := range windows {
		limits[i] = Limit{Window: w}
	}
	if _, err := normalized([]Budget{{Subject: subject, Limits: limits}}); err != nil {
		return nil, fmt.Errorf("limiter: %w", err)
	}
	c := &call{script: resetScript, now: s.now()}
	for _, w := range windows {
		c.keys = append(c.keys, s.key(subject, w))
		c.args = append(c.args, int64(w/time.Second)+1)
	}
	reply, err := s.tell(ctx, c)
	s.denials.forget(subject)
	if err != nil {
		return nil, err
	}
	counted, ok := integers(reply)
	if !ok || len(counted) != len(windows) {
		return nil, unexpected(reply)
	}
	return counted, nil
}

// Grant allows a subject so many requests on top of its limits, 1 to MaxGrant, until a time from now
// is over, whole seconds, 1 s to MaxGrantTime. A request is charged to the grant, and to no log, when a
// limit of the subject is used up; one of 0 stays one. It replaces the grant that the subject had,
// which is returned, or nil. Memory is forgotten, and errors are, as with Reset.
func (s *SlidingWindow) Grant(ctx context.Context, subject Subject, requests int64, lasts time.Duration) (now Grant, before *Grant, err error) {
	switch {
	case requests < 1 || requests > MaxGrant:
		err = fmt.Errorf("%w: a grant of %d requests is outside 1 to %d", ErrInvalid, requests, MaxGrant)
	case lasts < time.Second || lasts > MaxGrantTime:
		err = fmt.Errorf("%w: a grant for %v is outside 1s to %v", ErrInvalid, lasts, MaxGrantTime)
	case lasts%time.Second != 0:
		err = fmt.Errorf("%w: a grant for %v is not for a whole number of seconds", ErrInvalid, lasts)
	}
	if err != nil {
		return Grant{}, nil, fmt.Errorf("limiter: %w", err)
	}
	expiresAt, before, err := s.grant(ctx, subject, requests, lasts)
	return Grant{Requests: requests, ExpiresAt: expiresAt}, before, err
}

// Revoke takes the grant of a subject back, and returns it; nil if there was none. Errors are those of
// Reset.
func (s *SlidingWindow) Revoke(ctx context.Context, subject Subject) (*Grant, error) {
	_, before, err := s.grant(ctx, subject, 0, 0)
	return before, err
}

func (s *SlidingWindow) grant(ctx context.Context, subject Subject, requests int64, lasts time.Duration) (time.Time, *Grant, error) {
	if err := subject.validate(); err != nil {
		return time.Time{}, nil, fmt.Errorf("limiter: %w", err)
	}
	reply, err := s.tell(ctx, &call{script: grantScript, keys: []string{subject.GrantKey(s.apart)}, now: s.now(),
		args: []any{requests, int64(lasts / time.Second), uuid.NewString()}})
	s.denials.forget(subject)
	if err != nil {
		return time.Time{}, nil, err
	}
	numbers, ok := integers(reply)
	if !ok || len(numbers) != 1 && len(numbers) != 4 {
		return time.Time{}, nil, unexpected(reply)
	}
	var before *Grant
	if len(numbers) == 4 {
		before = grantOf(numbers[1:])
	}
	return time.UnixMicro(numbers[0]), before, nil
}

// timesPiece is how many entries of a log are read at once: about 0.3 ms of the server's time.
const timesPiece = 250

// Times returns when the requests in the log of a window were admitted, oldest first, also those that
// have left and are not removed yet. It reads the log in pieces, and rests for as long as each has taken, so that a
// long one does not hold up Redis; requests that are admitted meanwhile may be in it. Errors are those of CheckBudgets.
func (s *SlidingWindow) Times(ctx context.Context, subject Subject, window time.Duration) ([]time.Time, error) {
	if _, err := normalized([]Budget{{Subject: subject, Limits: []Limit{{Window: window}}}}); err != nil {
		return nil, fmt.Errorf("limiter: %w", err)
	}
	var times []time.Time
	for from := "-inf"; ; {
		begun := time.Now()
		reply, err := s.tell(ctx, &call{script: timesScript, keys: []string{s.key(subject, window)}, args: []any{from, timesPiece}})
		if err != nil {
			return nil, err
		}
		numbers, ok := integers(reply)
		if !ok || len(numbers) < 2 {
			return nil, unexpected(reply)
		}
		last, piece := numbers[0], numbers[2:]
		if numbers[1] < timesPiece {
			return appendTimes(times, piece), nil
		}
		// Others of the same microsecond may follow: the next piece begins with all of them.
		from = strconv.FormatInt(last, 10)
		if first := slices.Index(piece, last); first > 0 {
			piece = piece[:first]
		} else {
			from = "(" + from // so many in one microsecond are not told apart from fewer
		}
		times = appendTimes(times, piece)
		if !wait(ctx, time.Since(begun)) {
			return nil, fmt.Errorf("limiter: reading a log: %w", context.Cause(ctx))
		}
	}
}

// tell executes a script that is not a check.
func (s *SlidingWindow) tell(ctx context.Context, c *call) (any, error) {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, caller{}, ctx), s.timeout)
	defer cancel()
	reply, err := s.store.do(ctx, c)
	if err != nil && err != redis.Nil { //nolint:errorlint // it comes as it is
		return nil, fmt.Errorf("limiter: asking Redis: %w", err)
	}
	return reply, nil
}

func unexpected(reply any) error { return fmt.Errorf("limiter: %w: %v", ErrReply, reply) }

// stateOf turns the reply of inspect.lua into a state, and returns whether it is one.
func stateOf(reply any, limits []Limit) (State, bool) {
	elements, ok := reply.([]any)
	if !ok || len(elements) != 2+len(limits) {
		return State{}, false
	}
	now, isTime := elements[0].(int64)
	grant, ok := integers(elements[1])
	if !isTime || !ok || len(grant) != 0 && len(grant) != 3 {
		return State{}, false
	}
	state := State{Now: time.UnixMicro(now), Windows: make([]WindowState, len(limits))}
	if len(grant) == 3 {
		state.Grant = grantOf(grant)
	}
	for i, l := range limits {
		numbers, ok := integers(elements[2+i])
		if !ok || len(numbers) < 3 {
			return State{}, false
		}
		state.Windows[i] = WindowState{Limit: l, Used: numbers[0], NextSlotAt: momentOf(numbers[1]), EmptyAt: momentOf(numbers[2]),
			Last: appendTimes(nil, numbers[3:])}
	}
	return state, true
}

// grantOf is a grant by its requests, those used, and its expiry.
func grantOf(numbers []int64) *Grant {
	return &Grant{Requests: numbers[0], Used: max(numbers[1], 0), ExpiresAt: time.UnixMicro(numbers[2])}
}

// momentOf is a time in microseconds since the epoch, of which 0 is none.
func momentOf(microseconds int64) time.Time {
	if microseconds == 0 {
		return time.Time{}
	}
	return time.UnixMicro(microseconds)
}

func appendTimes(times []time.Time, microseconds []int64) []time.Time {
	for _, m := range microseconds {
		times = append(times, time.UnixMicro(m))
	}
	return times
}
