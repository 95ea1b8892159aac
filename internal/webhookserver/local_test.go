// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

func failLocalTier(t *tier.Tier) { t.FailurePolicy = tier.FailLocal }

// among says how many replicas there are.
func among(replicas int64) func(*Options) {
	return func(o *Options) { o.Replicas = func() int64 { return replicas } }
}

// TestFailLocal asks replicas that differ in how many others they know of, while Redis is stopped.
func TestFailLocal(t *testing.T) {
	server := redistest.Start(t)
	down := realLimiter(t, server)
	server.Stop()
	admitted := func(limit, remaining, window string) said {
		return said{Status: 200, Limit: limit, Remaining: remaining, Window: window, Tier: "free", Enforcement: "local"}
	}
	rejected := said{Status: 429, Limit: "2", Remaining: "0", Window: "minute", Tier: "free", Enforcement: "local", RetryAfter: true, Body: true}
	cases := map[string]struct {
		reason   string
		replicas int64
		tier     *tier.Tier
		before   int
		want     said
	}{
		"Alone":         {"the only replica has the whole budget", 1, budget("free", 4, 100, failLocalTier), 0, admitted("4", "3", "minute")},
		"Half":          {"one of two has half", 2, budget("free", 4, 100, failLocalTier), 0, admitted("2", "1", "minute")},
		"RoundedUp":     {"a share is rounded up, so that none is 0", 3, budget("free", 4, 100, failLocalTier), 1, admitted("2", "0", "minute")},
		"Many":          {"however many there are", 1000, budget("free", 4, 100, failLocalTier), 0, admitted("1", "0", "minute")},
		"Unknown":       {"no number is one", 0, budget("free", 4, 100, failLocalTier), 0, admitted("4", "3", "minute")},
		"Over":          {"over the share is a 429 that the share has caused", 2, budget("free", 4, 100, failLocalTier), 2, rejected},
		"Day":           {"each window has its share", 2, budget("free", 100, 2, failLocalTier), 0, admitted("1", "0", "day")},
		"Zero":          {"for a budget of 0 Redis is not needed", 2, budget("free", 0, 100, failLocalTier), 0, said{Status: 429, Limit: "0", Remaining: "0", Window: "minute", Tier: "free", Body: true}},
		"DryRun":        {"a dry run rejects nothing, ever", 2, budget("free", 4, 100, failLocalTier, dryRunTier), 9, said{Status: 200, Limit: "4", Remaining: "4", Window: "minute", Tier: "free", Enforcement: "failed-open"}},
		"KillSwitch":    {"a switch is a switch", 2, budget("free", 4, 100, failLocalTier, engaged(time.Time{})), 9, said{Status: 200, Limit: "4", Remaining: "4", Window: "minute", Tier: "free", Enforcement: "disabled"}},
		"OtherFailures": {"other tiers go on as they did", 2, budget("free", 4, 100), 0, said{Status: 503, Limit: "4", Remaining: "0", Window: "minute", Tier: "free", Body: true}},
	}
	for name, tc := range cases {
		for form, path := range map[string]string{"Plain": "/check?", "Nginx": "/check/nginx?", "ExtAuthz": "/check/ext-authz;"} {
			t.Run(name+form, func(t *testing.T) {
				e := newEndpoint(down, among(tc.replicas), tc.tier)
				want := tc.want
				if form == "Nginx" {
					want.TrueCode = fmt.Sprint(want.Status)
					if want.Status != http.StatusOK {
						want.Status = http.StatusForbidden
					}
				}
				for range tc.before {
					if r := e.ask(path + "user=u"); r.Code != http.StatusOK {
						t.Fatalf("an earlier request: %d %s", r.Code, r.Body)
					}
				}
				if diff := cmp.Diff(want, whatWasSaid(e.ask(path+"user=u"))); diff != "" {
					t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
				}
			})
		}
	}
}

// The share is what all headers and the body speak of.
func TestFailLocalSpeaksOfTheShare(t *testing.T) {
	e := newEndpoint(fixed(limiter.Decision{}, errors.New("away")), among(3), budget("free", 5, 100, failLocalTier))
	r := e.ask("/check?user=alice")
	for name, want := range map[string]string{"RateLimit-Policy": `"minute";q=2;w=60, "day";q=34;w=86400`, "RateLimit": `"minute";r=1, "day";r=33`} {
		if got := strings.Join(r.Header()[name], "|"); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	e.ask("/check?user=alice")
	r = e.ask("/check?user=alice")
	limit := int64(2)
	want := problem{Type: quotaExceeded, Title: "Too Many Requests", Status: 429, Tier: "free", Window: "minute", Limit: &limit, RetryAfter: 60, Violated: []string{"minute"},
		Detail: "The free tier admits 2 requests per minute at this replica while the rate limit store does not decide. Retry after 60 seconds."}
	if diff := cmp.Diff(want, problemOf(t, r)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for outcome, want := range map[string]float64{"local_admitted": 2, "local_rejected": 1} {
		if got := value(t, e.registry, "tierlimit_checks_total", "outcome", outcome); got != want {
			t.Errorf("outcome %s: %v, want %v", outcome, got, want)
		}
	}
	if got := value(t, e.registry, "tierlimit_replicas", "", ""); got != 3 {
		t.Errorf("tierlimit_replicas: %v", got)
	}
}

// A reply that is none passes as before; every other failure is an outage.
func TestFailLocalByFailure(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"Reply":   {fmt.Errorf("x: %w", limiter.ErrReply), "failed-open"},
		"Circuit": {fmt.Errorf("x: %w", limiter.ErrCircuitOpen), "local"},
		"Timeout": {context.DeadlineExceeded, "local"},
		"Refused": {errors.New("READONLY"), "local"},
	} {
		r := newEndpoint(fixed(limiter.Decision{}, tc.err), nil, budget("free", 5, 100, failLocalTier)).ask("/check?user=u")
		if got := r.Header()["X-Tierlimit-Enforcement"]; r.Code != 200 || len(got) != 1 || got[0] != tc.want {
			t.Errorf("%s: %d %v, want %s", name, r.Code, got, tc.want)
		}
	}
}

// A full memory is neither a rejection nor an admission that does not count.
func TestFailLocalWithoutMemory(t *testing.T) {
	small, err := limiter.NewLocal(limiter.LocalOptions{MaxBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	e := newEndpoint(fixed(limiter.Decision{}, errors.New("away")), func(o *Options) { o.Local = small }, budget("free", 5, 100, failLocalTier))
	admitted := 0
	for i := range 20 {
		r := e.ask(fmt.Sprintf("/check?user=u%d", i))
		switch said := whatWasSaid(r); {
		case said.Status == 200 && said.Enforcement == "local":
			admitted++
		case said.Status != 503 || said.Enforcement != "" || said.RetryAfter:
			t.Errorf("user %d: %+v", i, said)
		default:
			if p := problemOf(t, r); p.Detail != "The rate limit store did not decide, and this replica has no memory left to count in. Retry later." || p.Type != "about:blank" {
				t.Errorf("%+v", p)
			}
		}
	}
	if got := value(t, e.registry, "tierlimit_checks_total", "outcome", "failed_closed"); admitted == 0 || got != float64(20-admitted) {
		t.Errorf("%d admitted, %v failed closed", admitted, got)
	}
}

// A Redis that comes and goes does not refill the budget of an outage, and is asked whenever it can be.
func TestFailLocalAcrossOutages(t *testing.T) {
	server := redistest.Start(t)
	e := newEndpoint(realLimiter(t, server), nil, budget("free", 2, 100, failLocalTier))
	ask := func() string {
		said := whatWasSaid(e.ask("/check?user=u"))
		return fmt.Sprint(said.Status, said.Enforcement)
	}
	for round, want := range []string{"200 200 429", "429 429 429"} { // Redis and memory each have their own log
		var got []string
		for range 3 {
			got = append(got, ask())
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("round %d, with Redis: %s", round, diff)
		}
		server.Freeze()
		var local []string
		for range 3 {
			local = append(local, ask())
		}
		server.Thaw()
		if want := []string{"200local 200local 429local", "429local 429local 429local"}[round]; strings.Join(local, " ") != want {
			t.Errorf("round %d, without Redis: %v, want %s", round, local, want)
		}
	}
}

// The error backend looks into the same memory, and charges nothing.
func TestFailLocalErrorBackend(t *testing.T) {
	e := newEndpoint(fixed(limiter.Decision{}, errors.New("away")), nil, budget("free", 1, 100, failLocalTier))
	backend := errorBackendOf(t, e, "tier=free")
	for _, want := range []int{403, 403, 429, 429} {
		if want == 429 {
			e.ask("/check/nginx?tier=free", "X-Real-IP", "203.0.113.7")
		}
		r := answerOf(backend, refusedRequest("203.0.113.7"))
		if r.Code != want || want == 429 && whatWasSaid(r).Enforcement != "local" {
			t.Errorf("%d %+v, want %d", r.Code, whatWasSaid(r), want)
		}
	}
}

func TestFailLocalGRPC(t *testing.T) {
	v := startEnvoy(t, newEndpoint(fixed(limiter.Decision{}, errors.New("away")), nil, budget("free", 1, 100, failLocalTier)))
	for _, want := range []int32{0, 429} {
		got := v.check(t, request("203.0.113.7", nil))
		if got.Status != want || !strings.Contains(strings.Join(got.ToClient, "\n"), "X-Tierlimit-Enforcement: local") {
			t.Errorf("%+v, want %d", got, want)
		}
	}
}

// A share of 0 is 0: nothing is rounded up to 1 that admits nobody.
func TestFailLocalOfZero(t *testing.T) {
	e := newEndpoint(fixed(limiter.Decision{}, errors.New("away")), among(3), budget("free", 0, 100, failLocalTier))
	want := said{Status: 429, Limit: "0", Remaining: "0", Window: "minute", Tier: "free", Enforcement: "local", Body: true}
	if diff := cmp.Diff(want, whatWasSaid(e.ask("/check?user=u"))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// All replicas together admit not much more than the budget: each rounds up.
func TestFailLocalSharesAddUp(t *testing.T) {
	const replicas, limit = 4, 10
	var admitted atomic.Int64
	for range replicas {
		e := newEndpoint(fixed(limiter.Decision{}, errors.New("away")), among(replicas), budget("free", limit, 1000, failLocalTier))
		for range limit {
			if e.ask("/check?user=u").Code == 200 {
				admitted.Add(1)
			}
		}
	}
	if got := admitted.Load(); got != 12 { // 10 divided by 4 is 3 rounded up
		t.Errorf("%d admitted by %d replicas, want 12", got, replicas)
	}
}

func TestRememberedRejections(t *testing.T) {
	minute := limiter.Limit{Requests: 5, Window: tier.Minute}
	e := newEndpoint(fixed(limiter.Decision{Limit: minute, RetryAfter: time.Second, Wait: time.Second, Remembered: true}, nil), nil, budget("free", 5, 100))
	if r := e.ask("/check?user=u"); r.Code != 429 {
		t.Errorf("%d", r.Code)
	}
	for name, want := range map[string]float64{"tierlimit_remembered_rejections_total": 1, "tierlimit_store_duration_seconds": 0} {
		if got := value(t, e.registry, name, "", ""); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
