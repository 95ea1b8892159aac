// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Bounds of the memory of a Local.
const (
	// DefaultLocalBytes is the memory when LocalOptions.MaxBytes is 0: 64 MiB, enough for the
	// logs of 110,000 users with a minute and a day of 5 requests each.
	DefaultLocalBytes = 64 << 20
	// MaxLocalBytes is the largest LocalOptions.MaxBytes: 64 GiB.
	MaxLocalBytes = 64 << 30
)

// ErrFull is wrapped by the error for a check that a Local has no memory left to remember. Nothing
// was charged.
var ErrFull = errors.New("no memory left for local budgets")

// LocalOptions configures a Local.
type LocalOptions struct {
	// MaxBytes is the most memory that logs may take, 0 to MaxLocalBytes; 0 means DefaultLocalBytes.
	// What the garbage collector has not collected yet comes on top.
	MaxBytes int64
}

// Local checks requests against an exact sliding-window log kept in the memory of this process. Its
// decisions are those of a SlidingWindow that nobody else uses. It is safe for concurrent use, never
// blocks for long and asks nobody. It is for the time when Redis is away: each process then holds a
// part of the budget.
//
// Logs stay as long as their window, so that the budgets of one outage still hold in the next. The
// time is that of the process and does not follow the clock on the wall. Memory is bounded: a check
// that could not be remembered is an error, neither a rejection nor an admission that does not count.
type Local struct {
	maxBytes int64
	now      func() int64 // microseconds since some moment; never less than before

	mu       sync.Mutex
	logs     map[string]*localLog // by key
	expiries expiries
	bytes    int64 // that all logs take
}

// NewLocal returns a Local without any log.
func NewLocal(options LocalOptions) (*Local, error) {
	if options.MaxBytes < 0 || options.MaxBytes > MaxLocalBytes {
		return nil, fmt.Errorf("limiter: a memory of %d bytes is outside 0 to %d", options.MaxBytes, int64(MaxLocalBytes))
	}
	if options.MaxBytes == 0 {
		options.MaxBytes = DefaultLocalBytes
	}
	start := time.Now()
	return &Local{
		maxBytes: options.MaxBytes,
		now:      func() int64 { return time.Since(start).Microseconds() },
		logs:     map[string]*localLog{},
	}, nil
}

// CheckBudgets is that of a SlidingWindow, in memory. The error wraps ErrInvalid or ErrFull. The
// context does not matter; it is there so that a Local can take the place of a SlidingWindow.
func (l *Local) CheckBudgets(_ context.Context, budgets ...Budget) (Decision, error) {
	return l.ask(true, budgets)
}

// LookBudgets is CheckBudgets without the charge.
func (l *Local) LookBudgets(_ context.Context, budgets ...Budget) (Decision, error) {
	return l.ask(false, budgets)
}

// Bytes returns how much of its memory is taken.
func (l *Local) Bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// localWindow is one window of a check.
type localWindow struct {
	key   string
	limit int64
	width int64     // microseconds
	log   *localLog // nil if there is none
}

func (l *Local) ask(charge bool, budgets []Budget) (Decision, error) {
	budgets, err := normalized(budgets)
	if err != nil {
		return Decision{}, fmt.Errorf("limiter: %w", err)
	}
	if rejection, ok := byZero(budgets); ok {
		return rejection, nil
	}
	windows := make([]localWindow, 0, windowsOf(budgets))
	for _, b := range budgets {
		for _, limit := range b.Limits {
			windows = append(windows, localWindow{key: b.Subject.Key(limit.Window), limit: limit.Requests, width: limit.Window.Microseconds()})
		}
	}
	remaining := make([]int64, len(windows))

	l.mu.Lock()
	full, wait, err := l.decide(charge, windows, remaining)
	l.mu.Unlock()
	switch {
	case err != nil:
		return Decision{}, fmt.Errorf("limiter: %w", err)
	case wait > 0:
		d := rejected(wait)
		d.Budget, d.Limit = window(budgets, full)
		return d, nil
	}
	d, _ := admitted(remaining, budgets, nil)
	return d, nil
}

// decide fills in what remains of each window or else returns the first window that is full and the
// wait in microseconds until it has room.
func (l *Local) decide(charge bool, windows []localWindow, remaining []int64) (full int, wait int64, err error) {
	now := l.now()
	l.sweep(now, sweepSteps)
	for i := range windows {
		w := &windows[i]
		count := int64(0)
		if w.log = l.logs[w.key]; w.log != nil {
			w.log.trim(now - w.width)
			count = int64(w.log.count)
		}
		if count >= w.limit {
			return i, w.log.at(int(count-w.limit)) + w.width - now, nil
		}
		remaining[i] = w.limit - count
	}
	if !charge {
		return 0, 0, nil
	}
	if err := l.reserve(now, windows); err != nil {
		return 0, 0, err
	}
	for i := range windows {
		l.charge(now, &windows[i])
		remaining[i]--
	}
	return 0, 0, nil
}

// reserve makes sure that one more entry in each window has room in memory.
func (l *Local) reserve(now int64, windows []localWindow) error {
	need := func() int64 {
		total := int64(0)
		for i := range windows {
			total += windows[i].growth()
		}
		return total
	}
	if l.bytes+need() <= l.maxBytes {
		return nil
	}
	l.sweep(now, sweepStepsWhenFull)
	for i := range windows {
		windows[i].log = l.logs[windows[i].key] // it may have been swept away
	}
	if l.bytes+need() <= l.maxBytes {
		return nil
	}
	return ErrFull
}

// charge adds an entry to a window for which memory is reserved.
func (l *Local) charge(now int64, w *localWindow) {
	l.bytes += w.growth()
	if w.log == nil {
		w.log = &localLog{key: w.key, width: w.width, expiry: now + w.width}
		l.logs[w.key] = w.log
		l.expiries.push(w.log)
	}
	if capacity := w.grown(); capacity > len(w.log.times) {
		w.log.resize(capacity)
	}
	w.log.add(now)
}
