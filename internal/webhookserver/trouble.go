// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

const (
	// troubleReminder is how often lasting trouble is logged again.
	troubleReminder = 30 * time.Second
	// troubleOver is how long every check must have gone well before trouble counts as over. A
	// store that fails now and then is one outage, not many.
	troubleOver = 5 * time.Second
)

// trouble logs when one kind of trouble begins, that it goes on, and when it is over: a few lines,
// not one for each check.
type trouble struct {
	log    logr.Logger
	begins string
	ends   string
	now    func() time.Time

	lasting atomic.Bool // lets a check that went well return without a lock
	mu      sync.Mutex
	failed  int       // checks since it began
	last    time.Time // the last failure
	logged  time.Time // when a failure was logged last
}

// observe takes note of how one check went.
func (t *trouble) observe(err error) {
	if err == nil && !t.lasting.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if err == nil {
		if t.lasting.Load() && now.Sub(t.last) >= troubleOver {
			t.lasting.Store(false)
			t.log.Info(t.ends, "failedChecks", t.failed)
			t.failed = 0
		}
		return
	}
	t.failed++
	t.last = now
	if !t.lasting.Swap(true) || now.Sub(t.logged) >= troubleReminder {
		t.log.Error(errors.New(shortened(err.Error())), t.begins, "failedChecks", t.failed)
		t.logged = now
	}
}

// shortened bounds what somebody else's error message takes in the log.
func shortened(message string) string {
	const most = 300
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most], "") + "..."
}
