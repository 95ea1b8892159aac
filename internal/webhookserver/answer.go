// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// The headers of an answer, written as here (HTTP does not distinguish case, people do).
const (
	headerRetryAfter  = "Retry-After"
	headerLimit       = "X-RateLimit-Limit"
	headerRemaining   = "X-RateLimit-Remaining"
	headerWindow      = "X-RateLimit-Window"
	headerTier        = "X-Tierlimit-Tier"         // the tier that was applied
	headerUnknownTier = "X-Tierlimit-Unknown-Tier" // the tier that was asked for, if it does not exist
	headerEnforcement = "X-Tierlimit-Enforcement"  // why a request was admitted that the budget did not admit
	headerStatus      = "X-Tierlimit-Status"       // the true status, in the nginx form
)

// enforcement is a value of X-Tierlimit-Enforcement.
type enforcement string

const (
	enforced   enforcement = "" // the header is absent
	disabled   enforcement = "disabled"
	dryRun     enforcement = "dry-run"
	failedOpen enforcement = "failed-open"
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
)

// answer is everything that is said to the caller of a check, whatever form it is sent in.
type answer struct {
	outcome     outcome
	status      int // 200, 400, 429 or 503
	enforcement enforcement
	tier        string        // "" if none was found
	unknownTier string        // "" unless the default tier stands in for it
	limit       limiter.Limit // zero if no tier was found
	remaining   int64
	retryAfter  time.Duration // 0: promise nothing
	detail      string        // for people, on anything but 200
}

// answerTo turns a decision into an answer.
func answerTo(t *tier.Tier, d limiter.Decision) answer {
	a := answer{outcome: outcomeAdmitted, status: http.StatusOK, tier: t.Name, limit: d.Limit, remaining: d.Remaining}
	switch {
	case d.Allowed:
	case t.DryRun:
		a.outcome, a.enforcement = outcomeDryRun, dryRun
	default:
		a.outcome, a.status, a.retryAfter = outcomeRejected, http.StatusTooManyRequests, d.RetryAfter
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
		a.tier, a.limit, a.remaining = t.Name, t.Limits[0], t.Limits[0].Requests
	}
	return a
}

// failure is the answer when Redis could not be asked.
func failure(t *tier.Tier) answer {
	if t.FailOpen || t.DryRun {
		return passed(t)
	}
	return answer{
		outcome: outcomeFailedClosed, status: http.StatusServiceUnavailable,
		tier: t.Name, limit: t.Limits[0],
		detail: fmt.Sprintf("The rate limit store did not decide, and the %s tier has failurePolicy FailClosed. Retry later.", t.Name),
	}
}

// passed is the answer that lets a request pass uncounted.
func passed(t *tier.Tier) answer {
	return answer{
		outcome: outcomeFailedOpen, status: http.StatusOK, enforcement: failedOpen,
		tier: t.Name, limit: t.Limits[0], remaining: t.Limits[0].Requests,
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

// headers adds what every form of an answer carries.
func (a answer) headers(h http.Header) {
	set := func(name, value string) { h[name] = []string{value} } // keeps the case of the name
	set("Cache-Control", "no-store")
	if a.limit.Window != 0 {
		set(headerLimit, strconv.FormatInt(a.limit.Requests, 10))
		set(headerRemaining, strconv.FormatInt(a.remaining, 10))
		set(headerWindow, windowName(a.limit.Window))
	}
	if a.retryAfter > 0 {
		set(headerRetryAfter, strconv.FormatInt(int64(a.retryAfter/time.Second), 10))
	}
	if a.tier != "" {
		set(headerTier, a.tier)
	}
	if a.unknownTier != "" {
		set(headerUnknownTier, a.unknownTier)
	}
	if a.enforcement != enforced {
		set(headerEnforcement, string(a.enforcement))
	}
}

// quotaExceeded is the problem type for a used-up budget, registered by
// draft-ietf-httpapi-ratelimit-headers, section 5.1.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// problem is a problem details object (RFC 9457). Members without a meaning for it are left out.
type problem struct {
	Type       string `json:"type"`
	Title      string `json:"title"`
	Status     int    `json:"status"`
	Detail     string `json:"detail"`
	Tier       string `json:"tier,omitempty"`
	Window     string `json:"window,omitempty"`
	Limit      *int64 `json:"limit,omitempty"`
	RetryAfter int64  `json:"retryAfter,omitempty"` // seconds
}

// body returns the body of anything but an admission.
func (a answer) body() []byte {
	p := problem{
		Type:   "about:blank",
		Title:  http.StatusText(a.status),
		Status: a.status,
		Detail: a.detail,
		Tier:   a.tier,
	}
	if a.status == http.StatusTooManyRequests {
		p.Type, p.Window, p.Limit = quotaExceeded, windowName(a.limit.Window), &a.limit.Requests
		p.RetryAfter = int64(a.retryAfter / time.Second)
	}
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false) // "&" stays readable; the body is not HTML
	if err := encoder.Encode(p); err != nil {
		panic(err) // strings and integers always encode
	}
	return encoded.Bytes()
}
