// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/proxytest"
	"github.com/tierlimit/tierlimit/internal/tier"
)

// TestNginxTrouble has a part of the whole fail, or be set up wrongly.
func TestNginxTrouble(t *testing.T) {
	failOpen := func(t *tier.Tier) { t.FailurePolicy = tier.FailOpen }
	killed := func(t *tier.Tier) { t.KillSwitch = tier.KillSwitch{Engaged: true} }
	cases := map[string]struct {
		reason     string
		parameters string
		trouble    func(*proxytest.Check)
		status     int
		body       string // a part of it
		want       map[string]string
	}{
		"store down, FailClosed": {
			reason: "not the client's fault", parameters: "tier=free", trouble: func(c *proxytest.Check) { c.Redis.Stop() },
			status: 503, body: "failurePolicy FailClosed",
			want: map[string]string{"X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "0", "X-RateLimit-Window": "minute", "X-Tierlimit-Tier": "free"},
		},
		"store hangs, FailClosed": {
			reason: "nginx waits longer than the check does", parameters: "tier=free", trouble: func(c *proxytest.Check) { c.Redis.Freeze() },
			status: 503, body: "failurePolicy FailClosed",
			want: map[string]string{"X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "0", "X-RateLimit-Window": "minute", "X-Tierlimit-Tier": "free"},
		},
		"store down, FailOpen": {
			reason: "the client is told that nobody counts", parameters: "tier=open", trouble: func(c *proxytest.Check) { c.Redis.Stop() },
			status: 200, body: "the application got 0 bytes",
			want: map[string]string{"X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "5", "X-RateLimit-Window": "minute", "X-Tierlimit-Tier": "open", "X-Tierlimit-Enforcement": "failed-open"},
		},
		"kill switch": {
			reason: "the same, on purpose", parameters: "tier=killed",
			status: 200, body: "the application got 0 bytes",
			want: map[string]string{"X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "5", "X-RateLimit-Window": "minute", "X-Tierlimit-Tier": "killed", "X-Tierlimit-Enforcement": "disabled"},
		},
		"a budget of 0": {
			reason: "no wait helps, so there is no Retry-After", parameters: "tier=nobody",
			status: 429, body: "admits no requests",
			want: map[string]string{"X-RateLimit-Limit": "0", "X-RateLimit-Remaining": "0", "X-RateLimit-Window": "minute", "X-Tierlimit-Tier": "nobody"},
		},
		"unknown tier": {
			reason: "the default tier stands in, visibly", parameters: "tier=gold",
			status: 200, body: "the application got 0 bytes",
			want: map[string]string{"X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "4", "X-RateLimit-Window": "minute", "X-Tierlimit-Tier": "free", "X-Tierlimit-Unknown-Tier": "gold"},
		},
		"wrong parameter": {
			reason: "whoever has written auth-url sees why nothing works", parameters: "tier=free&teir=pro",
			status: 400, body: "unknown parameter", want: map[string]string{},
		},
		"tier twice": {
			reason: "what a client could have added to a variable", parameters: "tier=free&tier=open",
			status: 400, body: "given twice", want: map[string]string{},
		},
		"tiers not loaded": {
			reason: "a replica that has just started", parameters: "tier=free", trouble: func(c *proxytest.Check) { *c.Tiers = tier.Table{} },
			status: 503, body: "not been loaded", want: map[string]string{},
		},
	}
	for recipe, configure := range recipes {
		for name, tc := range cases {
			t.Run(recipe+"/"+name, func(t *testing.T) {
				check := proxytest.StartCheck(t, nil, proxytest.Tier("free", 5, time.Minute), proxytest.Tier("nobody", 0, time.Minute),
					proxytest.Tier("open", 5, time.Minute, failOpen), proxytest.Tier("killed", 5, time.Minute, killed))
				url := proxytest.StartNginx(t, configure(t, proxytest.Nginx{Application: proxytest.StartApplication(t).Address(), Routes: []proxytest.NginxRoute{
					{Path: "/", AuthURL: authURL(check.Address(), tc.parameters)},
				}}))
				if tc.trouble != nil {
					tc.trouble(check)
				}
				got := newClient(t).get(t, url+"/")
				got.noTrace(t)
				if got.status != tc.status || !strings.Contains(got.body, tc.body) {
					t.Errorf("%s: got %d with %q, want %d with %q", tc.reason, got.status, got.body, tc.status, tc.body)
				}
				if problem := got.header.Get("Content-Type") == "application/problem+json"; problem != (tc.status != 200) {
					t.Errorf("%s: got Content-Type %q", tc.reason, got.header.Get("Content-Type"))
				}
				if diff := cmp.Diff(tc.want, rateLimit(got.header)); diff != "" {
					t.Errorf("%s: headers (-want +got):\n%s", tc.reason, diff)
				}
				if after := got.header.Get("Retry-After"); after != "" {
					t.Errorf("%s: got Retry-After %q", tc.reason, after)
				}
			})
		}
	}
}

// TestNginxCheckAway has nobody answer checks.
func TestNginxCheckAway(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts; nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	cases := map[string]struct {
		reason      string
		check       string
		least, most time.Duration
	}{
		"down":  {reason: "refused at once", check: proxytest.FreeAddress(t), most: time.Second},
		"hangs": {reason: "nginx's own limit would be 60 s", check: silent.Addr().String(), least: 2900 * time.Millisecond, most: 6 * time.Second},
	}
	for recipe, configure := range recipes {
		for name, tc := range cases {
			t.Run(recipe+"/"+name, func(t *testing.T) {
				application := proxytest.StartApplication(t)
				url := proxytest.StartNginx(t, configure(t, proxytest.Nginx{Application: application.Address(), Routes: []proxytest.NginxRoute{
					{Path: "/", AuthURL: authURL(tc.check, "tier=free")},
				}}))
				got := newClient(t).get(t, url+"/")
				if got.status != 500 || got.took < tc.least || got.took > tc.most {
					t.Errorf("%s: got %d after %v, want 500 after %v to %v", tc.reason, got.status, got.took, tc.least, tc.most)
				}
				if n := len(application.Requests()); n != 0 {
					t.Errorf("%s: the application got %d requests", tc.reason, n)
				}
			})
		}
	}
}

// TestNginxKeepalive is about auth-keepalive, for which ingress-nginx does not use auth_request:
// the recipes cannot tell why a check refuses. What they must not do is admit, or make it an error.
func TestNginxKeepalive(t *testing.T) {
	for recipe, configure := range recipes {
		t.Run(recipe, func(t *testing.T) {
			check := proxytest.StartCheck(t, nil, proxytest.Tier("free", 1, time.Minute))
			url := proxytest.StartNginx(t, configure(t, proxytest.Nginx{Application: proxytest.StartApplication(t).Address(), Routes: []proxytest.NginxRoute{
				{Path: "/", AuthURL: authURL(check.Address(), "tier=free"), Keepalive: true},
			}}))
			client := newClient(t)
			for i, want := range []int{200, 403, 403} {
				got := client.get(t, url+"/")
				got.noTrace(t)
				if got.status != want || got.header.Get("Retry-After") != "" {
					t.Errorf("request %d: got %d with %v, want %d without Retry-After", i, got.status, got.header, want)
				}
				if n := len(check.Asked()); n != 1 {
					t.Errorf("request %d: %d checks", i, n)
				}
			}
		})
	}
}
