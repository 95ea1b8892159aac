// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"fmt"
	"net/http"
	"time"

	"github.com/tierlimit/tierlimit/internal/identity"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// enforcement is a value of X-Tierlimit-Enforcement.
type enforcement string

const (
	enforced   enforcement = "" // the header is absent
	disabled   enforcement = "disabled"
	dryRun     enforcement = "dry-run"
	failedOpen enforcement = "failed-open"
	exempt     enforcement = "exempt"
)

// outcome is what a check came to, a label of the metrics.
type outcome string

const (
	outcomeAdmitted     outcome = "admitted"
	outcomeRejected     outcome = "rejected"
	outcomeDryRun       outcome = "dry_run_rejected" // admitted, Enforce would have rejected it
	outcomeDisabled     outcome = "disabled"         // admitted unasked, by a kill switch
	outcomeFailedOpen   outcome = "failed_open"      // admitted uncounted, Redis could not be asked
	outcomeFailedClosed outcome = "failed_closed"    // 503, Redis could not be asked
	outcomeInvalid      outcome = "invalid"          // 400
	outcomeNoTier       outcome = "no_tier"          // 503, neither the tier nor the default tier exists
	outcomeExempt       outcome = "exempt"           // admitted uncounted, by its method
	outcomeRefused      outcome = "unauthenticated"  // 401 or 403, or whatever the other auth service answered
	outcomeUnidentified outcome = "unidentified"     // 503, a service that identifies callers is away
)

// answer is everything that is said to the caller of a check, whatever form it is sent in.
type answer struct {
	outcome     outcome
	status      int // 200, 400, 401, 403, 429 or 503, or that of relay
	enforcement enforcement
	tier        string        // "" if none was found
	unknownTier string        // "" unless the default tier stands in for it
	limit       limiter.Limit // zero if no tier was found
	remaining   int64
	retryAfter  time.Duration    // 0: promise nothing
	wait        time.Duration    // retryAfter to the microsecond
	policy      []limiter.Limit  // all that apply
	usage       []limiter.Usage  // as far as it is known
	challenge   string           // WWW-Authenticate, on 401
	detail      string           // for people, on anything but 200
	auth        *identity.Answer // what the other auth service answered, if it was asked
	relay       *identity.Answer // it instead of an answer of our own
}

// answerTo turns a decision into an answer.
func answerTo(t *tier.Tier, d limiter.Decision) answer {
	a := answer{outcome: outcomeAdmitted, status: http.StatusOK, tier: t.Name, limit: d.Limit, remaining: d.Remaining,
		policy: t.Limits, usage: d.Usage}
	if !d.Allowed {
		a.usage = []limiter.Usage{{Limit: d.Limit}}
	}
	switch {
	case d.Allowed:
	case t.DryRun:
		a.outcome, a.enforcement = outcomeDryRun, dryRun
	default:
		a.outcome, a.status, a.retryAfter, a.wait = outcomeRejected, http.StatusTooManyRequests, d.RetryAfter, d.Wait
		a.detail = rejection(t, d)
	}
	return a
}

func rejection(t *tier.Tier, d limiter.Decision) string {
	if d.Limit.Requests == 0 {
		return fmt.Sprintf("The %s tier admits no requests.", t.Name)
	}
	return fmt.Sprintf("The %s tier admits %d requests per %s. Retry after %d seconds.",
		t.Name, d.Limit.Requests, windowName(d.Limit.Window), int64(d.RetryAfter/time.Second))
}

// unlimited is the answer while a kill switch is engaged. There is no tier to name if the one that
// was asked for does not exist, nor the default tier.
func unlimited(t *tier.Tier) answer {
	a := answer{outcome: outcomeDisabled, status: http.StatusOK, enforcement: disabled}
	if t != nil {
		a.tier, a.limit, a.remaining, a.policy = t.Name, t.Limits[0], t.Limits[0].Requests, t.Limits
		for _, l := range t.Limits {
			a.usage = append(a.usage, limiter.Usage{Limit: l, Remaining: l.Requests})
		}
	}
	return a
}

// failure is the answer when Redis could not be asked.
func failure(t *tier.Tier) answer {
	if t.FailurePolicy == tier.FailOpen || t.DryRun {
		return passed(t)
	}
	return answer{
		outcome: outcomeFailedClosed, status: http.StatusServiceUnavailable,
		tier: t.Name, limit: t.Limits[0], policy: t.Limits,
		detail: fmt.Sprintf("The rate limit store did not decide, and the %s tier has failurePolicy FailClosed. Retry later.", t.Name),
	}
}

// passed is the answer that lets a request pass uncounted.
func passed(t *tier.Tier) answer {
	return answer{
		outcome: outcomeFailedOpen, status: http.StatusOK, enforcement: failedOpen,
		tier: t.Name, limit: t.Limits[0], remaining: t.Limits[0].Requests, policy: t.Limits,
	}
}

// invalid is the answer to a check that cannot be understood.
func invalid(err error) answer {
	return answer{outcome: outcomeInvalid, status: http.StatusBadRequest, detail: err.Error()}
}

// noTier is the answer when there is no tier to apply.
func noTier(err error) answer {
	return answer{outcome: outcomeNoTier, status: http.StatusServiceUnavailable, detail: err.Error()}
}

// exempted is the answer to a request with a method that does not count.
func exempted() answer {
	return answer{outcome: outcomeExempt, status: http.StatusOK, enforcement: exempt}
}

// refused is the answer to a caller without valid credentials.
func refused(r *identity.Refusal) answer {
	a := answer{outcome: outcomeRefused, status: r.Status, challenge: r.Challenge, detail: r.Detail}
	if a.status == http.StatusBadRequest {
		a.outcome = outcomeInvalid
	}
	return a
}

// relayed is the answer of another auth service that does not let the request pass.
func relayed(auth *identity.Answer) answer {
	return answer{outcome: outcomeRefused, status: auth.Status, relay: auth}
}

// unidentified is the answer when a service that identifies callers is away. Why is in the log; a
// client has no use for it.
func unidentified() answer {
	return answer{outcome: outcomeUnidentified, status: http.StatusServiceUnavailable, detail: "The caller cannot be identified now. Retry later."}
}

// windowName is the value of X-RateLimit-Window and of the metrics' label.
func windowName(window time.Duration) string {
	switch window {
	case tier.Minute:
		return "minute"
	case tier.Day:
		return "day"
	case 0:
		return ""
	}
	return window.String()
}
