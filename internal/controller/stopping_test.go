// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"
)

// TestSlowIsNotStopped asks a replica that is about to stop, and does not answer. It answers checks until
// nobody listens any more.
func TestSlowIsNotStopped(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		err    error
		times  int
		holds  bool
	}{
		"Slow":     {reason: "it may only be busy", err: context.DeadlineExceeded, times: 1, holds: true},
		"Answers":  {reason: "it is not ready any more, but is there", err: fmt.Errorf("503"), times: failuresToLog - 1, holds: true},
		"Refuses":  {reason: "its listener is closed", err: fmt.Errorf("dial: %w", syscall.ECONNREFUSED), times: 1},
		"NoRoute":  {reason: "its address is gone", err: fmt.Errorf("dial: %w", syscall.EHOSTUNREACH), times: 1},
		"ForLong":  {reason: "it hangs, and will be killed", err: context.DeadlineExceeded, times: failuresToLog},
		"NotAsked": {reason: "nothing is known of it", times: 0, holds: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := &other{endpoint: endpoint{key: "c", pod: "c", stopping: true}}
			d := others(time.Now(), o)
			for range tc.times {
				d.answered(o, 7, nil, false, tc.err)
			}
			v := d.view()
			p := v.progress("uid", 7)
			if got := len(p.stopping) > 0; got != tc.holds {
				t.Errorf("it is waited for: %v, want %v: %s", got, tc.holds, tc.reason)
			}
		})
	}
}
