// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tierlimit/tierlimit/docs"
	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/openapitest"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// desk is an admin API under test, on a real Redis.
type desk struct {
	*Handler
	t       *testing.T
	server  *redistest.Server
	window  *limiter.SlidingWindow
	tiers   *tier.Table
	checks  *webhookserver.Handler
	usage   *usage
	log     *bytes.Buffer
	events  []Event
	openapi *openapitest.Document
}

// usage is what a replica has seen, as a test has it.
type usage struct {
	seen     []adminapi.Seen
	simulate func(context.Context, Logs, *tier.Tier, []limiter.Limit) (adminapi.Simulation, error)
	asked    []any
}

func (u *usage) Top(by, tier string, limit int) adminapi.Top {
	u.asked = []any{by, tier, limit}
	return adminapi.Top{Replicas: []string{"a"}, By: by, WindowSeconds: 60, Users: []adminapi.TopUser{
		{Subject: adminapi.Subject{User: "u", Kind: "key", Tenant: "t", Route: "r"}, Tier: "free", Used: 5, UsedError: 1, Rejected: 2, RejectedError: 1}}}
}

func (u *usage) Decisions() adminapi.Decisions {
	return adminapi.Decisions{Replicas: []string{"a"}, Now: time.Now(), StartedAt: time.Now(), Tiers: []adminapi.TierDecisions{
		{Tier: "gone", Outcomes: map[string]int64{"admitted": 3}}, {Tier: "free", Mode: "DryRun", KillSwitch: &adminapi.KillSwitch{Global: true}}}}
}

func (u *usage) SeenAs(string) []adminapi.Seen { return u.seen }

func (u *usage) Simulate(ctx context.Context, logs Logs, t *tier.Tier, limits []limiter.Limit) (adminapi.Simulation, error) {
	u.asked = []any{t.Name, limits}
	if u.simulate != nil {
		return u.simulate(ctx, logs, t, limits)
	}
	return adminapi.Simulation{Replicas: []string{"a"}, Tier: adminapi.Tier{Name: t.Name, Mode: "Enforce", FailurePolicy: "FailOpen"}, Now: time.Now(), Since: time.Now(),
		KnownSeconds: 60, SampledOneIn: 1, Users: []adminapi.SimulatedUser{{ID: "x", Requests: 2, Rejected: 1, RejectedNow: true}}}, nil
}

func budget(name string, perMinute, perDay int64, change ...func(*tier.Tier)) *tier.Tier {
	t := &tier.Tier{Name: name, UID: "uid-" + name, Limits: []limiter.Limit{{Requests: perMinute, Window: tier.Minute}, {Requests: perDay, Window: tier.Day}}}
	for _, c := range change {
		c(t)
	}
	return t
}

// newDesk returns an admin API over tiers, and a check endpoint on the same Redis.
func newDesk(t *testing.T, document *openapitest.Document, change func(*Options), tiers ...*tier.Tier) *desk {
	t.Helper()
	server := redistest.Start(t)
	client, err := limiter.NewClient(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	window, err := limiter.NewSlidingWindow(client, limiter.Options{Timeout: 20 * time.Second, DenyMemory: 250 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t, server: server, window: window, tiers: new(tier.Table), usage: new(usage), log: new(bytes.Buffer), openapi: document}
	if tiers != nil {
		d.tiers.Replace(tiers)
	}
	d.checks = webhookserver.NewHandler(webhookserver.Options{Tiers: d.tiers, Limiter: window, DefaultTier: "free", Log: logr.Discard(),
		Metrics: webhookserver.NewMetrics(prometheus.NewRegistry(), d.tiers, false, func() int64 { return 1 })})
	options := Options{Limiter: window, Checks: d.checks, Usage: d.usage, HashKey: []byte("k"), DenyMemory: 250 * time.Millisecond, OpenAPI: docs.OpenAPI,
		Who: func(*http.Request) string { return "alice@example.com" }, Ending: t.Context(),
		Event: func(_ context.Context, e Event) { d.events = append(d.events, e) },
		Log:   logr.FromSlogHandler(slog.NewTextHandler(d.log, nil))}
	if change != nil {
		change(&options)
	}
	d.Handler = NewHandler(options)
	return d
}

// broken is a Limiter whose Redis is away.
type broken struct{ err error }

func (b broken) Inspect(context.Context, limiter.Subject, int, ...limiter.Limit) (limiter.State, error) {
	return limiter.State{}, b.err
}
func (b broken) Times(context.Context, limiter.Subject, time.Duration) ([]time.Time, error) {
	return nil, b.err
}
func (b broken) Reset(context.Context, limiter.Subject, ...time.Duration) ([]int64, error) {
	return nil, b.err
}
func (b broken) Revoke(context.Context, limiter.Subject) (*limiter.Grant, error) { return nil, b.err }
func (b broken) Grant(context.Context, limiter.Subject, int64, time.Duration) (limiter.Grant, *limiter.Grant, error) {
	return limiter.Grant{}, nil, b.err
}

// errAway has a password in it, as no error should have, to see whether it gets out.
var errAway = errors.New("limiter: asking Redis: dial redis://:s3cret@10.0.0.1: connection refused")

// ask makes one request, holds it and the answer against the document and returns the answer.
func (d *desk) ask(method, target string) *httptest.ResponseRecorder {
	d.t.Helper()
	request := httptest.NewRequest(method, target, nil)
	recorder := httptest.NewRecorder()
	d.ServeHTTP(recorder, request)
	d.openapi.Check(d.t, request, recorder.Code, recorder.Header(), recorder.Body.Bytes())
	return recorder
}

// answered is ask for an answer that is to be 200.
func answered[T any](d *desk, method, target string) T {
	d.t.Helper()
	var body T
	r := d.ask(method, target)
	if r.Code != http.StatusOK {
		d.t.Fatalf("%s %s: %d %s", method, target, r.Code, r.Body)
	}
	if err := json.Unmarshal(r.Body.Bytes(), &body); err != nil {
		d.t.Fatal(err)
	}
	return body
}

// spend makes n checks.
func (d *desk) spend(n int, query string) (last int) {
	d.t.Helper()
	for range n {
		recorder := httptest.NewRecorder()
		d.checks.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/check?"+query, nil))
		last = recorder.Code
	}
	return last
}

func query(pairs ...string) string {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		values.Add(pairs[i], pairs[i+1])
	}
	return values.Encode()
}
