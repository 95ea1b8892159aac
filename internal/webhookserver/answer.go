// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"fmt"
	"net/http"
	"time"

	"github.com/tierlimit/tierlimit/internal/identity"
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
	local      enforcement = "local" // also on a rejection
	granted    enforcement = "granted"
)

// outcome is what a check came to, a label of the metrics.
type outcome string

const (
	outcomeAdmitted      outcome = "admitted"
	outcomeGranted       outcome = "granted" // admitted, charged to a grant
	outcomeRejected      outcome = "rejected"
	outcomeDryRun        outcome = "dry_run_rejected" // admitted, Enforce would have rejected it
	outcomeDisabled      outcome = "disabled"         // admitted unasked, by a kill switch
	outcomeFailedOpen    outcome = "failed_open"      // admitted uncounted, Redis could not be asked
	outcomeFailedClosed  outcome = "failed_closed"    // 503, Redis could not be asked
	outcomeLocalAdmitted outcome = "local_admitted"   // by this replica's share, Redis could not be asked
	outcomeLocalRejected outcome = "local_rejected"   // the same
	outcomeInvalid       outcome = "invalid"          // 400
	outcomeNoTier        outcome = "no_tier"          // 503, neither the tier nor the default tier exists
	outcomeExempt        outcome = "exempt"           // admitted uncounted, by its method
	outcomeRefused       outcome = "unauthenticated"  // 401 or 403, or whatever the other auth service answered
	outcomeUnidentified  outcome = "unidentified"     // 503, a service that identifies callers is away
)

// answer is everything that is said to the caller of a check, whatever form it is sent in.
type answer struct {
	outcome     outcome
	status      int // 200, 400, 401, 403, 429 or 503, or that of relay
	enforcement enforcement
	tier        string // "" if none was found
	unknownTier string // "" unless the default tier stands in for it
	upstream    string // that was asked for, if there is a cap for it
	quota       quota  // that this speaks of; zero if no tier was found
	remaining   int64
	retryAfter  time.Duration    // 0: promise nothing
	wait        time.Duration    // retryAfter to the microsecond
	policy      []quota          // all that apply
	usage       []usage          // as far as it is known
	challenge   string           // WWW-Authenticate, on 401
	detail      string           // for people, on anything but 200
	auth        *identity.Answer // what the other auth service answered, if it was asked
	relay       *identity.Answer // it instead of an answer of our own

	subject limiter.Subject // whose budget was asked for, for the recorder; zero if nobody was identified
}

// admitted returns whether budgets admitted the request.
func (a *answer) admitted() bool { return a.outcome == outcomeAdmitted || a.outcome == outcomeGranted }

// rejected returns whether a budget is used up, and enforced.
func (a *answer) rejected() bool {
	return a.outcome == outcomeRejected || a.outcome == outcomeLocalRejected
}

// answerTo turns a decision on tiers of one mode into an answer.
func answerTo(of []applied, d limiter.Decision) answer {
	by := of[d.Budget]
	a := answer{outcome: outcomeAdmitted, status: http.StatusOK, quota: quota{Limit: d.Limit, upstream: by.upstream},
		remaining: d.Remaining, policy: quotas(of), usage: make([]usage, 0, 4)}
	for _, u := range d.Usage {
		a.usage = append(a.usage, usage{quota: quota{Limit: u.Limit, upstream: of[u.Budget].upstream}, remaining: u.Remaining})
	}
	if !d.Allowed {
		a.usage = append(a.usage, usage{quota: a.quota})
	}
	if d.Grant != nil { // the limits that the usage is of
		for i := range of[0].limits {
			a.policy[i].Requests += d.Grant.Requests
		}
	}
	if by.share {
		a.outcome, a.enforcement = outcomeLocalAdmitted, local
	}
	switch {
	case d.Allowed && d.Grant != nil && d.Grant.Charged:
		a.outcome, a.enforcement = outcomeGranted, granted
	case d.Allowed:
	case by.tier.DryRun:
		a.outcome, a.enforcement = outcomeDryRun, dryRun
	default:
		a.outcome, a.status, a.retryAfter, a.wait = outcomeRejected, http.StatusTooManyRequests, d.RetryAfter, d.Wait
		a.detail = by.rejection(a.quota) + retryIn(d.RetryAfter)
		if by.upstream {
			a.detail += " Your own budget was not charged."
		}
		if by.share {
			a.outcome = outcomeLocalRejected
		}
	}
	return a
}

// rejection says what a tier admits.
func (a applied) rejection(q quota) string {
	budget := fmt.Sprintf("%d requests per %s", q.Requests, q.unit())
	callers := "All callers of upstream " + a.tier.Name
	if a.subject.Tenant != "" {
		callers += " in your tenant"
	}
	switch {
	case a.upstream && q.Requests == 0:
		return fmt.Sprintf("Upstream %s admits no requests.", a.tier.Name)
	case a.upstream && a.share:
		return fmt.Sprintf("%s together may make %s at this replica while the rate limit store does not decide.", callers, budget)
	case a.upstream:
		return fmt.Sprintf("%s together may make %s.", callers, budget)
	case q.Requests == 0:
		return fmt.Sprintf("The %s tier admits no requests.", a.tier.Name)
	case a.share:
		return fmt.Sprintf("The %s tier admits %s at this replica while the rate limit store does not decide.", a.tier.Name, budget)
	}
	return fmt.Sprintf("The %s tier admits %s.", a.tier.Name, budget)
}

func retryIn(wait time.Duration) string {
	if wait == 0 {
		return ""
	}
	return fmt.Sprintf(" Retry after %d seconds.", int64(wait/time.Second))
}

// unlimited is the answer while kill switches leave nothing to ask for. There is no tier to name if
// the one that was asked for does not exist, nor the default tier.
func unlimited(all []applied) answer {
	a := answer{outcome: outcomeDisabled, status: http.StatusOK, enforcement: disabled}
	if len(all) == 0 {
		return a
	}
	if !all[0].upstream {
		a.tier = all[0].tier.Name
	}
	a.policy, a.usage = quotas(all), untouched(all)
	a.quota, a.remaining = a.policy[0], a.policy[0].Requests
	return a
}

// closed is the answer that lets no request pass, because nobody can count it.
func closed(of []applied, detail string) answer {
	policy := quotas(of)
	return answer{outcome: outcomeFailedClosed, status: http.StatusServiceUnavailable, quota: policy[0], policy: policy, detail: detail}
}

// passed is the answer that lets a request pass uncounted.
func passed(of []applied) answer {
	policy := quotas(of)
	return answer{outcome: outcomeFailedOpen, status: http.StatusOK, enforcement: failedOpen,
		quota: policy[0], remaining: policy[0].Requests, policy: policy}
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
