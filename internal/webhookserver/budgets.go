// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tierlimit/tierlimit/internal/identity"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// found is who is calling and which tiers were found for the check.
type found struct {
	caller   identity.Caller
	nobody   error      // why the caller's address is not known
	asked    string     // the tier that was asked for; "" if none was
	user     *tier.Tier // nil if there is none to apply
	upstream *tier.Tier // nil if none was asked for, or it does not exist
}

// applied is a tier as a check applies it: the user's own budget, or the cap of an upstream.
type applied struct {
	tier     *tier.Tier
	limits   []limiter.Limit
	share    bool // limits are this replica's share of those of the tier
	subject  limiter.Subject
	upstream bool
}

// applied returns the tiers that were found, the user's first.
func (f *found) applied(q *question) []applied {
	all := make([]applied, 0, 2)
	if f.user != nil {
		all = append(all, applied{tier: f.user, limits: f.user.Limits,
			subject: limiter.Subject{User: f.caller.User, Kind: f.caller.Kind, Tenant: q.tenant, Route: q.route}})
	}
	if f.upstream != nil {
		subject := limiter.Subject{User: q.upstream, Kind: limiter.KindUpstream}
		if q.upstreamPer != "" {
			subject.Tenant = q.tenant
		}
		all = append(all, applied{tier: f.upstream, limits: f.upstream.Limits, subject: subject, upstream: true})
	}
	return all
}

// apply applies the tiers of a check but for those whose kill switch is engaged.
func (h *Handler) apply(ctx context.Context, q question, f found) answer {
	q.trail.applies(f)
	all := f.applied(&q)
	if h.Disabled {
		return unlimited(all)
	}
	if err := h.missingTier(&q, &f); err != nil {
		h.missing.Observe(err)
		return noTier(err)
	}
	h.missing.Observe(nil)
	now := h.now()
	engaged := func(a applied) bool { return a.tier.KillSwitch.EngagedAt(now) }
	inForce := all
	if slices.ContainsFunc(all, engaged) {
		inForce = slices.DeleteFunc(slices.Clone(all), engaged)
	}
	if len(inForce) == 0 {
		return unlimited(all)
	}
	for _, a := range inForce {
		switch {
		case !a.upstream && f.nobody != nil:
			return invalid(f.nobody)
		case a.upstream && q.upstreamPer != "" && q.tenant == "":
			return invalid(errNoTenant)
		}
	}
	a := h.decide(ctx, q, inForce)
	a.complete(all, inForce)
	a.upstream = q.upstream
	return a
}

var errNoTenant = errors.New(`parameter "upstream-per" is tenant, and there is none: give the parameter tenant, or have the caller identified with one`)

// missingTier says which tier to create, if one is missing.
func (h *Handler) missingTier(q *question, f *found) error {
	switch {
	case !h.Tiers.Ready():
		return errors.New("the tiers have not been loaded yet; retry later")
	case f.user == nil && (f.asked == "" || f.asked == h.DefaultTier):
		return fmt.Errorf("there is no RateLimitTier %q, which is the default tier: create it", h.DefaultTier)
	case f.user == nil:
		return fmt.Errorf("there is neither a RateLimitTier %q nor the default tier %q: create one of the two", f.asked, h.DefaultTier)
	case q.upstream != "" && f.upstream == nil:
		return fmt.Errorf("there is no RateLimitTier %q, which is to cap the upstream: create it; no default tier stands in for a cap", q.upstream)
	}
	return nil
}

// decide decides by the tiers in force. Where one is tried out beside one that is enforced, the
// latter decides alone; the other is asked only about what was admitted, and only reported.
func (h *Handler) decide(ctx context.Context, q question, inForce []applied) answer {
	if len(inForce) == 1 || inForce[0].tier.DryRun == inForce[1].tier.DryRun {
		return h.together(ctx, q, inForce)
	}
	// Two calls, and one deadline for both: a proxy waits for one check.
	if h.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.Timeout)
		defer cancel()
	}
	var enforced, tried []applied
	for _, a := range inForce {
		if a.tier.DryRun {
			tried = append(tried, a)
		} else {
			enforced = append(enforced, a)
		}
	}
	a := h.together(ctx, q, enforced)
	if a.admitted() && !q.look {
		a.report(h.together(ctx, q, tried))
	}
	return a
}

// together has the limiter decide on tiers of one mode.
func (h *Handler) together(ctx context.Context, q question, of []applied) answer {
	start := h.now()
	decision, err := ask(ctx, h.Limiter, q.look, of)
	end := h.now()
	if decision.Remembered { // which says nothing about Redis
		h.Metrics.remembered()
	} else {
		h.Metrics.asked(end.Sub(start), err)
		h.outage.Observe(err)
	}
	h.traceStore(ctx, start, end, &decision, err)
	switch {
	case errors.Is(err, limiter.ErrReply):
		return passed(of)
	case err != nil:
		return h.failure(ctx, q, of)
	}
	return answerTo(of, decision)
}

// ask asks a limiter about all budgets at once.
func ask(ctx context.Context, from Limiter, look bool, of []applied) (limiter.Decision, error) {
	budgets := make([]limiter.Budget, len(of))
	for i, a := range of {
		budgets[i] = limiter.Budget{Subject: a.subject, Limits: a.limits}
	}
	if look {
		return from.LookBudgets(ctx, budgets...)
	}
	return from.CheckBudgets(ctx, budgets...)
}

// failure is the answer when Redis could not be asked: by the strictest failure policy.
func (h *Handler) failure(ctx context.Context, q question, of []applied) answer {
	strictest := slices.MinFunc(of, func(a, b applied) int { return int(a.tier.FailurePolicy - b.tier.FailurePolicy) }).tier
	switch {
	case strictest.DryRun || strictest.FailurePolicy == tier.FailOpen:
		return passed(of)
	case strictest.FailurePolicy == tier.FailLocal:
		return h.locally(ctx, q, of)
	}
	return closed(of, fmt.Sprintf("The rate limit store did not decide, and the %s tier has failurePolicy FailClosed. Retry later.", strictest.Name))
}

// locally decides by this replica's share of each budget, in memory.
func (h *Handler) locally(ctx context.Context, q question, of []applied) answer {
	replicas := max(h.Replicas(), 1)
	shares := slices.Clone(of)
	for i := range shares {
		shares[i].share = true
		shares[i].limits = slices.Clone(shares[i].limits)
		for j := range shares[i].limits {
			limit := &shares[i].limits[j]
			limit.Requests = (limit.Requests + replicas - 1) / replicas
		}
	}
	decision, err := ask(ctx, h.Local, q.look, shares)
	h.full.Observe(err)
	if err != nil {
		return closed(of, "The rate limit store did not decide, and this replica has no memory left to count in. Retry later.")
	}
	return answerTo(shares, decision)
}
