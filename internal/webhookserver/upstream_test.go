// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// logOf returns how many requests are logged for a subject in the minute.
func logOf(t *testing.T, server *redistest.Server, subject limiter.Subject) int64 {
	t.Helper()
	n, err := server.Client.ZCard(t.Context(), subject.Key(time.Minute)).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestUpstream asks in every form for a route whose upstream has a cap.
func TestUpstream(t *testing.T) {
	server := redistest.Start(t)
	e := newEndpoint(realLimiter(t, server), nil, budget("free", 2, 100), budget("pro", 50, 5000), budget("none", 0, 0), budget("off", 1, 100, engaged(time.Time{})),
		budget("dry", 1, 100, dryRunTier),
		budget("cap", 3, 1000), budget("cap-day", 9, 1), budget("cap-none", 0, 0), budget("cap-off", 1, 100, engaged(time.Time{})), budget("cap-dry", 1, 100, dryRunTier))
	cases := map[string]struct {
		reason string
		others int // requests that others have made of the upstream
		before int // and the same user
		query  string
		want   said
	}{
		"Own": {reason: "the user's budget is closer to its end", query: "tier=free&upstream=cap",
			want: said{Status: 200, Limit: "2", Remaining: "1", Window: "minute", Tier: "free"}},
		"Cap": {reason: "the cap is closer to its end", others: 1, query: "tier=pro&upstream=cap",
			want: said{Status: 200, Limit: "3", Remaining: "1", Window: "upstream-minute", Tier: "pro"}},
		"CapDay": {reason: "any window of the cap can be", query: "tier=free&upstream=cap-day",
			want: said{Status: 200, Limit: "1", Remaining: "0", Window: "upstream-day", Tier: "free"}},
		"Full": {reason: "a user with room meets the cap", others: 3, query: "tier=pro&upstream=cap",
			want: said{Status: 429, Limit: "3", Remaining: "0", Window: "upstream-minute", Tier: "pro", RetryAfter: true, Body: true}},
		"FullDay": {reason: "any window of the cap rejects", others: 1, query: "tier=pro&upstream=cap-day",
			want: said{Status: 429, Limit: "1", Remaining: "0", Window: "upstream-day", Tier: "pro", RetryAfter: true, Body: true}},
		"BothFull": {reason: "the user's own budget is named first", others: 1, before: 2, query: "tier=free&upstream=cap",
			want: said{Status: 429, Limit: "2", Remaining: "0", Window: "minute", Tier: "free", RetryAfter: true, Body: true}},
		"Zero": {reason: "a cap of 0 admits nobody", query: "tier=free&upstream=cap-none",
			want: said{Status: 429, Limit: "0", Remaining: "0", Window: "upstream-minute", Tier: "free", Body: true}},
		"UnknownTier": {reason: "the default tier stands in for the user's, not for the cap", query: "tier=gold&upstream=cap",
			want: said{Status: 200, Limit: "2", Remaining: "1", Window: "minute", Tier: "free", UnknownTier: "gold"}},
		"Missing": {reason: "never unlimited", query: "tier=free&upstream=gold", want: said{Status: 503, Body: true}},
		"Invalid": {reason: "no tier can have this name", query: "tier=free&upstream=Gold", want: said{Status: 400, Body: true}},

		"OwnOff": {reason: "the user's switch leaves the cap in force", before: 2, query: "tier=off&upstream=cap",
			want: said{Status: 200, Limit: "3", Remaining: "0", Window: "upstream-minute", Tier: "off", Enforcement: "disabled"}},
		"OwnOffFull": {reason: "which rejects as ever", others: 3, query: "tier=off&upstream=cap",
			want: said{Status: 429, Limit: "3", Remaining: "0", Window: "upstream-minute", Tier: "off", RetryAfter: true, Body: true}},
		"CapOff": {reason: "the cap's switch leaves the user's budget in force", others: 2, query: "tier=free&upstream=cap-off",
			want: said{Status: 200, Limit: "2", Remaining: "1", Window: "minute", Tier: "free", Enforcement: "disabled"}},
		"CapOffFull": {reason: "which rejects as ever", before: 2, query: "tier=free&upstream=cap-off",
			want: said{Status: 429, Limit: "2", Remaining: "0", Window: "minute", Tier: "free", RetryAfter: true, Body: true}},
		"BothOff": {reason: "nothing is left to be asked", before: 5, query: "tier=off&upstream=cap-off",
			want: said{Status: 200, Limit: "1", Remaining: "1", Window: "minute", Tier: "off", Enforcement: "disabled"}},

		"CapDry": {reason: "a cap that is tried out only reports", others: 1, query: "tier=free&upstream=cap-dry",
			want: said{Status: 200, Limit: "1", Remaining: "0", Window: "upstream-minute", Tier: "free", Enforcement: "dry-run"}},
		"CapDryRoom": {reason: "within it the answer is as if it were enforced", query: "tier=free&upstream=cap-dry",
			want: said{Status: 200, Limit: "1", Remaining: "0", Window: "upstream-minute", Tier: "free"}},
		"CapDryOwnFull": {reason: "the enforced budget rejects alone", before: 2, query: "tier=free&upstream=cap-dry",
			want: said{Status: 429, Limit: "2", Remaining: "0", Window: "minute", Tier: "free", RetryAfter: true, Body: true}},
		"OwnDry": {reason: "a user's budget that is tried out beside a cap", before: 1, query: "tier=dry&upstream=cap",
			want: said{Status: 200, Limit: "1", Remaining: "0", Window: "minute", Tier: "dry", Enforcement: "dry-run"}},
		"OwnDryFull": {reason: "the cap rejects alone", others: 3, query: "tier=dry&upstream=cap",
			want: said{Status: 429, Limit: "3", Remaining: "0", Window: "upstream-minute", Tier: "dry", RetryAfter: true, Body: true}},
		"BothDry": {reason: "nothing is enforced", others: 1, query: "tier=dry&upstream=cap-dry",
			want: said{Status: 200, Limit: "1", Remaining: "0", Window: "upstream-minute", Tier: "dry", Enforcement: "dry-run"}},
	}
	for name, tc := range cases {
		for form, path := range map[string]string{"Plain": "/check?", "Nginx": "/check/nginx?", "ExtAuthz": "/check/ext-authz;"} {
			t.Run(name+form, func(t *testing.T) {
				server.Client.FlushAll(t.Context())
				write := func(user string) string {
					query := tc.query + "&user=" + user
					if form == "ExtAuthz" {
						query = strings.ReplaceAll(query, "&", ";")
					}
					return path + query
				}
				for i := range tc.others {
					e.ask(write(fmt.Sprint("other", i)))
				}
				for range tc.before {
					if r := e.ask(write("u")); whatWasSaid(r).TrueCode != "200" && r.Code != 200 {
						t.Fatalf("an earlier request: %d %s", r.Code, r.Body)
					}
				}
				want := tc.want
				if form == "Nginx" {
					want.TrueCode = fmt.Sprint(want.Status)
					if want.Status != http.StatusOK {
						want.Status = http.StatusForbidden
					}
				}
				r := e.ask(write("u"))
				if diff := cmp.Diff(want, whatWasSaid(r)); diff != "" {
					t.Errorf("%s: -want +got:\n%s\n%s", tc.reason, diff, r.Body)
				}
			})
		}
	}
}

func TestUpstreamHeadersAndBody(t *testing.T) {
	server := redistest.Start(t)
	e := newEndpoint(realLimiter(t, server), nil, budget("free", 5, 100), budget("gpt-4o", 1, 1000), budget("off", 7, 70, engaged(time.Time{})), budget("dry", 0, 70, dryRunTier),
		budget("dry-room", 8, 80, dryRunTier), budget("roomy", 9, 90))
	fields := func(target string) []string {
		r := e.ask(target)
		said := []string{fmt.Sprint(r.Code)}
		for _, name := range []string{headerPolicy, headerRateLimit} {
			said = append(said, strings.Join(r.Header()[name], "|"))
		}
		return said
	}
	const own, policy = `"minute";q=5;w=60, "day";q=100;w=86400`, `"upstream-minute";q=1;w=60, "upstream-day";q=1000;w=86400`
	for i, tc := range []struct {
		reason, query string
		want          []string
	}{
		{"all windows of both", "user=a&upstream=gpt-4o", []string{"200", own + ", " + policy, `"minute";r=4, "day";r=99, "upstream-minute";r=0, "upstream-day";r=999`}},
		{"only the window that rejected", "user=b&upstream=gpt-4o", []string{"429", own + ", " + policy, `"upstream-minute";r=0;t=60`}},
		{"a switched off cap is all there", "user=b&upstream=off", []string{"200", own + `, "upstream-minute";q=7;w=60, "upstream-day";q=70;w=86400`, `"minute";r=4, "day";r=99, "upstream-minute";r=7, "upstream-day";r=70`}},
		{"the user's windows go first, whichever is enforced", "user=b&tier=dry&upstream=gpt-4o", []string{"429", `"minute";q=0;w=60, "day";q=70;w=86400, ` + policy, `"upstream-minute";r=0;t=60`}},
		{"what a tried out cap says is added", "user=b&upstream=dry", []string{"200", own + `, "upstream-minute";q=0;w=60, "upstream-day";q=70;w=86400`, `"minute";r=3, "day";r=98, "upstream-minute";r=0`}},
		{"also where the cap was asked first", "user=c&tier=dry-room&upstream=roomy", []string{"200", `"minute";q=8;w=60, "day";q=80;w=86400, "upstream-minute";q=9;w=60, "upstream-day";q=90;w=86400`, `"minute";r=7, "day";r=79, "upstream-minute";r=8, "upstream-day";r=89`}},
		{"or alone", "user=c&tier=off&upstream=roomy", []string{"200", `"minute";q=7;w=60, "day";q=70;w=86400, "upstream-minute";q=9;w=60, "upstream-day";q=90;w=86400`, `"minute";r=7, "day";r=70, "upstream-minute";r=7, "upstream-day";r=88`}},
		{"without an upstream nothing has changed", "user=b", []string{"200", own, `"minute";r=2, "day";r=97`}},
	} {
		if diff := cmp.Diff(tc.want, fields("/check?"+tc.query)); diff != "" {
			t.Errorf("%d: %s: -want +got:\n%s", i, tc.reason, diff)
		}
	}
	r := e.ask("/check?user=b&upstream=gpt-4o")
	limit := int64(1)
	want := problem{Type: "tag:tierlimit.dev,2026:upstream-quota-exceeded", Title: "Upstream Quota Exceeded", Status: 429,
		Detail: "All callers of upstream gpt-4o together may make 1 requests per minute. Retry after 60 seconds. Your own budget was not charged.",
		Tier:   "free", Upstream: "gpt-4o", Window: "upstream-minute", Limit: &limit, RetryAfter: 60, Violated: []string{"upstream-minute"}}
	if diff := cmp.Diff(want, problemOf(t, r)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for name, want := range map[string]float64{"upstream-minute": 6, "minute": 3} {
		if got := value(t, e.registry, "tierlimit_checks_total", "window", name); got != want {
			t.Errorf("window %s: %v checks, want %v", name, got, want)
		}
	}
	if p := problemOf(t, e.ask("/check?user=b&upstream=gold")); p.Detail != `there is no RateLimitTier "gold", which is to cap the upstream: create it; no default tier stands in for a cap` {
		t.Errorf("%+v", p)
	}
	if got := value(t, e.registry, "tierlimit_checks_total", "outcome", "no_tier"); got != 1 {
		t.Errorf("outcome no_tier: %v", got)
	}
}

// Exactly the cap is admitted, and whom it rejects has charged nothing to his own budget.
func TestUpstreamCapIsExact(t *testing.T) {
	const users, most = 200, 20
	server := redistest.Start(t)
	e := newEndpoint(realLimiterFor(t, server, time.Minute), nil, budget("free", 5, 100), budget("gpt-4o", most, 1000))
	var rejected sync.Map
	var admitted atomic.Int64
	var wait sync.WaitGroup
	for i := range users {
		wait.Go(func() {
			user := fmt.Sprint("user", i)
			switch r := e.ask("/check?upstream=gpt-4o&user=" + user); r.Code {
			case 200:
				admitted.Add(1)
			case 429:
				rejected.Store(user, true)
			default:
				t.Errorf("%s: %d %s", user, r.Code, r.Body)
			}
		})
	}
	wait.Wait()
	if got := admitted.Load(); got != most {
		t.Errorf("%d admitted, want %d", got, most)
	}
	rejected.Range(func(user, _ any) bool {
		if got := logOf(t, server, limiter.Subject{User: user.(string)}); got != 0 {
			t.Errorf("%s was rejected by the cap and charged %d", user, got)
		}
		return true
	})
	if got := logOf(t, server, limiter.Subject{User: "gpt-4o", Kind: "upstream"}); got != most {
		t.Errorf("the cap has %d entries", got)
	}
}

// What is charged to whom: an enforced budget that rejects is the whole answer.
func TestUpstreamCharges(t *testing.T) {
	server := redistest.Start(t)
	e := newEndpoint(realLimiter(t, server), nil, budget("free", 1, 100), budget("dry", 1, 100, dryRunTier), budget("off", 1, 100, engaged(time.Time{})),
		budget("cap", 1, 100), budget("cap-dry", 1, 100, dryRunTier), budget("cap-off", 1, 100, engaged(time.Time{})))
	for name, tc := range map[string]struct {
		reason, query string
		own, cap      int64 // entries after two requests
	}{
		"Both":       {"both are charged once", "tier=free&upstream=cap", 1, 1},
		"CapDry":     {"what is rejected is not tried out", "tier=free&upstream=cap-dry", 1, 1},
		"OwnDry":     {"the same the other way round", "tier=dry&upstream=cap", 1, 1},
		"BothDry":    {"a dry run charges what fits into both", "tier=dry&upstream=cap-dry", 1, 1},
		"OwnOff":     {"a budget that is off is not charged", "tier=off&upstream=cap", 0, 1},
		"CapOff":     {"the same the other way round", "tier=free&upstream=cap-off", 1, 0},
		"Off":        {"nothing is charged", "tier=off&upstream=cap-off", 0, 0},
		"NoUpstream": {"a check without an upstream charges none", "tier=free", 1, 0},
		"Exempt":     {"a method that does not count does not count for the cap", "tier=free&upstream=cap&exempt=OPTIONS", 0, 0},
	} {
		server.Client.FlushAll(t.Context())
		for range 2 {
			e.ask("/check?user=u&"+tc.query, "X-Forwarded-Method", map[bool]string{true: "OPTIONS", false: "POST"}[name == "Exempt"])
		}
		_, upstream, _ := strings.Cut(tc.query, "upstream=")
		upstream, _, _ = strings.Cut(upstream+"&", "&")
		own, shared := logOf(t, server, limiter.Subject{User: "u"}), logOf(t, server, limiter.Subject{User: upstream, Kind: "upstream"})
		if own != tc.own || shared != tc.cap {
			t.Errorf("%s: %d charged to the user and %d to the cap, want %d and %d: %s", name, own, shared, tc.own, tc.cap, tc.reason)
		}
	}
}

// budgetsFunc is a Limiter that sees all budgets of a check.
type budgetsFunc func(...limiter.Budget) (limiter.Decision, error)

func (f budgetsFunc) CheckBudgets(_ context.Context, budgets ...limiter.Budget) (limiter.Decision, error) {
	return f(budgets...)
}

func (f budgetsFunc) LookBudgets(_ context.Context, budgets ...limiter.Budget) (limiter.Decision, error) {
	return f(budgets...)
}

func TestUpstreamGRPC(t *testing.T) {
	e := newEndpoint(realLimiter(t, redistest.Start(t)), nil, budget("free", 5, 100), budget("gpt-4o", 1, 100))
	v := startEnvoy(t, e)
	extensions := map[string]string{"tier": "free", "upstream": "gpt-4o"}
	got := v.check(t, request("203.0.113.7", extensions))
	if got.Status != 0 || !strings.Contains(strings.Join(got.ToClient, "\n"), "X-RateLimit-Window: upstream-minute") {
		t.Errorf("admitted: %+v", got)
	}
	got = v.check(t, request("203.0.113.8", extensions))
	if got.Status != 429 || !strings.Contains(got.Body, upstreamQuotaExceeded) {
		t.Errorf("rejected: %+v", got)
	}
	got = v.check(t, request("203.0.113.8", map[string]string{"upstream": "gpt-4o", "upstream-per": "user"}))
	if got.Status != 400 || !strings.Contains(got.Body, `\"upstream-per\" is \"user\": use tenant`) {
		t.Errorf("invalid: %+v", got)
	}
}

func TestUpstreamAndTheGlobalSwitch(t *testing.T) {
	e := newEndpoint(fixed(limiter.Decision{}, errors.New("not asked")), func(o *Options) { o.Disabled = true }, budget("free", 5, 100), budget("cap", 2, 100))
	for query, want := range map[string]said{
		"upstream=cap":  {Status: 200, Limit: "5", Remaining: "5", Window: "minute", Tier: "free", Enforcement: "disabled"},
		"upstream=gold": {Status: 200, Limit: "5", Remaining: "5", Window: "minute", Tier: "free", Enforcement: "disabled"},
	} {
		if diff := cmp.Diff(want, whatWasSaid(e.ask("/check?user=u&"+query))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", query, diff)
		}
	}
	if got := value(t, e.registry, "tierlimit_store_duration_seconds", "", ""); got != 0 {
		t.Errorf("the limiter was asked %v times", got)
	}
}
