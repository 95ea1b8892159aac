// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/identity"
	"github.com/tierlimit/tierlimit/internal/proxytest"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
)

// TestNginxLeavesOthersAlone compares answers that are not a check's with those of an nginx that
// has no snippets.
func TestNginxLeavesOthersAlone(t *testing.T) {
	challenge := auth{401, headers(`WWW-Authenticate: Basic realm="staff"`, "Set-Cookie: csrf=1; Path=/")}
	cases := map[string]struct {
		reason     string
		route      proxytest.NginxRoute
		auth       *auth
		path       string
		errorPages bool
		configMap  bool // it is so in this recipe only
		status     int
		more       map[string]string // headers that nginx without snippets drops
	}{
		"no check":             {reason: "nothing is added", path: "/a", status: 200},
		"own budget":           {reason: "the application has headers of the same names", path: "/a?own=1", status: 200},
		"own 403":              {reason: "the application's page is its own", path: "/a/forbidden", status: 403},
		"allow-list":           {reason: "a 403 that nobody has asked Tierlimit about", route: proxytest.NginxRoute{Denied: true}, path: "/a", status: 403},
		"another 401":          {reason: "its challenge reaches the client", auth: &challenge, path: "/a", status: 401},
		"another 401, sign-in": {reason: "auth-signin has its error_page", auth: &challenge, route: proxytest.NginxRoute{SigninURL: "https://sign-in.example/"}, path: "/a", status: 302},
		"another 403":          {reason: "nginx's own page", auth: &auth{403, headers("X-Internal: 1")}, path: "/a", status: 403},
		"another 403, cookie": {reason: "a cookie goes with it", auth: &auth{403, headers("Set-Cookie: session=; Max-Age=0")}, path: "/a", status: 403,
			more: map[string]string{"Set-Cookie": "session=; Max-Age=0"}},
		"another 403, wait": {reason: "its other headers go, as without snippets", configMap: true, path: "/a", status: 403,
			auth: &auth{403, headers("Retry-After: 5", "X-RateLimit-Limit: 7", "WWW-Authenticate: Basic", "Cache-Control: private")}},
		"another 200":          {reason: "its cookie is passed on as always", auth: &auth{200, headers("Set-Cookie: session=1")}, path: "/a", status: 200},
		"another 500":          {reason: "nginx's own page", auth: &auth{500, nil}, path: "/a", status: 500},
		"page for 403":         {reason: "the cluster's own page for 403 stays", route: proxytest.NginxRoute{Denied: true}, errorPages: true, path: "/a", status: 403},
		"page for own 403":     {reason: "and stands in for the application's", errorPages: true, path: "/a/forbidden", status: 403},
		"page for another 403": {reason: "and for another service's", auth: &auth{403, nil}, errorPages: true, configMap: true, path: "/a", status: 403},
	}
	for recipe, configure := range recipes {
		for name, tc := range cases {
			t.Run(recipe+"/"+name, func(t *testing.T) {
				if tc.configMap && recipe != "ConfigMap" {
					t.Skip("the annotations do not do this")
				}
				n := proxytest.Nginx{Application: proxytest.StartApplication(t).Address(), Routes: []proxytest.NginxRoute{
					tc.route, {Path: "/checked/", AuthURL: authURL(proxytest.FreeAddress(t), "tier=free")},
				}}
				n.Routes[0].Path = "/"
				if tc.auth != nil {
					n.Routes[0].AuthURL = "http://" + tc.auth.start(t) + "/auth"
				}
				if tc.errorPages {
					pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						http.Error(w, "the cluster's page", http.StatusForbidden)
					}))
					t.Cleanup(pages.Close)
					n.ErrorPages = pages.Listener.Addr().String()
				}
				client := newClient(t)
				want := client.get(t, proxytest.StartNginx(t, n)+tc.path)
				got := client.get(t, proxytest.StartNginx(t, configure(t, n))+tc.path)
				if got.status != tc.status || got.status != want.status {
					t.Errorf("%s: got %d, want %d; without snippets it is %d", tc.reason, got.status, tc.status, want.status)
				}
				headers := want.own()
				for name, value := range tc.more {
					headers[name] = value
				}
				if diff := cmp.Diff(headers, got.own(), ofListener); diff != "" {
					t.Errorf("%s: headers (-want +got):\n%s", tc.reason, diff)
				}
				if diff := cmp.Diff(want.body, got.body); diff != "" {
					t.Errorf("%s: body (-want +got):\n%s", tc.reason, diff)
				}
			})
		}
	}
}

// ofListener hides in which of two nginxes a Location was made.
var ofListener = cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "" && strings.HasSuffix(p.GoString(), `["Location"]`) }, cmp.Ignore())

// TestNginxHeadersOfBoth has the check, the application and another auth service speak of the same.
func TestNginxHeadersOfBoth(t *testing.T) {
	limited := auth{200, headers("X-RateLimit-Limit: 7", "RateLimit: \"hour\";r=3")} // by a service of its own
	silent := auth{200, headers("X-Tierlimit-Status: 200")}                          // the global kill switch, without tiers
	cases := map[string]struct {
		reason string
		auth   *auth // nil is a check of the tier "free", 1 a minute
		path   string
		want   map[string]string // in both recipes
		only   map[string]string // where the ConfigMap is the recipe
	}{
		"the check first": {
			reason: "it is the check that decides", path: "/a?own=1",
			want: map[string]string{"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "X-RateLimit-Window": "minute", "X-Tierlimit-Tier": "free"},
		},
		"own 403, charged": {
			reason: "the application's errors have the headers too", path: "/a/forbidden",
			want: map[string]string{"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "X-RateLimit-Window": "minute", "X-Tierlimit-Tier": "free"},
		},
		"a silent check": {
			reason: "the application's own stays; an Ingress's snippet has no map to say so", auth: &silent, path: "/a?own=1",
			want: map[string]string{}, only: map[string]string{"X-RateLimit-Limit": "own"},
		},
		"another service's budget": {
			reason: "it is not the application's; an Ingress with these annotations asks Tierlimit", auth: &limited, path: "/a?own=1",
			want: map[string]string{"X-RateLimit-Limit": "7"}, only: map[string]string{"X-RateLimit-Limit": "own"},
		},
	}
	for recipe, configure := range recipes {
		for name, tc := range cases {
			t.Run(recipe+"/"+name, func(t *testing.T) {
				var address string
				if tc.auth == nil {
					address = proxytest.StartCheck(t, nil, proxytest.Tier("free", 1, time.Minute)).Address()
				} else {
					address = tc.auth.start(t)
				}
				url := proxytest.StartNginx(t, configure(t, proxytest.Nginx{Application: proxytest.StartApplication(t).Address(), Routes: []proxytest.NginxRoute{
					{Path: "/", AuthURL: authURL(address, "tier=free")},
				}}))
				got := newClient(t).get(t, url+tc.path)
				got.noTrace(t)
				want := tc.want
				if recipe == "ConfigMap" && tc.only != nil {
					want = tc.only
				}
				if diff := cmp.Diff(want, rateLimit(got.header)); diff != "" {
					t.Errorf("%s: headers (-want +got):\n%s", tc.reason, diff)
				}
				if forbidden := strings.Contains(tc.path, "forbidden"); forbidden && (got.status != 403 || !strings.Contains(got.body, proxytest.ForbiddenBody)) {
					t.Errorf("%s: got %d with %q, want the application's 403", tc.reason, got.status, got.body)
				}
			})
		}
	}
}

// TestNginxOtherService has Tierlimit ask another auth service first (--auth-url).
func TestNginxOtherService(t *testing.T) {
	cases := map[string]struct {
		reason  string
		service auth
		path    string
		status  int
		header  map[string]string
		body    string // a part of it
	}{
		"admitted by both": {
			reason: "the service's cookie reaches the client, as it would without Tierlimit", path: "/", service: auth{200, headers("Set-Cookie: session=1")},
			status: 200, header: map[string]string{"Set-Cookie": "session=1", "X-Ratelimit-Remaining": "4"}, body: "the application got",
		},
		"over the budget": {
			reason: "the cookie also goes with a rejection", path: "/nobody/", service: auth{200, headers("Set-Cookie: session=1")},
			status: 429, header: map[string]string{"Set-Cookie": "session=1", "X-Ratelimit-Remaining": "0"}, body: "admits no requests",
		},
		"not signed in": {
			reason: "a true 401 with the service's challenge", path: "/", service: auth{401, headers(`WWW-Authenticate: Basic realm="staff"`)},
			status: 401, header: map[string]string{"Www-Authenticate": `Basic realm="staff"`, "X-Ratelimit-Remaining": ""}, body: "401 Authorization Required",
		},
		"sent to sign in": {
			reason: "auth-signin works on", path: "/sign-in/", service: auth{401, headers("Set-Cookie: csrf=1")},
			status: 302, header: map[string]string{"Set-Cookie": "csrf=1", "X-Ratelimit-Remaining": ""},
		},
		"not allowed": {
			reason: "nginx's page for the service's 403", path: "/", service: auth{403, headers("Set-Cookie: session=; Max-Age=0")},
			status: 403, header: map[string]string{"Set-Cookie": "session=; Max-Age=0", "X-Ratelimit-Remaining": ""}, body: "<center><h1>403 Forbidden</h1></center>",
		},
		"fails": {
			reason: "nobody can say who is calling", path: "/", service: auth{500, nil},
			status: 503, header: map[string]string{"Content-Type": "application/problem+json"}, body: `"status":503`,
		},
	}
	for recipe, configure := range recipes {
		for name, tc := range cases {
			t.Run(recipe+"/"+name, func(t *testing.T) {
				service := identity.NewService(identity.ServiceConfig{URL: "http://" + tc.service.start(t) + "/auth", Timeout: time.Second})
				check := proxytest.StartCheck(t, func(o *webhookserver.Options) { o.Auth = service },
					proxytest.Tier("free", 5, time.Minute), proxytest.Tier("nobody", 0, time.Minute))
				url := proxytest.StartNginx(t, configure(t, proxytest.Nginx{Application: proxytest.StartApplication(t).Address(), Routes: []proxytest.NginxRoute{
					{Path: "/", AuthURL: authURL(check.Address(), "tier=free")},
					{Path: "/nobody/", AuthURL: authURL(check.Address(), "tier=nobody")},
					{Path: "/sign-in/", AuthURL: authURL(check.Address(), "tier=free"), SigninURL: "https://sign-in.example/"},
				}}))
				got := newClient(t).get(t, url+tc.path)
				got.noTrace(t)
				if got.status != tc.status || !strings.Contains(got.body, tc.body) {
					t.Errorf("%s: got %d with %q, want %d with %q", tc.reason, got.status, got.body, tc.status, tc.body)
				}
				for name, want := range tc.header {
					if value := got.header.Get(name); value != want {
						t.Errorf("%s: got %s: %q, want %q", tc.reason, name, value, want)
					}
				}
			})
		}
	}
}

// TestNginxPageOfIngress has an Ingress with a page of its own for 403 (custom-http-errors). The
// recipe's error_page stands before the Ingress's.
func TestNginxPageOfIngress(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the Ingress's page", http.StatusForbidden)
	}))
	t.Cleanup(page.Close)
	backend := page.Listener.Addr().String()
	steps := []struct {
		reason string
		path   string
		status int
		body   string // a part of it
	}{
		{"the application's page is kept if the Ingress says so", "/keep/forbidden", 403, proxytest.ForbiddenBody},
		{"a limit that docs/ingress/ingress-nginx.md names: the Ingress's page is lost", "/take/forbidden", 403, "<center><h1>403 Forbidden</h1></center>"},
		{"a rejection is not a 403", "/keep/", 429, `"status":429`},
		{"neither here", "/take/", 429, `"status":429`},
	}
	for recipe, configure := range recipes {
		t.Run(recipe, func(t *testing.T) {
			check := proxytest.StartCheck(t, nil, proxytest.Tier("free", 2, time.Minute))
			url := proxytest.StartNginx(t, configure(t, proxytest.Nginx{Application: proxytest.StartApplication(t).Address(), Routes: []proxytest.NginxRoute{
				{Path: "/keep/", AuthURL: authURL(check.Address(), "tier=free"), ErrorBackend: backend, KeepErrors: true},
				{Path: "/take/", AuthURL: authURL(check.Address(), "tier=free"), ErrorBackend: backend},
			}}))
			client := newClient(t)
			for _, step := range steps {
				if got := client.get(t, url+step.path); got.status != step.status || !strings.Contains(got.body, step.body) {
					t.Errorf("%s: got %d with %q, want %d with %q", step.reason, got.status, got.body, step.status, step.body)
				}
			}
		})
	}
}
