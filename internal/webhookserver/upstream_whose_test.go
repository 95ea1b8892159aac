// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

func TestUpstreamPerTenant(t *testing.T) {
	server := redistest.Start(t)
	named := guardedBy(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Auth-Request-Org", "acme") })
	tiers := []*tier.Tier{budget("free", 5, 100), budget("cap", 1, 100), budget("cap-off", 1, 100, engaged(time.Time{}))}
	e := newEndpoint(realLimiter(t, server), nil, tiers...)
	guarded := newEndpoint(realLimiter(t, server), named, tiers...)
	off := newEndpoint(realLimiter(t, server), func(o *Options) { o.Disabled = true }, tiers...)
	for i, step := range []struct {
		reason string
		e      *endpoint
		query  string
		status int
		detail string
	}{
		{"the first of a tenant", e, "user=a&tenant=acme&upstream=cap&upstream-per=tenant", 200, ""},
		{"the cap of this tenant is used up", e, "user=b&tenant=acme&upstream=cap&upstream-per=tenant", 429,
			"All callers of upstream cap in your tenant together may make 1 requests per minute. Retry after 60 seconds. Your own budget was not charged."},
		{"another tenant has a cap of its own", e, "user=a&tenant=other&upstream=cap&upstream-per=tenant", 200, ""},
		{"the cap of all is another", e, "user=a&tenant=acme&upstream=cap", 200, ""},
		{"and counts all tenants", e, "user=a&tenant=other&upstream=cap", 429, "All callers of upstream cap together may make 1 requests"},
		{"the tenant may be the caller's", guarded, "user=c&upstream=cap&upstream-per=tenant", 429, "in your tenant"},
		{"without a tenant there is nothing to count by", e, "user=a&upstream=cap&upstream-per=tenant", 400, "there is none: give the parameter tenant"},
		{"of what is switched off nothing is needed", e, "user=a&upstream=cap-off&upstream-per=tenant", 200, ""},
		{"nor while everything is", off, "user=a&upstream=cap&upstream-per=tenant", 200, ""},
		{"but a mistake in the route stays one", off, "user=a&upstream=Cap", 400, `parameter "upstream" is "Cap", which cannot be the name`},
	} {
		r := step.e.ask("/check?" + step.query)
		if r.Code != step.status || step.status != 200 && !strings.Contains(problemOf(t, r).Detail, step.detail) {
			t.Errorf("%d: %s: %d %s, want %d %s", i, step.reason, r.Code, r.Body, step.status, step.detail)
		}
	}
}

// The client's credentials choose tiers, never the upstream; and the address is not needed where
// only the cap is in force.
func TestUpstreamIsTheRoutesOwn(t *testing.T) {
	var asked []limiter.Budget
	decide := budgetsFunc(func(budgets ...limiter.Budget) (limiter.Decision, error) {
		asked = budgets
		return limiter.Decision{Allowed: true, Limit: budgets[0].Limits[0]}, nil
	})
	e := newEndpoint(decide, guardedBy(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Auth-Request-User", "alice")
		w.Header().Set("X-Auth-Request-Tier", "pro")
		w.Header().Set("X-Auth-Request-Org", "acme")
	}), budget("free", 5, 100), budget("pro", 60, 5000), budget("cap", 600, 9000))
	e.ask("/check?tier=free&route=chat&upstream=cap")
	want := []limiter.Budget{
		{Subject: limiter.Subject{User: "alice", Tenant: "acme", Route: "chat"}, Limits: e.tiers.Lookup("pro").Limits},
		{Subject: limiter.Subject{User: "cap", Kind: "upstream"}, Limits: e.tiers.Lookup("cap").Limits},
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	e = newEndpoint(decide, nil, budget("free", 5, 100), budget("off", 5, 100, engaged(time.Time{})), budget("cap", 600, 9000))
	for query, want := range map[string]int{"tier=off&upstream=cap": 200, "tier=free&upstream=cap": 400} {
		if r := e.ask("/check?"+query, "X-Real-IP", "nonsense"); r.Code != want {
			t.Errorf("%s: %d, want %d", query, r.Code, want)
		}
	}
}

func TestUpstreamErrorBackend(t *testing.T) {
	server := redistest.Start(t)
	e := newEndpoint(realLimiter(t, server), nil, budget("free", 5, 100), budget("gpt-4o", 1, 100), budget("dry", 1, 100, dryRunTier))
	backend := errorBackendOf(t, e, "tier=free&upstream=gpt-4o")
	tried := errorBackendOf(t, e, "tier=free&upstream=dry")
	if r := answerOf(backend, refusedRequest("203.0.113.7")); r.Code != 403 {
		t.Errorf("with room in both: %d", r.Code)
	}
	e.ask("/check/nginx?tier=free&upstream=gpt-4o", "X-Real-IP", "203.0.113.8")
	e.ask("/check/nginx?tier=free&upstream=dry", "X-Real-IP", "203.0.113.8")
	r := answerOf(backend, refusedRequest("203.0.113.7"))
	if p := problemOf(t, r); r.Code != 429 || p.Type != upstreamQuotaExceeded || p.Upstream != "gpt-4o" {
		t.Errorf("the cap is used up by another: %d %+v", r.Code, p)
	}
	if r := answerOf(tried, refusedRequest("203.0.113.7")); r.Code != 403 {
		t.Errorf("a cap that is tried out: %d", r.Code)
	}
	if got := logOf(t, server, limiter.Subject{User: "203.0.113.7", Kind: "ip"}); got != 0 {
		t.Errorf("looking has charged %d", got)
	}
	for query, want := range map[string]string{"upstream=Gpt": `"upstream" is "Gpt"`, "upstream-per=tenant": "given without upstream"} {
		if _, err := e.ErrorBackend(query); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", query, err, want)
		}
	}
}
