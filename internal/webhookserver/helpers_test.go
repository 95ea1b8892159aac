// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// limiterFunc is a Limiter for the answers that a real Redis does not give on demand.
type limiterFunc func(context.Context, limiter.Subject, ...limiter.Limit) (limiter.Decision, error)

func (f limiterFunc) CheckBudgets(ctx context.Context, budgets ...limiter.Budget) (limiter.Decision, error) {
	return f(ctx, budgets[0].Subject, budgets[0].Limits...)
}

func (f limiterFunc) LookBudgets(ctx context.Context, budgets ...limiter.Budget) (limiter.Decision, error) {
	return f.CheckBudgets(ctx, budgets...)
}

// endpoint is a check endpoint under test and what it stands on.
type endpoint struct {
	*Handler
	tiers    *tier.Table
	registry *prometheus.Registry
}

// newEndpoint returns an endpoint over a limiter with these tiers.
func newEndpoint(decide Limiter, options func(*Options), tiers ...*tier.Tier) *endpoint {
	e := &endpoint{tiers: new(tier.Table), registry: prometheus.NewRegistry()}
	e.tiers.Replace(tiers)
	o := Options{Tiers: e.tiers, Limiter: decide, DefaultTier: "free", Log: logr.Discard()}
	if options != nil {
		options(&o)
	}
	if o.Replicas == nil {
		o.Replicas = func() int64 { return 1 }
	}
	o.Metrics = NewMetrics(e.registry, e.tiers, o.Disabled, o.Replicas)
	e.Handler = NewHandler(o)
	return e
}

// ask makes one check. Headers are name, value, name, value.
func (e *endpoint) ask(target string, headers ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodGet, target, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	recorder := httptest.NewRecorder()
	e.ServeHTTP(recorder, request)
	return recorder
}

// realLimiter returns a limiter on a real Redis.
func realLimiter(t testing.TB, server *redistest.Server) Limiter {
	t.Helper()
	return realLimiterFor(t, server, time.Second)
}

// realLimiterFor is realLimiter with another timeout, for tests that ask so much at once that a slow
// machine takes long.
func realLimiterFor(t testing.TB, server *redistest.Server, timeout time.Duration) Limiter {
	t.Helper()
	client, err := limiter.NewClient(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	window, err := limiter.NewSlidingWindow(client, limiter.Options{Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	return window
}

func budget(name string, perMinute, perDay int64, change ...func(*tier.Tier)) *tier.Tier {
	t := &tier.Tier{Name: name, Limits: []limiter.Limit{
		{Requests: perMinute, Window: tier.Minute},
		{Requests: perDay, Window: tier.Day},
	}}
	for _, c := range change {
		c(t)
	}
	return t
}

func dryRunTier(t *tier.Tier)   { t.DryRun = true }
func failOpenTier(t *tier.Tier) { t.FailurePolicy = tier.FailOpen }
func engaged(until time.Time) func(*tier.Tier) {
	return func(t *tier.Tier) { t.KillSwitch = tier.KillSwitch{Engaged: true, ExpiresAt: until} }
}

// said is what a caller is told, as far as tests compare it. Absent headers are "".
type said struct {
	Status                                   int
	Limit, Remaining, Window                 string
	Tier, UnknownTier, Enforcement, TrueCode string
	RetryAfter                               bool
	Body                                     bool
}

func whatWasSaid(r *httptest.ResponseRecorder) said {
	// Not Header().Get: the names are written in the case that the documentation shows.
	get := func(name string) string {
		if values := r.Header()[name]; len(values) == 1 {
			return values[0]
		}
		return ""
	}
	return said{
		Status: r.Code, Limit: get("X-RateLimit-Limit"), Remaining: get("X-RateLimit-Remaining"), Window: get("X-RateLimit-Window"),
		Tier: get("X-Tierlimit-Tier"), UnknownTier: get("X-Tierlimit-Unknown-Tier"), Enforcement: get("X-Tierlimit-Enforcement"),
		TrueCode: get("X-Tierlimit-Status"), RetryAfter: get("Retry-After") != "", Body: r.Body.Len() > 0,
	}
}
