// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/proxytest"
)

// TestNginxForgery has a client say of itself what nginx or Tierlimit say of it. It is charged and
// told the same as without.
func TestNginxForgery(t *testing.T) {
	cases := map[string]struct {
		reason  string
		query   string
		headers []string
	}{
		"address":      {reason: "nginx overwrites it", headers: []string{"X-Real-IP: 192.0.2.1", "X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1"}},
		"two of them":  {reason: "nginx overwrites both", headers: []string{"X-Real-IP: 192.0.2.1", "X-Real-IP: 192.0.2.2"}},
		"no address":   {reason: "an empty one is overwritten", headers: []string{"X-Real-IP: "}},
		"request":      {reason: "nginx says what is asked for", headers: []string{"X-Original-Method: OPTIONS", "X-Original-URL: http://free.example/open/", "X-Original-URI: /open/", "X-Forwarded-Method: OPTIONS", "X-Forwarded-Uri: /open/"}},
		"status":       {reason: "it is the check that says it", headers: []string{"X-Tierlimit-Status: 200", "X-Tierlimit-Problem: {}", "X-Tierlimit-Enforcement: disabled"}},
		"budget":       {reason: "the same", headers: []string{"X-RateLimit-Limit: 1000", "X-RateLimit-Remaining: 1000", "RateLimit: \"minute\";r=1000", "Retry-After: 0"}},
		"tier":         {reason: "the route's owner has chosen it", query: "?tier=enterprise&user=root", headers: []string{"X-Tierlimit-Tier: enterprise", "X-Tier: enterprise"}},
		"a connection": {reason: "Connection cannot name what nginx has set", headers: []string{"Connection: close, X-Real-IP, X-Original-Method"}},
		"an upgrade":   {reason: "nginx does not pass it to the check", headers: []string{"Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"}},
	}
	for recipe, configure := range recipes {
		t.Run(recipe, func(t *testing.T) {
			check := proxytest.StartCheck(t, nil, proxytest.Tier("free", 2, time.Minute), proxytest.Tier("enterprise", 1000, time.Minute))
			url := proxytest.StartNginx(t, configure(t, proxytest.Nginx{Application: proxytest.StartApplication(t).Address(), Routes: []proxytest.NginxRoute{
				{Path: "/free/", AuthURL: authURL(check.Address(), "tier=free")},
			}}))
			for name, tc := range cases {
				t.Run(name, func(t *testing.T) {
					client := newClient(t)
					// Before and after two honest requests, so that both answers are seen.
					before := keys(t, check)
					admitted := client.get(t, url+"/free/"+tc.query, tc.headers...)
					charged := without(keys(t, check), before)
					if len(charged) != 1 || !strings.Contains(charged[0], client.address) {
						t.Errorf("%s: charged was %v, want %s", tc.reason, charged, client.address)
					}
					if diff := cmp.Diff(map[string]string{"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "1", "X-RateLimit-Window": "minute", "X-Tierlimit-Tier": "free"},
						rateLimit(admitted.header)); admitted.status != 200 || diff != "" {
						t.Errorf("%s: got %d (-want +got):\n%s", tc.reason, admitted.status, diff)
					}
					client.get(t, url+"/free/")
					rejected := client.get(t, url+"/free/"+tc.query, tc.headers...)
					rejected.noTrace(t)
					if diff := cmp.Diff(map[string]string{"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "0", "X-RateLimit-Window": "minute", "X-Tierlimit-Tier": "free"},
						rateLimit(rejected.header)); rejected.status != 429 || diff != "" || rejected.header.Get("Retry-After") == "0" {
						t.Errorf("%s: got %d (-want +got):\n%s", tc.reason, rejected.status, diff)
					}
					if now := without(keys(t, check), before); len(now) != 1 {
						t.Errorf("%s: charged was %v in the end", tc.reason, now)
					}
				})
			}
		})
	}
}

// keys are the keys in Redis, sorted.
func keys(t *testing.T, check *proxytest.Check) []string {
	t.Helper()
	keys, err := check.Redis.Client.Keys(context.Background(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	return keys
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(key string) bool { return slices.Contains(some, key) })
}

// TestNginxPaths asks for paths that are written in unusual ways, over a connection of its own: Go's
// client would tidy them up.
func TestNginxPaths(t *testing.T) {
	cases := map[string]struct {
		reason  string
		path    string
		checks  int
		changed string // what the application gets, if it is not the path
	}{
		"semicolon":       {reason: "a parameter of the path", path: "/free/a;tier=enterprise/b", checks: 1},
		"encoded slash":   {reason: "stays encoded", path: "/free/a%2Fb", checks: 1},
		"double slash":    {reason: "stays double", path: "/free//a", checks: 1},
		"dot segments":    {reason: "stay", path: "/free/x/../a/./b", checks: 1},
		"encoded dots":    {reason: "stay encoded", path: "/free/%2e%2e/free/a", checks: 1},
		"into the route":  {reason: "nginx resolves them before it chooses a route", path: "/open/../free/a", checks: 1},
		"by double slash": {reason: "the same for slashes", path: "//free/a", checks: 1},
		"encoded letters": {reason: "and for letters", path: "/%66ree/a", checks: 1},
		"out of it":       {reason: "this is the route without a check", path: "/free/../open/a", checks: 0},
		"query":           {reason: "characters that mean something to the check", path: "/free/a?b=c&tier=enterprise;d=%26%3F#", checks: 1},
		"empty query":     {reason: "stays", path: "/free/a?", checks: 1},
		"absolute":        {reason: "a request to a proxy names a host; nginx passes the path on", path: "http://free.example/free/a", checks: 1, changed: "/free/a"},
	}
	for recipe, configure := range recipes {
		t.Run(recipe, func(t *testing.T) {
			check := proxytest.StartCheck(t, nil, proxytest.Tier("free", 1000, time.Minute))
			application := proxytest.StartApplication(t)
			url := proxytest.StartNginx(t, configure(t, proxytest.Nginx{Application: application.Address(), Routes: []proxytest.NginxRoute{
				{Path: "/free/", AuthURL: authURL(check.Address(), "tier=free")},
				{Path: "/open/"},
			}}))
			for name, tc := range cases {
				t.Run(name, func(t *testing.T) {
					if got := rawGet(t, url, tc.path); got != 200 {
						t.Errorf("%s: got %d, want 200", tc.reason, got)
					}
					if got := len(check.Asked()); got != tc.checks {
						t.Errorf("%s: got %d checks, want %d", tc.reason, got, tc.checks)
					}
					want := tc.path
					if tc.changed != "" {
						want = tc.changed
					}
					var got []string
					for _, r := range application.Requests() {
						got = append(got, r.RequestURI)
					}
					if diff := cmp.Diff([]string{want}, got); diff != "" {
						t.Errorf("%s: the application got (-want +got):\n%s", tc.reason, diff)
					}
				})
			}
		})
	}
}

// rawGet asks for a path as it is and returns the status.
func rawGet(t *testing.T, url, path string) int {
	t.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: free.example\r\nConnection: close\r\n\r\n", path)
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

// TestNginxRoutes has one client use several Ingresses of one host.
func TestNginxRoutes(t *testing.T) {
	steps := []struct {
		reason    string
		path      string
		status    int
		tier      string
		remaining string
	}{
		{"the first of three", "/pro/", 200, "pro", "2"},
		{"usage follows the user, whatever the tier", "/free/", 429, "free", "0"},
		{"a rejection is not charged", "/pro/", 200, "pro", "1"},
		{"a route with a budget of its own", "/chat/", 200, "free", "0"},
		{"which is used up for itself", "/chat/", 429, "free", "0"},
		{"and for nobody else", "/pro/", 200, "pro", "0"},
		{"now this one is used up too", "/pro/", 429, "pro", "0"},
		{"a route without a check", "/open/", 200, "", ""},
	}
	for recipe, configure := range recipes {
		t.Run(recipe, func(t *testing.T) {
			check := proxytest.StartCheck(t, nil, proxytest.Tier("free", 1, time.Minute), proxytest.Tier("pro", 3, time.Minute))
			url := proxytest.StartNginx(t, configure(t, proxytest.Nginx{Application: proxytest.StartApplication(t).Address(), Routes: []proxytest.NginxRoute{
				{Path: "/free/", AuthURL: authURL(check.Address(), "tier=free")},
				{Path: "/pro/", AuthURL: authURL(check.Address(), "tier=pro")},
				{Path: "/chat/", AuthURL: authURL(check.Address(), "tier=free&route=chat")},
				{Path: "/open/"},
			}}))
			client := newClient(t)
			for i, step := range steps {
				got := client.get(t, url+step.path)
				got.noTrace(t)
				if got.status != step.status || got.header.Get("X-Tierlimit-Tier") != step.tier || got.header.Get("X-RateLimit-Remaining") != step.remaining {
					t.Errorf("step %d, %s: got %d with %v, want %d with tier %q and %q remaining", i, step.reason, got.status, got.header, step.status, step.tier, step.remaining)
				}
			}
		})
	}
}
