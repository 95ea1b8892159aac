// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"cmp"
	"context"
	"errors"

	"github.com/tierlimit/tierlimit/internal/identity"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// authorize asks the other auth service, if there is one for this check.
func (h *Handler) authorize(ctx context.Context, q *question) (*identity.Answer, error) {
	if h.Auth == nil || q.auth == authNone {
		return nil, nil //nolint:nilnil // nobody was asked, and that is not an error
	}
	return h.Auth.Ask(ctx, q.request.Header)
}

// charge applies the tiers of a check to whoever is calling.
func (h *Handler) charge(ctx context.Context, q question, auth *identity.Answer) answer {
	caller, source, err := h.identify(ctx, &q, auth)
	var refusal *identity.Refusal
	switch {
	case errors.As(err, &refusal) && !refusal.Address:
		return refused(refusal)
	case err != nil && refusal == nil:
		return h.unavailable(err)
	}
	h.unidentified.Observe(nil)
	if caller.Tenant != "" {
		q.tenant = caller.Tenant
	}
	if err == nil {
		q.trail.identified(caller, q.tenant, source)
	}
	asked := q.tier
	if caller.Tier != "" {
		asked = caller.Tier
	}
	t, unknown := h.lookup(asked)
	if unknown { // of names that exist the API server has said that they are valid
		invalidName := validateTierName("tier", asked)
		switch {
		case invalidName != nil && caller.Tier == "":
			return invalid(invalidName)
		case invalidName != nil:
			asked = "" // not to be repeated in a header
		}
	}
	upstream := h.Tiers.Lookup(q.upstream)
	if q.upstream != "" && upstream == nil {
		if err := validateTierName("upstream", q.upstream); err != nil {
			return invalid(err)
		}
	}
	a := h.apply(ctx, q, found{caller: caller, nobody: err, asked: asked, user: t, upstream: upstream})
	a.subject = limiter.Subject{User: caller.User, Kind: caller.Kind, Tenant: q.tenant, Route: q.route}
	if a.rejected() {
		h.rejections.rejected(&a, caller)
	}
	if unknown && t != nil {
		a.unknownTier = asked
		h.Metrics.unknownTier()
	}
	return a
}

// identify returns who is calling, and what said so: the user parameter goes first, then what the other
// auth service says, then the sources.
func (h *Handler) identify(ctx context.Context, q *question, auth *identity.Answer) (identity.Caller, string, error) {
	var named identity.Caller
	source := "auth"
	if auth != nil {
		named = auth.Caller
	}
	if q.user != "" {
		named.Kind, named.User, source = q.kind, q.user, "parameter"
	}
	if named.User != "" {
		return named, source, nil
	}
	caller, source, err := h.Identity.IdentifyBy(ctx, &q.request)
	caller.Tenant, caller.Tier = cmp.Or(named.Tenant, caller.Tenant), cmp.Or(named.Tier, caller.Tier)
	return caller, source, err
}

// unavailable is the answer when a service is needed to identify the caller and does not answer.
func (h *Handler) unavailable(err error) answer {
	h.unidentified.Observe(err)
	return unidentified()
}
