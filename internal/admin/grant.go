// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// grant makes a temporary allowance, in place of one that there is.
func (h *Handler) grant(ctx context.Context, c *call) (any, error) {
	s, t, err := h.grantee(c)
	if err != nil {
		return nil, err
	}
	for _, required := range []string{"requests", "for"} {
		if c.single[required] == "" {
			return nil, refuse(http.StatusBadRequest, "Parameter %q is missing: say how many requests are granted and for how long, such as requests=100&for=1h.", required)
		}
	}
	requests, err := c.number("requests", 0, 1, limiter.MaxGrant)
	if err != nil {
		return nil, err
	}
	lasts, err := time.ParseDuration(c.single["for"])
	if err != nil || lasts < time.Second || lasts > limiter.MaxGrantTime || lasts%time.Second != 0 {
		return nil, refuse(http.StatusBadRequest, "Parameter \"for\" is %.40q: use whole seconds from 1s to %dh, such as 30m or 1h.", c.single["for"], int(limiter.MaxGrantTime/time.Hour))
	}
	if zero := slices.IndexFunc(t.Limits, func(l limiter.Limit) bool { return l.Requests == 0 }); zero >= 0 {
		return nil, refuse(http.StatusConflict, "The tier %s admits no requests per %s, also with a grant: raise its limit, or name another tier in the parameter \"tier\" if that is not the user's.",
			t.Name, windowName(t.Limits[zero].Window))
	}
	now, before, err := h.Limiter.Grant(ctx, s, requests, lasts)
	if err != nil {
		h.undecided(c, ReasonGranted, s, t, err)
		return nil, err
	}
	h.changed(ctx, c, Event{Tier: t, Reason: ReasonGranted, Action: "Grant"}, s,
		fmt.Sprintf("granted %d requests until %s", now.Requests, now.ExpiresAt.UTC().Format(time.RFC3339)), "to")
	return h.granted(s, t, &now, before), nil
}

// grantee is of, without whom nothing can be granted to.
func (h *Handler) grantee(c *call) (limiter.Subject, *tier.Tier, error) {
	s, t, _, err := h.of(c)
	if err == nil && s.Kind == limiter.KindUpstream {
		err = refuse(http.StatusBadRequest, "The cap of an upstream holds for granted requests too, and there is no grant for it: raise the limit of tier %s.", t.Name)
	}
	return s, t, err
}

// revoke takes a grant back.
func (h *Handler) revoke(ctx context.Context, c *call) (any, error) {
	s, t, err := h.grantee(c)
	if err != nil {
		return nil, err
	}
	before, err := h.Limiter.Revoke(ctx, s)
	if err != nil {
		h.undecided(c, ReasonRevoked, s, t, err)
		return nil, err
	}
	if before != nil { // else nothing has changed
		h.changed(ctx, c, Event{Tier: t, Reason: ReasonRevoked, Action: "Revoke"}, s,
			fmt.Sprintf("took back a grant of %d requests, of which %d were used,", before.Requests, before.Used), "from")
	}
	return h.granted(s, t, nil, before), nil
}

func (h *Handler) granted(s limiter.Subject, t *tier.Tier, now, before *limiter.Grant) adminapi.GrantResult {
	return adminapi.GrantResult{Subject: shown(s), AuditID: AuditID(h.HashKey, s), Tier: t.Name, Grant: grantOf(now), Before: grantOf(before),
		EverywhereAfterMilliseconds: h.DenyMemory.Milliseconds()}
}

// listed says which windows were cleared.
func listed(windows []adminapi.Cleared) string {
	words := make([]string, len(windows))
	for i, w := range windows {
		words[i] = fmt.Sprintf("%d requests of the %s", w.Used, w.Window)
	}
	return strings.Join(words, " and ")
}
