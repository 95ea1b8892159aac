// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// Of two failure policies the stricter decides; one of a tier that is not enforced does not count.
func TestUpstreamFailurePolicies(t *testing.T) {
	policies := map[string]func(*tier.Tier){"closed": func(*tier.Tier) {}, "local": failLocalTier, "open": failOpenTier}
	order := map[string]int{"closed": 0, "local": 1, "open": 2}
	want := map[string]said{
		"closed": {Status: 503, Limit: "4", Remaining: "0", Window: "minute", Tier: "free", Body: true},
		"local":  {Status: 200, Limit: "1", Remaining: "0", Window: "upstream-minute", Tier: "free", Enforcement: "local"},
		"open":   {Status: 200, Limit: "4", Remaining: "4", Window: "minute", Tier: "free", Enforcement: "failed-open"},
	}
	away := fixed(limiter.Decision{}, errors.New("away"))
	for own, user := range policies {
		for shared, upstream := range policies {
			e := newEndpoint(away, among(2), budget("free", 4, 100, user), budget("cap", 2, 100, upstream))
			stricter := own
			if order[shared] < order[own] {
				stricter = shared
			}
			r := e.ask("/check?user=u&upstream=cap")
			if diff := cmp.Diff(want[stricter], whatWasSaid(r)); diff != "" {
				t.Errorf("%s and %s: -want +got:\n%s", own, shared, diff)
			}
			if named := map[bool]string{true: "the free tier", false: "the cap tier"}[own == "closed"]; stricter == "closed" && own != shared && !strings.Contains(problemOf(t, r).Detail, named) {
				t.Errorf("%s and %s: %s", own, shared, r.Body)
			}
		}
	}
	for name, tc := range map[string]struct {
		reason    string
		own, cap  *tier.Tier
		status    int
		mark, why string
	}{
		"CapOff":  {"the cap is off, and its policy with it", budget("free", 4, 100, failOpenTier), budget("cap", 2, 100, engaged(time.Time{})), 200, "failed-open", ""},
		"CapDry":  {"what is tried out does not decide", budget("free", 4, 100, failOpenTier), budget("cap", 2, 100, dryRunTier), 200, "failed-open", ""},
		"OwnDry":  {"the cap does", budget("free", 4, 100, failOpenTier, dryRunTier), budget("cap", 2, 100), 503, "", "the cap tier has failurePolicy FailClosed"},
		"BothDry": {"nothing does", budget("free", 4, 100, dryRunTier), budget("cap", 2, 100, dryRunTier), 200, "failed-open", ""},
	} {
		r := newEndpoint(away, nil, tc.own, tc.cap).ask("/check?user=u&upstream=cap")
		if got := strings.Join(r.Header()["X-Tierlimit-Enforcement"], ""); r.Code != tc.status || got != tc.mark || !strings.Contains(r.Body.String(), tc.why) {
			t.Errorf("%s: %d %q %s: %s", name, r.Code, got, r.Body, tc.reason)
		}
	}
}

// The cap has a share too, and both are decided together.
func TestUpstreamFailLocal(t *testing.T) {
	e := newEndpoint(fixed(limiter.Decision{}, errors.New("away")), among(2), budget("free", 4, 100, failLocalTier), budget("gpt-4o", 2, 100, failLocalTier))
	if r := e.ask("/check?user=a&upstream=gpt-4o"); r.Code != 200 {
		t.Fatalf("%d %s", r.Code, r.Body)
	}
	p := problemOf(t, e.ask("/check?user=b&upstream=gpt-4o"))
	if want := "All callers of upstream gpt-4o together may make 1 requests per minute at this replica while the rate limit store does not decide. Retry after 60 seconds. Your own budget was not charged."; p.Detail != want || p.Type != upstreamQuotaExceeded {
		t.Errorf("%+v", p)
	}
	if got := whatWasSaid(e.ask("/check?user=b")); got.Remaining != "1" { // of its share of 2
		t.Errorf("the rejection by the cap was charged to the user: %+v", got)
	}
}

// What is only tried out must not stop anything, also where Redis goes away in between.
func TestUpstreamTriedOutFails(t *testing.T) {
	calls := 0
	e := newEndpoint(budgetsFunc(func(budgets ...limiter.Budget) (limiter.Decision, error) {
		if calls++; calls > 1 {
			return limiter.Decision{}, errors.New("away")
		}
		return limiter.Decision{Allowed: true, Limit: budgets[0].Limits[0], Remaining: 3}, nil
	}), nil, budget("free", 4, 100), budget("cap", 2, 100, dryRunTier))
	want := said{Status: 200, Limit: "4", Remaining: "3", Window: "minute", Tier: "free"}
	if diff := cmp.Diff(want, whatWasSaid(e.ask("/check?user=u&upstream=cap"))); diff != "" || calls != 2 {
		t.Errorf("%d calls: -want +got:\n%s", calls, diff)
	}
}

// A tier that is tried out beside one that is enforced takes a second call, not a second timeout.
func TestTwoCallsHaveOneDeadline(t *testing.T) {
	var deadlines []time.Time
	asked := limiterFunc(func(ctx context.Context, _ limiter.Subject, limits ...limiter.Limit) (limiter.Decision, error) {
		deadline, ok := ctx.Deadline()
		if !ok {
			t.Error("a call has no deadline")
		}
		deadlines = append(deadlines, deadline)
		return limiter.Decision{Allowed: true, Limit: limits[0]}, nil
	})
	e := newEndpoint(asked, func(o *Options) { o.Timeout = time.Minute }, budget("free", 4, 100), budget("cap", 2, 100, dryRunTier))
	if r := e.ask("/check?tier=free&user=a&upstream=cap"); r.Code != 200 {
		t.Errorf("got %d", r.Code)
	}
	if len(deadlines) != 2 || !deadlines[0].Equal(deadlines[1]) {
		t.Errorf("got deadlines %v, want the same for two calls", deadlines)
	}
}
