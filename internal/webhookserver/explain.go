// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/identity"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// Asked is a check that is to be explained: a GET of /check, as a proxy would send it.
type Asked struct {
	// Query holds the parameters, as in a URL. Example: "tier=free&route=chat".
	Query string
	// Kind is what the parameter user is. A check has none, so that its user is always limiter.KindUser.
	Kind limiter.Kind
	// Header holds the headers. The method of the request that is checked is in X-Forwarded-Method.
	Header http.Header
	// Peer is the address that the check comes from, with or without a port; "" is none.
	Peer string
}

// Explain says what the next check with these parameters would be answered, and why. The answer is that of
// the code that answers checks; only the limiter is one that looks. It charges nothing, counts nothing in
// metrics, writes no log line, makes no span and does not tell whether Redis is away. Another auth service
// is asked, as it would be by the check.
func (h *Handler) Explain(ctx context.Context, asked Asked) adminapi.Explanation {
	path := &trail{}
	quiet := h.explaining(path)
	params, err := inQuery.parse(asked.Query)
	var a answer
	if err != nil {
		a = invalid(err)
	} else {
		request := &http.Request{Header: canonicalized(asked.Header)}
		a = quiet.check(ctx, question{
			parameters: params,
			method:     plainForm.method(request),
			request:    identity.Request{Header: plainForm.headers(request), Peer: withPort(asked.Peer)},
			kind:       asked.Kind,
			trail:      path,
		})
	}
	return h.explanation(&a, path, params)
}

// explaining returns a handler that answers as h does and leaves no trace: whatever it would write to is
// its own and forgotten.
func (h *Handler) explaining(path *trail) *Handler {
	quiet := NewHandler(Options{
		Tiers:       h.Tiers,
		Limiter:     looking{to: h.Limiter, path: path},
		Timeout:     h.Timeout,
		Local:       looking{to: h.Local, path: path, local: true},
		Replicas:    h.Replicas,
		Identity:    h.Identity,
		Auth:        h.Auth,
		Headers:     h.Headers,
		DefaultTier: h.DefaultTier,
		Disabled:    h.Disabled,
		Metrics:     NewMetrics(prometheus.NewRegistry(), h.Tiers, h.Disabled, h.Replicas),
		Log:         logr.Discard(),
	})
	quiet.now = h.now
	return quiet
}

// looking is a Limiter that never charges, and decides as if it had: what remains of an admission is
// without the request that was asked about.
type looking struct {
	to    Limiter
	path  *trail
	local bool
}

// CheckBudgets implements Limiter.
func (l looking) CheckBudgets(ctx context.Context, budgets ...limiter.Budget) (limiter.Decision, error) {
	d, err := l.to.LookBudgets(ctx, budgets...)
	if err == nil && d.Allowed {
		d.Remaining--
		for i := range d.Usage {
			d.Usage[i].Remaining--
		}
		if d.Grant != nil && d.Grant.Charged {
			grant := *d.Grant
			grant.Remaining--
			d.Grant = &grant
		}
	}
	l.path.decided(d, err, l.local)
	return d, err
}

// LookBudgets implements Limiter.
func (l looking) LookBudgets(ctx context.Context, budgets ...limiter.Budget) (limiter.Decision, error) {
	return l.CheckBudgets(ctx, budgets...)
}

// canonicalized returns a copy of headers, with the names as net/http reads them.
func canonicalized(header http.Header) http.Header {
	canonical := make(http.Header, len(header))
	for name, values := range header {
		for _, value := range values {
			canonical.Add(name, value)
		}
	}
	return canonical
}

// withPort returns an address as that of a connection.
func withPort(address string) string {
	if ip, err := netip.ParseAddr(address); err == nil {
		return netip.AddrPortFrom(ip, 0).String()
	}
	return address
}

// trail is what a check that is explained comes by. The zero value has seen nothing; a check that is not
// explained has none.
type trail struct {
	caller   *identity.Caller
	tenant   string
	source   string
	found    *found
	outage   error // Redis did not decide
	full     error // nor did the memory of this replica
	local    bool  // that memory decided
	recalled bool
	grant    *limiter.GrantUse
}

func (t *trail) identified(caller identity.Caller, tenant, source string) {
	if t != nil {
		t.caller, t.tenant, t.source = &caller, tenant, source
	}
}

func (t *trail) applies(f found) {
	if t != nil {
		t.found = &f
	}
}

func (t *trail) decided(d limiter.Decision, err error, local bool) {
	switch {
	case err != nil && local:
		t.full = err
	case err != nil:
		t.outage = err
	default:
		t.local = local
		t.recalled = t.recalled || d.Remembered
		if d.Grant != nil {
			t.grant = d.Grant
		}
	}
}

// explanation puts an answer and how it came about into words.
func (h *Handler) explanation(a *answer, path *trail, p parameters) adminapi.Explanation {
	now := h.now()
	e := adminapi.Explanation{
		Now: now.UTC(), Status: a.status, Outcome: string(a.outcome), Window: a.quota.name(), Limit: a.quota.Requests,
		Remaining: a.remaining, RetryAfterSeconds: int64(a.retryAfter / time.Second), Enforcement: string(a.enforcement),
		Headers: map[string]string{},
	}
	if a.wait > 0 {
		at := now.Add(a.wait).UTC()
		e.RetryAt = &at
	}
	header := http.Header{}
	a.headers(header, h.Headers)
	for name, values := range header {
		if len(values) > 0 {
			e.Headers[name] = strings.Join(values, ", ")
		}
	}
	if c := path.caller; c != nil {
		e.Identity = &adminapi.Identity{Source: path.source,
			Subject: adminapi.Subject{User: c.User, Kind: string(c.Kind), Tenant: path.tenant, Route: p.route}}
	}
	if f := path.found; f != nil {
		if f.user != nil {
			t := h.describe(f.user, f.asked, now)
			e.Tier = &t
		}
		if f.upstream != nil {
			t := h.describe(f.upstream, f.upstream.Name, now)
			e.Upstream = &t
		}
	}
	if g := path.grant; g != nil {
		e.Grant = &adminapi.Grant{Requests: g.Requests, Used: g.Requests - g.Remaining, Remaining: g.Remaining}
	}
	e.Reasons = h.reasons(a, path, p, now)
	return e
}

// Tier returns the tier that a check would apply that asks for one by name, "" for none, and how the admin
// API shows it. The error says what to do; it is a *BadTier if the name is at fault, else there is no tier to
// apply.
func (h *Handler) Tier(name string) (*tier.Tier, adminapi.Tier, error) {
	t, unknown := h.lookup(name)
	if unknown {
		if err := validateTierName("tier", name); err != nil {
			return nil, adminapi.Tier{}, &BadTier{err}
		}
	}
	if err := h.missingTier(&question{}, &found{asked: name, user: t}); err != nil {
		return nil, adminapi.Tier{}, err
	}
	return t, h.describe(t, name, h.now()), nil
}

// BadTier is the error for a name that no tier can have.
type BadTier struct{ error }

// describe shows a tier as it is applied to a check that asked for one by name.
func (h *Handler) describe(t *tier.Tier, asked string, now time.Time) adminapi.Tier {
	shown := adminapi.Tier{Name: t.Name, Default: asked == "", Limits: make([]adminapi.Limit, len(t.Limits)),
		Mode: modeName(t), FailurePolicy: policyName(t.FailurePolicy)}
	if asked != "" && asked != t.Name {
		shown.Asked = asked
	}
	for i, l := range t.Limits {
		shown.Limits[i] = adminapi.Limit{Window: quota{Limit: l}.name(), Requests: l.Requests}
	}
	switch {
	case h.Disabled:
		shown.KillSwitch = &adminapi.KillSwitch{Global: true}
	case t.KillSwitch.EngagedAt(now):
		shown.KillSwitch = &adminapi.KillSwitch{}
		if expiry := t.KillSwitch.NextExpiry(now); !expiry.IsZero() {
			expiry = expiry.UTC()
			shown.KillSwitch.ExpiresAt = &expiry
		}
	}
	return shown
}

func modeName(t *tier.Tier) string {
	if t.DryRun {
		return adminapi.ModeDryRun
	}
	return adminapi.ModeEnforce
}

// EachParameter reads pairs of a query in the way of a check: it hands each name and value to set, in order, and
// fails at the first that is not percent-encoded correctly or that set refuses.
func EachParameter(raw string, set func(name, value string) error) error {
	return inQuery.each(raw, set)
}
