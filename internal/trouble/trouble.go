// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trouble logs what goes wrong again and again in a few lines: when it begins, that it goes on,
// and when it is over.
package trouble

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

// Trouble is one kind of trouble. It is safe for concurrent use.
type Trouble struct {
	// Log is where it is logged.
	Log logr.Logger
	// Begins and Ends are what is logged when it begins, or goes on, and when it is over.
	Begins, Ends string
	// Counts is the name under which the failures since it began are logged. Example: "failedChecks".
	Counts string
	// Reminder is how often lasting trouble is logged again.
	Reminder time.Duration
	// Over is for how long all must have gone well before trouble counts as over. What fails now and
	// then is one outage, not many. 0 ends it with the first success.
	Over time.Duration
	// Now is the clock; nil is time.Now.
	Now func() time.Time

	lasting atomic.Bool // lets a success return without a lock
	mu      sync.Mutex
	failed  int       // since it began
	last    time.Time // the last failure
	logged  time.Time // when a failure was logged last
}

// Observe takes note of how it went once.
func (t *Trouble) Observe(err error) {
	if err == nil && !t.lasting.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if err == nil {
		if t.lasting.Load() && now.Sub(t.last) >= t.Over {
			t.lasting.Store(false)
			t.Log.Info(t.Ends, t.Counts, t.failed)
			t.failed = 0
		}
		return
	}
	t.failed++
	t.last = now
	if !t.lasting.Swap(true) || now.Sub(t.logged) >= t.Reminder {
		t.Log.Error(Shortened(err), t.Begins, t.Counts, t.failed)
		t.logged = now
	}
}

// Lasting returns whether it goes on.
func (t *Trouble) Lasting() bool { return t.lasting.Load() }

func (t *Trouble) now() time.Time {
	if t.Now == nil {
		return time.Now()
	}
	return t.Now()
}

// Shortened bounds what somebody else's error message takes in the log: 300 bytes.
func Shortened(err error) error {
	const most = 300
	message := err.Error()
	if len(message) <= most {
		return err
	}
	return errors.New(strings.ToValidUTF8(message[:most], "") + "...")
}
