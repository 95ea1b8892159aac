// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// A user with 2 a minute is granted 3 requests.
func TestGrant(t *testing.T) {
	cases := map[string]struct {
		reason string
		before int
		query  string
		change func(*tier.Tier)
		want   said
		policy string
		usage  string
	}{
		"NotNeeded": {"As long as the tier has room the answer is as without.", 0, "", nil,
			said{Status: 200, Limit: "2", Remaining: "1", Window: "minute", Tier: "free"},
			`"minute";q=2;w=60, "day";q=100;w=86400`, `"minute";r=1, "day";r=99`},
		"Last": {"The last request of the tier leaves those of the grant.", 1, "", nil,
			said{Status: 200, Limit: "5", Remaining: "3", Window: "minute", Tier: "free"},
			`"minute";q=5;w=60, "day";q=103;w=86400`, `"minute";r=3, "day";r=101`},
		"Granted": {"The grant lets pass what the tier does not.", 2, "", nil,
			said{Status: 200, Limit: "5", Remaining: "2", Window: "minute", Tier: "free", Enforcement: "granted"},
			`"minute";q=5;w=60, "day";q=103;w=86400`, `"minute";r=2, "day";r=100`},
		"UsedUp": {"Then the tier rejects.", 5, "", nil,
			said{Status: 429, Limit: "2", Remaining: "0", Window: "minute", Tier: "free", RetryAfter: true, Body: true},
			`"minute";q=2;w=60, "day";q=100;w=86400`, ""},
		"Cap": {"A cap is not raised, and here is closer to its end.", 2, "&upstream=cap", nil,
			said{Status: 200, Limit: "4", Remaining: "1", Window: "upstream-minute", Tier: "free", Enforcement: "granted"},
			`"minute";q=5;w=60, "day";q=103;w=86400, "upstream-minute";q=4;w=60, "upstream-day";q=1000;w=86400`,
			`"minute";r=2, "day";r=100, "upstream-minute";r=1, "upstream-day";r=997`},
		"CapFull": {"Nor does a grant help against it.", 4, "&upstream=cap", nil,
			said{Status: 429, Limit: "4", Remaining: "0", Window: "upstream-minute", Tier: "free", RetryAfter: true, Body: true},
			`"minute";q=2;w=60, "day";q=100;w=86400, "upstream-minute";q=4;w=60, "upstream-day";q=1000;w=86400`, ""},
		"DryRun": {"What a grant lets pass would not have been rejected.", 2, "", dryRunTier,
			said{Status: 200, Limit: "5", Remaining: "2", Window: "minute", Tier: "free", Enforcement: "granted"},
			`"minute";q=5;w=60, "day";q=103;w=86400`, `"minute";r=2, "day";r=100`},
		"KillSwitch": {"A kill switch charges no grant.", 9, "", engaged(time.Time{}),
			said{Status: 200, Limit: "2", Remaining: "2", Window: "minute", Tier: "free", Enforcement: "disabled"},
			`"minute";q=2;w=60, "day";q=100;w=86400`, `"minute";r=2, "day";r=100`},
		"LimitOfZero": {"A tier that admits nobody does not with a grant.", 0, "", func(t *tier.Tier) { t.Limits[0].Requests = 0 },
			said{Status: 429, Limit: "0", Remaining: "0", Window: "minute", Tier: "free", Body: true},
			`"minute";q=0;w=60, "day";q=100;w=86400`, `"minute";r=0`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			window := realLimiter(t, server).(*limiter.SlidingWindow)
			if _, _, err := window.Grant(t.Context(), limiter.Subject{User: "u"}, 3, time.Hour); err != nil {
				t.Fatal(err)
			}
			free := budget("free", 2, 100)
			if tc.change != nil {
				tc.change(free)
			}
			e := newEndpoint(window, nil, free, budget("cap", 4, 1000))
			for range tc.before {
				e.ask("/check?user=u" + tc.query)
			}
			answer := e.ask("/check?user=u" + tc.query)
			if diff := cmp.Diff(tc.want, whatWasSaid(answer)); diff != "" {
				t.Errorf("%s -want +got:\n%s", tc.reason, diff)
			}
			said := func(name string) string { return answer.Header()[name][0] } // in the case that is documented
			if got := said(headerPolicy); got != tc.policy {
				t.Errorf("%s RateLimit-Policy is %s, want %s", tc.reason, got, tc.policy)
			}
			if got := said(headerRateLimit); tc.usage != "" && got != tc.usage {
				t.Errorf("%s RateLimit is %s, want %s", tc.reason, got, tc.usage)
			}
		})
	}
}

// Two users, one of them with a grant, at a route with a cap that is only tried out.
func TestGrantBesideACapThatIsTriedOut(t *testing.T) {
	server := redistest.Start(t)
	window := realLimiter(t, server).(*limiter.SlidingWindow)
	if _, _, err := window.Grant(t.Context(), limiter.Subject{User: "u"}, 3, time.Hour); err != nil {
		t.Fatal(err)
	}
	e := newEndpoint(window, nil, budget("free", 1, 100), budget("cap-dry", 2, 1000, dryRunTier))
	for i, want := range []said{
		{Status: 200, Limit: "2", Remaining: "1", Window: "upstream-minute", Tier: "free"},
		{Status: 200, Limit: "2", Remaining: "0", Window: "upstream-minute", Tier: "free", Enforcement: "granted"},
		{Status: 200, Limit: "2", Remaining: "0", Window: "upstream-minute", Tier: "free", Enforcement: "dry-run"},
	} {
		if diff := cmp.Diff(want, whatWasSaid(e.ask("/check?user=u&upstream=cap-dry"))); diff != "" {
			t.Errorf("request %d: -want +got:\n%s", i+1, diff)
		}
	}
}
