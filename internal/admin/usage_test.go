// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/openapitest"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// TestUsageIsAsked looks at what is asked of the usage side, and what is refused before.
func TestUsageIsAsked(t *testing.T) {
	d := newDesk(t, openapitest.Load(t), nil, budget("free", 5, 100), &tier.Tier{Name: "daily", Limits: []limiter.Limit{{Requests: 7, Window: tier.Day}}})
	limits := func(perMinute, perDay int64) []limiter.Limit {
		return []limiter.Limit{{Requests: perMinute, Window: tier.Minute}, {Requests: perDay, Window: tier.Day}}
	}
	for target, want := range map[string]any{
		"/admin/v1/top": []any{"used", "", 20},
		"/admin/v1/top?by=rejected&tier=free&limit=1000":    []any{"rejected", "free", 1000},
		"/admin/v1/top?by=name":                             "use used or rejected",
		"/admin/v1/top?limit=0":                             "from 1 to 1000",
		"/admin/v1/top?tier=gold":                           `There is no RateLimitTier \"gold\"`,
		"/admin/v1/top?tier=Gold":                           "cannot be the name",
		"/admin/v1/simulate?per-minute=30":                  []any{"free", limits(30, 100)},
		"/admin/v1/simulate?per-day=5":                      []any{"free", limits(5, 5)},
		"/admin/v1/simulate?tier=daily&per-minute=3":        []any{"daily", limits(3, 7)},
		"/admin/v1/simulate?per-day=0&per-minute=0":         []any{"free", limits(0, 0)},
		"/admin/v1/simulate?per-day=4":                      "4 requests per day are fewer than 5 per minute",
		"/admin/v1/simulate?tier=free":                      "the limits to try out",
		"/admin/v1/simulate?per-minute=-1":                  "from 0 to 1000000000",
		"/admin/v1/simulate?tier=gold&per-minute=1":         `There is no RateLimitTier \"gold\"`,
		"/admin/v1/simulate?per-minute=30&per-day=40&user=": `Unknown parameter \"user\"`,
	} {
		d.usage.asked = nil
		r := d.ask(http.MethodGet, target)
		if says, refused := want.(string); refused {
			if r.Code != http.StatusBadRequest || !strings.Contains(r.Body.String(), says) || d.usage.asked != nil {
				t.Errorf("%s: %d %s, want %q", target, r.Code, r.Body, says)
			}
			continue
		}
		if diff := cmp.Diff(want, any(d.usage.asked)); r.Code != http.StatusOK || diff != "" {
			t.Errorf("%s: %d, -want +asked:\n%s", target, r.Code, diff)
		}
	}
}

// TestSimulations run one at a time, and end with the process.
func TestSimulations(t *testing.T) {
	ending, end := context.WithCancel(t.Context())
	d := newDesk(t, openapitest.Load(t), func(o *Options) { o.Ending = ending }, budget("free", 5, 100))
	begun := make(chan struct{})
	d.usage.simulate = func(ctx context.Context, logs Logs, _ *tier.Tier, _ []limiter.Limit) (adminapi.Simulation, error) {
		if _, err := logs.Times(ctx, limiter.Subject{User: "u"}, tier.Minute); err != nil {
			return adminapi.Simulation{}, fmt.Errorf("the logs cannot be read: %w", err)
		}
		if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > simulateWithin {
			t.Errorf("the deadline is %v", deadline)
		}
		close(begun)
		<-ctx.Done()
		return adminapi.Simulation{}, ctx.Err()
	}
	first := make(chan string)
	go func() {
		r := d.ask(http.MethodGet, "/admin/v1/simulate?per-minute=1")
		first <- fmt.Sprint(r.Code, r.Body)
	}()
	<-begun
	if r := d.ask(http.MethodGet, "/admin/v1/simulate?per-minute=1"); r.Code != http.StatusServiceUnavailable || !strings.Contains(r.Body.String(), "busy with another") {
		t.Errorf("a second one: %d %s", r.Code, r.Body)
	}
	end()
	if got := <-first; !strings.Contains(got, "503") || !strings.Contains(got, "about to end") {
		t.Errorf("at the end: %s", got)
	}
}

// An explanation takes what a check takes.
func TestExplainParameters(t *testing.T) {
	d := newDesk(t, openapitest.Load(t), nil, budget("free", 5, 100))
	for name, tc := range map[string]struct {
		query string
		code  int
		says  string
	}{
		"User":         {"user=u", 200, `"The caller is user \"u\", by the parameter user."`},
		"Header":       {query("header", "x-real-ip: 203.0.113.9"), 200, `203.0.113.9`},
		"Twice":        {query("header", "X-Real-IP: 203.0.113.9", "header", "X-Real-IP: 203.0.113.10"), 200, `"status":400`},
		"Peer":         {"peer=198.51.100.4", 200, "198.51.100.4"},
		"PeerPort":     {query("peer", "[2001:db8::1]:80"), 200, "2001:db8::/64"},
		"Kind":         {query("kind", "ip", "user", "2001:db8::9"), 200, "2001:db8::/64"},
		"BadOfCheck":   {"user=u&auth=x", 200, `"status":400`},
		"BadName":      {"user=u&tier=Free", 200, `"status":400`},
		"NoCaller":     {"route=r", 200, `"status":400`},
		"BadHeader":    {"header=s3cret", 400, "is not written as"},
		"BadValue":     {"header=A:%0Ab", 400, "is not written as"},
		"BadPeer":      {"peer=here", 400, "is not an IP address"},
		"UpstreamKind": {"kind=upstream&user=free", 400, "never by an upstream"},
		"KindAlone":    {"kind=key", 400, "say whose"},
		"Unknown":      {"teir=free", 400, "Unknown parameter"},
	} {
		r := d.ask(http.MethodGet, "/admin/v1/explain?"+tc.query)
		if r.Code != tc.code || !strings.Contains(r.Body.String(), tc.says) || strings.Contains(r.Body.String(), "s3cret") {
			t.Errorf("%s: %d %s, want %d with %q", name, r.Code, r.Body, tc.code, tc.says)
		}
	}
}
