// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

const (
	// outageReminder is how often a lasting outage is logged again.
	outageReminder = 30 * time.Second
	// outageOver is how long every check must have gone well before an outage counts as over. A
	// store that fails now and then is one outage, not many.
	outageOver = 5 * time.Second
)

// outage logs when the store begins to fail, that it goes on, and when it works again: a few lines
// for an outage, not one for each check.
type outage struct {
	log     logr.Logger
	now     func() time.Time
	failing atomic.Bool // lets a check that went well return without a lock

	mu     sync.Mutex
	failed int       // checks since the outage began
	last   time.Time // the last failure
	logged time.Time // when a failure was logged last
}

// observe takes note of how one check of the store went.
func (o *outage) observe(err error) {
	if err == nil && !o.failing.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	if err == nil {
		if o.failing.Load() && now.Sub(o.last) >= outageOver {
			o.failing.Store(false)
			o.log.Info("the rate limit store answers again", "failedChecks", o.failed)
			o.failed = 0
		}
		return
	}
	o.failed++
	o.last = now
	if !o.failing.Swap(true) || now.Sub(o.logged) >= outageReminder {
		o.log.Error(err, "the rate limit store cannot be asked; each tier's failurePolicy decides", "failedChecks", o.failed)
		o.logged = now
	}
}
