// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// maxWait is the longest Retry-After that is waited for.
const maxWait = 2 * time.Minute

// waited is what came of waiting for Retry-After.
type waited struct {
	// RetryAfterSeconds is what the rejection said.
	RetryAfterSeconds int64 `json:"retryAfterSeconds"`
	// Status is that of the request after the wait; 0 if there was none.
	Status int `json:"status"`
	// Wrong is true if that was rejected by the same window again.
	Wrong bool `json:"wrong,omitempty"`
	// Note says what was found.
	Note string `json:"note"`
}

// wait has one more request rejected, waits for as long as that says and sends another. It sends them
// alone, so that no request of its own takes the room.
func (l *load) wait(ctx context.Context, d *desk, report *report) *waited {
	if report.Rejected == 0 {
		return &waited{Note: "Nothing was rejected, so there was no Retry-After to wait for."}
	}
	first := l.send(ctx)
	seconds, _, ok := retryAfter(first)
	switch {
	case first.status == 0:
		return &waited{Note: fmt.Sprintf("A request after the load was not answered: %s.", cause(first.err))}
	case first.status != http.StatusTooManyRequests || isAdmitted(first):
		return &waited{Status: first.status, Note: "A request after the load was not rejected, so there was no Retry-After to wait for."}
	case !ok:
		return &waited{Status: first.status, Note: "The rejection has no Retry-After to wait for."}
	case seconds > int64(maxWait/time.Second):
		return &waited{RetryAfterSeconds: seconds, Status: first.status, Note: fmt.Sprintf("Retry-After is %s, longer than the %v that are waited for.", count(seconds, "second"), maxWait)}
	}
	fmt.Fprintf(d.Streams.ErrOut, "Waiting for %d seconds, as Retry-After says ...\n", seconds)
	if err := pause(ctx, time.Until(first.answered.Add(time.Duration(seconds)*time.Second))); err != nil {
		return &waited{RetryAfterSeconds: seconds, Note: "The wait was interrupted."}
	}
	second := l.send(ctx)
	l.client.CloseIdleConnections()
	w := &waited{RetryAfterSeconds: seconds, Status: second.status}
	w.judge(first, second)
	return w
}

// judge says what an answer after the wait tells about the rejection before it.
func (w *waited) judge(first, second result) {
	before, _, _ := limitOf(first)
	window, _, known := limitOf(second)
	enforcement := enforcementOf(second)
	switch {
	case second.status == 0:
		w.Note = fmt.Sprintf("The request after the wait was not answered: %s.", cause(second.err))
	case isAdmitted(second) && enforcement == "":
		w.Note = "The request after the wait passed: Retry-After was right."
	case isAdmitted(second):
		w.Note = fmt.Sprintf("The request after the wait passed, but not by the budget (%s: %s): that does not tell whether Retry-After was right.", headerEnforcement, enforcement)
	case second.status != http.StatusTooManyRequests:
		w.Note = fmt.Sprintf("The request after the wait was answered with %s: that does not tell whether Retry-After was right.", says(second))
	case known && before != "" && window != before:
		w.Note = "The window had room again; then another one rejected the request, which is right."
	default:
		w.Wrong, w.Note = true, "The request after the wait was rejected once more: Retry-After was too short, or somebody else spends the same budget."
	}
}
