// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Bounds of a Limit.
const (
	// MaxRequests is the largest Limit.Requests.
	MaxRequests = 1_000_000_000
	// MaxWindow is the longest Limit.Window.
	MaxWindow = 366 * 24 * time.Hour
)

var (
	// ErrInvalid is wrapped by the error for a check that cannot be asked: no user, no limit, a
	// kind, limit or window outside its range, or one subject twice. It is found before Redis is
	// asked.
	ErrInvalid = errors.New("invalid check")

	// ErrReply is wrapped by the error for an answer of Redis that is missing or is not one that
	// the script gives. Whether the request was charged is then unknown.
	ErrReply = errors.New("unexpected reply from Redis")

	// ErrCircuitOpen is wrapped by the error for a check that Redis was not asked about, because it
	// has not answered the last ones. Nothing was charged.
	ErrCircuitOpen = errors.New("circuit open")
)

// Limit is so many requests in any stretch of time as long as the window.
type Limit struct {
	// Requests is the number of requests admitted in the window, 0 to MaxRequests. 0 admits nobody.
	// Example: 5.
	Requests int64
	// Window is the length of the window, whole seconds, 1 s to MaxWindow. Example: time.Minute.
	Window time.Duration
}

// Budget is the limits of one subject.
type Budget struct {
	// Subject is whose log is charged.
	Subject Subject
	// Limits are what must all have room, each for another window; at least one.
	Limits []Limit
}

// Decision is the answer to a check. A rejection is a decision, not an error.
type Decision struct {
	// Allowed is true when the request may go on; it has then been charged to every window.
	Allowed bool
	// Limit is the limit that this decision speaks of: the one that rejected the request or, when
	// it was admitted, the one with the fewest requests remaining (of equals the shortest).
	// Example: 5 requests in time.Minute.
	Limit Limit
	// Budget is the index of the budget that Limit belongs to, 0 if there is only one.
	Budget int
	// Remaining is how many more requests Limit would admit now, 0 when rejected. Example: 4.
	Remaining int64
	// RetryAfter is how long to wait until Limit could admit a request like this one: whole
	// seconds, rounded up, at least 1 s. It is 0 when admitted, and 0 when no wait would help
	// because Limit.Requests is 0. Example: 42 * time.Second.
	RetryAfter time.Duration
	// Wait is RetryAfter before it was rounded up, in whole microseconds.
	// Example: 41_203_518 * time.Microsecond.
	Wait time.Duration
	// Usage is what is left of every limit, budget by budget and of the shortest window first. It is
	// empty when rejected: the windows after the one that rejected were not looked at.
	Usage []Usage
	// Grant is the grant of the first budget's subject. It is looked at only when it matters: when a
	// limit of that budget is used up, or is by this request. Then Limit.Requests, Remaining and Usage of
	// the budget have what the grant allows on top. Nil if it was not looked at, or there is none.
	Grant *GrantUse
	// Remembered is true for a rejection that was answered from the memory of this process
	// (Options.DenyMemory); Redis was not asked.
	Remembered bool
}

// GrantUse is what a decision says of a grant.
type GrantUse struct {
	// Requests is how many requests were granted.
	Requests int64
	// Remaining is how many of them are left.
	Remaining int64
	// Charged is true when this request was charged to the grant, and to no log of the budget.
	Charged bool
}

// Usage is what is left of one limit.
type Usage struct {
	// Limit is the limit.
	Limit Limit
	// Budget is the index of the budget that it belongs to.
	Budget int
	// Remaining is how many more requests it would admit now. Example: 4.
	Remaining int64
}

// validate returns an error that wraps ErrInvalid unless l is within its documented ranges.
func (l Limit) validate() error {
	switch {
	case l.Requests < 0 || l.Requests > MaxRequests:
		return fmt.Errorf("%w: a limit of %d requests is outside 0 to %d", ErrInvalid, l.Requests, MaxRequests)
	case l.Window < time.Second || l.Window > MaxWindow:
		return fmt.Errorf("%w: a window of %v is outside 1s to %v", ErrInvalid, l.Window, MaxWindow)
	case l.Window%time.Second != 0:
		return fmt.Errorf("%w: a window of %v is not a whole number of seconds", ErrInvalid, l.Window)
	}
	return nil
}

// normalized returns the budgets with the limits of each in the order in which they are checked, the
// shortest window first. The given slices are left as they are.
func normalized(budgets []Budget) ([]Budget, error) {
	if len(budgets) == 0 {
		return nil, fmt.Errorf("%w: no budget given", ErrInvalid)
	}
	for i, b := range budgets {
		if err := b.Subject.validate(); err != nil {
			return nil, err
		}
		for _, other := range budgets[:i] {
			if other.Subject == b.Subject {
				return nil, fmt.Errorf("%w: two budgets for one subject", ErrInvalid)
			}
		}
		limits, err := shortestFirst(b.Limits)
		if err != nil {
			return nil, err
		}
		if &limits[0] != &b.Limits[0] {
			budgets = slices.Clone(budgets)
			budgets[i].Limits = limits
		}
	}
	return budgets, nil
}

// byZero returns the rejection by the first limit of 0, if there is one: nobody needs to be asked, and
// no wait would help.
func byZero(budgets []Budget) (Decision, bool) {
	for i, b := range budgets {
		if zero := slices.IndexFunc(b.Limits, func(l Limit) bool { return l.Requests == 0 }); zero >= 0 {
			return Decision{Limit: b.Limits[zero], Budget: i}, true
		}
	}
	return Decision{}, false
}

// shortestFirst returns the limits in the order in which they are checked. The given slice is
// left as it is.
func shortestFirst(limits []Limit) ([]Limit, error) {
	if len(limits) == 0 {
		return nil, fmt.Errorf("%w: no limit given", ErrInvalid)
	}
	byWindow := func(a, b Limit) int { return cmp.Compare(a.Window, b.Window) }
	if !slices.IsSortedFunc(limits, byWindow) {
		limits = slices.SortedFunc(slices.Values(limits), byWindow)
	}
	for i, l := range limits {
		if err := l.validate(); err != nil {
			return nil, err
		}
		if i > 0 && l.Window == limits[i-1].Window {
			return nil, fmt.Errorf("%w: two limits for the same window of %v", ErrInvalid, l.Window)
		}
	}
	return limits, nil
}
