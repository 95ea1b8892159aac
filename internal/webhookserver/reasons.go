// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// reasons says why a check is answered as it is, in the order in which that is decided. What is said of
// an answer that was decided before a tier was applied is its own detail.
func (h *Handler) reasons(a *answer, path *trail, p parameters, now time.Time) []string {
	var all []string
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	switch {
	case a.relay != nil:
		say("The other auth service answers %d, which is passed on as it is.", a.status)
		return all
	case a.outcome == outcomeExempt:
		say("A request with this method does not count: the route says methods=%s exempt=%s.", orNone(p.methods), orNone(p.exempt))
		return all
	}
	if p.methods != "" || p.exempt != "" {
		say("A request with this method counts, and so does one whose method the proxy does not say in X-Forwarded-Method.")
	}
	if path.caller != nil {
		say("%s", path.whoCalls())
	}
	if f := path.found; f != nil {
		h.reasonsOfTier(say, f)
		all = append(all, h.reasonsOfSwitches(f, now)...)
	}
	all = append(all, path.reasonsOfStore(a)...)
	if a.detail != "" {
		say("%s", sentence(a.detail))
	}
	if a.status == http.StatusOK {
		all = append(all, path.reasonsToAdmit(a)...)
	}
	return all
}

// sentence begins a text with a capital letter and ends it with a full stop.
func sentence(text string) string {
	text = strings.ToUpper(text[:1]) + text[1:]
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

func orNone(list string) string {
	if list == "" {
		return "(not given)"
	}
	return list
}

// whoCalls names the caller and what said so.
func (t *trail) whoCalls() string {
	by := map[string]string{"parameter": `the parameter user`, "auth": "the other auth service"}[t.source]
	if by == "" {
		by = fmt.Sprintf("the identity source %q", t.source)
	}
	what := string(t.caller.Kind)
	if t.caller.Kind == limiter.KindUser {
		what = "user"
	}
	in := ""
	if t.tenant != "" {
		in = fmt.Sprintf(" in tenant %q", t.tenant)
	}
	return fmt.Sprintf("The caller is %s %q%s, by %s.", what, t.caller.User, in, by)
}

// reasonsOfTier says which tiers apply, and by whose word.
func (h *Handler) reasonsOfTier(say func(string, ...any), f *found) {
	switch {
	case f.user == nil: // the answer says so
	case f.asked == "":
		say("No tier is asked for: the default tier %s applies.", f.user.Name)
	case f.asked != f.user.Name:
		say("There is no RateLimitTier %q: the default tier %s stands in for it.", f.asked, f.user.Name)
	case f.caller.Tier != "":
		say("The tier %s applies, as the caller's credentials say.", f.user.Name)
	default:
		say("The tier %s applies, as asked for.", f.user.Name)
	}
	if f.upstream != nil {
		say("The cap of upstream %s applies too.", f.upstream.Name)
	}
}

// reasonsOfSwitches says which kill switches are engaged, and which tiers are only tried out.
func (h *Handler) reasonsOfSwitches(f *found, now time.Time) []string {
	if h.Disabled {
		return []string{"The kill switch of all tiers (RATE_LIMIT_DISABLED) is engaged: every request passes, and Redis is not asked."}
	}
	var all []string
	for _, t := range []*tier.Tier{f.user, f.upstream} {
		switch {
		case t == nil:
		case t.KillSwitch.EngagedAt(now):
			until := ""
			if expiry := t.KillSwitch.NextExpiry(now); !expiry.IsZero() {
				until = " until " + expiry.UTC().Format(time.RFC3339)
			}
			all = append(all, fmt.Sprintf("The kill switch of tier %s is engaged%s: it limits nothing.", t.Name, until))
		case t.DryRun:
			all = append(all, fmt.Sprintf("The tier %s is in mode DryRun: what it would reject passes and is only reported.", t.Name))
		}
	}
	return all
}

// reasonsOfStore says who has decided, if that was not Redis.
func (t *trail) reasonsOfStore(a *answer) []string {
	var all []string
	if t.outage != nil {
		all = append(all, fmt.Sprintf("Redis does not decide now (%s): the failurePolicy does.", strings.ReplaceAll(reasonOf(t.outage), "_", " ")))
	}
	switch {
	case t.full != nil: // the answer says so
	case t.outage != nil && t.local:
		all = append(all, "FailLocal: this replica decides by its share of the budget, from its own memory.")
	case a.outcome == outcomeFailedOpen:
		all = append(all, "The request passes uncounted: the failurePolicy is FailOpen, the mode DryRun, or what Redis said was no decision.")
	case t.recalled:
		all = append(all, "This replica remembers a rejection from a moment ago, and does not ask Redis (--deny-memory).")
	}
	return all
}

// reasonsToAdmit says what becomes of the budget.
func (t *trail) reasonsToAdmit(a *answer) []string {
	switch a.outcome {
	case outcomeDryRun:
		tried := fmt.Sprintf("Over %d requests per %s: mode Enforce would reject it.", a.quota.Requests, a.quota.unit())
		if t.grant != nil && t.grant.Charged {
			return []string{t.charged(), tried}
		}
		return []string{tried}
	case outcomeAdmitted, outcomeGranted, outcomeLocalAdmitted:
	default: // everything has been said
		return nil
	}
	left := fmt.Sprintf("Admitted: of %d requests per %s there are %d left after it.", a.quota.Requests, a.quota.unit(), a.remaining)
	if a.quota.upstream {
		left = fmt.Sprintf("Admitted: of the %d requests per %s of upstream %s there are %d left after it.", a.quota.Requests, a.quota.unit(), a.upstream, a.remaining)
	}
	if t.grant == nil {
		return []string{left}
	}
	if t.grant.Charged {
		return []string{left, t.charged()}
	}
	return []string{left, fmt.Sprintf("That includes a grant of %d requests, of which %d are left.", t.grant.Requests, t.grant.Remaining)}
}

func (t *trail) charged() string {
	return fmt.Sprintf("A limit is used up; the request is charged to a grant of %d requests, of which %d are left.", t.grant.Requests, t.grant.Remaining)
}
