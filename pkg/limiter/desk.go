// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"time"
)

// Bounds of a grant.
const (
	// MaxGrant is the most requests that can be granted.
	MaxGrant = 1_000_000
	// MaxGrantTime is the longest time for which they can be.
	MaxGrantTime = 31 * 24 * time.Hour
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

// Inspect returns the state of a subject, with the times of the last requests of each window, 0 to 1,000 of
// them. It writes nothing. Errors are those of CheckBudgets.
func (s *SlidingWindow) Inspect(ctx context.Context, subject Subject, last int, limits ...Limit) (State, error) {
	panic("not yet")
}

// Reset clears the logs of windows and returns how many requests each counted. A rejection that this
// process remembers is forgotten; other processes may remember theirs for Options.DenyMemory.
func (s *SlidingWindow) Reset(ctx context.Context, subject Subject, windows ...time.Duration) ([]int64, error) {
	panic("not yet")
}

// Grant allows a subject so many requests on top of its limits, 1 to MaxGrant, until a time from now
// is over, whole seconds, 1 s to MaxGrantTime. A request is charged to the grant, and to no log, when a
// limit of the subject is used up. It replaces the grant that the subject had, which is returned, or
// nil. Memory is forgotten as by Reset.
func (s *SlidingWindow) Grant(ctx context.Context, subject Subject, requests int64, lasts time.Duration) (now Grant, before *Grant, err error) {
	panic("not yet")
}

// Revoke takes the grant of a subject back, and returns it; nil if there was none.
func (s *SlidingWindow) Revoke(ctx context.Context, subject Subject) (*Grant, error) {
	panic("not yet")
}

// Times returns when the requests in the log of a window were admitted, oldest first. It reads the log
// in pieces, so that a long one does not hold up Redis, and is exact unless requests are admitted
// meanwhile. Errors are those of CheckBudgets.
func (s *SlidingWindow) Times(ctx context.Context, subject Subject, window time.Duration) ([]time.Time, error) {
	panic("not yet")
}
