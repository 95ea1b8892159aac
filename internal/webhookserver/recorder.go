// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"time"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// Recorder is told of every check that was answered, once, where tierlimit_checks_total counts it. It is
// called by many goroutines at once, each of which has a check waiting behind it: it must not block.
type Recorder interface {
	Record(decided Decided)
}

// Decided is what a check came to.
type Decided struct {
	// At is when it was answered.
	At time.Time
	// Subject is whose budget was asked for. Its user is "" if nobody was named or there was no tier. Its
	// strings are parts of the request: whoever keeps one must copy it.
	Subject limiter.Subject
	// Tier is the tier applied to the subject; "" if there was none.
	Tier string
	// Outcome is the label of tierlimit_checks_total, one of Outcomes. Example: "admitted".
	Outcome string
	// Upstream is true when the answer speaks of the cap of an upstream, not of the subject's own budget.
	Upstream bool
}

// Outcomes returns everything that a check can come to.
func Outcomes() []string {
	return []string{
		string(outcomeAdmitted), string(outcomeGranted), string(outcomeRejected), string(outcomeDryRun), string(outcomeDisabled),
		string(outcomeFailedOpen), string(outcomeFailedClosed), string(outcomeLocalAdmitted), string(outcomeLocalRejected),
		string(outcomeInvalid), string(outcomeNoTier), string(outcomeExempt), string(outcomeRefused), string(outcomeUnidentified),
	}
}

// answered counts an answer and tells the recorder.
func (h *Handler) answered(a *answer, start time.Time) {
	end := h.now()
	h.Metrics.checked(a, end.Sub(start))
	if h.Recorder == nil {
		return
	}
	decided := Decided{At: end, Tier: a.tier, Outcome: string(a.outcome), Upstream: a.quota.upstream}
	if a.tier != "" {
		decided.Subject = a.subject
	}
	h.Recorder.Record(decided)
}
