// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/tierlimit/tierlimit/internal/webhookserver"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// ofCheck are the parameters that a check has too.
var ofCheck = []string{"user", "tenant", "route", "tier", "upstream", "upstream-per", "methods", "exempt", "auth"}

// explain says what a check would be answered. What a check refuses with 400 is an explanation too.
func (h *Handler) explain(ctx context.Context, c *call) (any, error) {
	asked := webhookserver.Asked{Header: c.header, Peer: c.single["peer"], Kind: limiter.Kind(c.single["kind"])}
	query := url.Values{}
	for _, name := range ofCheck {
		if value := c.single[name]; value != "" {
			query.Set(name, value)
		}
	}
	if asked.Kind != "" {
		s, err := c.subject()
		switch {
		case err != nil:
			return nil, err
		case s.Kind == limiter.KindUpstream:
			return nil, refuse(http.StatusBadRequest, `A check is never by an upstream: give the parameters of the route, with "upstream" for the name of its cap.`)
		}
		query.Set("user", s.User)
	}
	if asked.Peer != "" {
		_, errAddress := netip.ParseAddr(asked.Peer)
		if _, err := netip.ParseAddrPort(asked.Peer); err != nil && errAddress != nil {
			return nil, refuse(http.StatusBadRequest, `Parameter "peer" is %.60q, which is not an IP address: write it like 203.0.113.7 or 2001:db8::1.`, asked.Peer)
		}
	}
	asked.Query = query.Encode()
	e := h.Checks.Explain(ctx, asked)
	if e.Grant != nil && e.Identity != nil {
		// A check has no use for the end of a grant, and does not ask for it.
		i := e.Identity
		state, err := h.Limiter.Inspect(ctx, limiter.Subject{User: i.User, Kind: limiter.Kind(i.Kind), Tenant: i.Tenant, Route: i.Route}, 0, shortest)
		if err != nil {
			return nil, err
		}
		e.Grant.ExpiresAt = e.Now
		if state.Grant != nil { // else it has just lapsed
			e.Grant.ExpiresAt = state.Grant.ExpiresAt.UTC()
		}
	}
	return e, nil
}
