// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"time"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// replay returns how many requests limits would have rejected, of those that were made at some times, the
// oldest first. It decides as sliding_window.lua does: a request is admitted, and then charged to all windows, when each
// has fewer entries than its limit that are younger than the window. It overwrites times: a log may be long.
func replay(times []time.Time, limits []limiter.Limit) (rejected int64) {
	admitted := times[:0]
	full := func(l limiter.Limit, now time.Time) bool {
		n := int64(len(admitted))
		// With as many entries or more, the limit-th newest is the one that must have left.
		return n >= l.Requests && (l.Requests == 0 || now.Sub(admitted[n-l.Requests]) < l.Window)
	}
	for _, now := range times {
		room := true
		for _, l := range limits {
			room = room && !full(l, now)
		}
		if room {
			admitted = append(admitted, now)
		} else {
			rejected++
		}
	}
	return rejected
}

// within returns how many requests are younger than a window.
func within(times []time.Time, window time.Duration, now time.Time) int64 {
	n := int64(0)
	for i := len(times) - 1; i >= 0 && now.Sub(times[i]) < window; i-- {
		n++
	}
	return n
}
