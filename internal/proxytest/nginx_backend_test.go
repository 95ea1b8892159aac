// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest_test

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/proxytest"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
)

// backed is an nginx whose errors go to the error backend: custom-http-errors "403" and
// default-backend on every Ingress, and no snippets.
type backed struct {
	*proxytest.Check
	application *proxytest.Application
	url         string
}

func startBacked(t *testing.T) backed {
	t.Helper()
	b := backed{Check: proxytest.StartCheck(t, nil, proxytest.Tier("free", 1, time.Minute), proxytest.Tier("nobody", 0, time.Minute), proxytest.Tier("wide", 1000, time.Minute)),
		application: proxytest.StartApplication(t)}
	backend := func(parameters string) string {
		handler, err := b.ErrorBackend(parameters)
		if err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := webhookserver.NewHTTPServer(handler)
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { _ = server.Close() })
		return listener.Addr().String()
	}
	check, free := b.Address(), backend("tier=free")
	b.url = proxytest.StartNginx(t, proxytest.Nginx{Application: b.application.Address(), Routes: []proxytest.NginxRoute{
		{Path: "/free/", AuthURL: authURL(check, "tier=free"), ErrorBackend: free, KeepErrors: true},
		{Path: "/taken/", AuthURL: authURL(check, "tier=free"), ErrorBackend: free},
		{Path: "/wide/", AuthURL: authURL(check, "tier=wide"), ErrorBackend: backend("tier=wide")},
		{Path: "/denied/", AuthURL: authURL(check, "tier=free"), ErrorBackend: free, KeepErrors: true, Denied: true},
		{Path: "/nobody/", AuthURL: authURL(check, "tier=nobody"), ErrorBackend: backend("tier=nobody"), KeepErrors: true},
		{Path: "/chat/", AuthURL: authURL(check, "tier=free&route=chat"), ErrorBackend: backend("tier=free&route=chat"), KeepErrors: true},
		{Path: "/wrong/", AuthURL: authURL(check, "tier=free&tier=pro"), ErrorBackend: free, KeepErrors: true},
	}})
	return b
}

// usage is what is stored of all budgets: the number of requests by key.
func (b backed) usage(t *testing.T) map[string]int64 {
	t.Helper()
	usage := map[string]int64{}
	for _, key := range keys(t, b.Check) {
		n, err := b.Redis.Client.ZCard(context.Background(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		usage[key] = n
	}
	return usage
}

// TestNginxBackendBudget has a client use up its budget, and then send one request more.
func TestNginxBackendBudget(t *testing.T) {
	cases := map[string]struct {
		reason  string
		method  string
		body    func(int64) io.Reader
		size    int64
		headers []string
	}{
		"GET":             {reason: "the simplest", method: http.MethodGet},
		"HEAD":            {reason: "has no body", method: http.MethodHead},
		"POST":            {reason: "the error backend is sent the body, and has to take it in", method: http.MethodPost, body: zeros, size: 20 * megabyte},
		"chunked":         {reason: "the same where the length is not known before", method: http.MethodPost, body: chunked, size: megabyte / 2},
		"Expect":          {reason: "nginx does not ask for the body", method: http.MethodPost, body: zeros, size: megabyte, headers: []string{"Expect: 100-continue"}},
		"forged address":  {reason: "X-Real-IP passes untouched and is not looked at", method: http.MethodGet, headers: []string{"X-Real-IP: 192.0.2.1", "X-Forwarded-For: 192.0.2.1"}},
		"forged code":     {reason: "nginx sets it", method: http.MethodGet, headers: []string{"X-Code: 200", "X-Format: application/json"}},
		"forged request":  {reason: "none of it is believed", method: http.MethodGet, headers: []string{"X-Request-ID: 1", "X-Original-URI: /open/", "X-Original-Method: OPTIONS", "X-Namespace: other", "X-Ingress-Name: other", "X-Service-Name: other"}},
		"forged answer":   {reason: "it is the backend that answers", method: http.MethodGet, headers: []string{"X-Tierlimit-Status: 200", "X-RateLimit-Remaining: 9", "Retry-After: 0"}},
		"forged hop":      {reason: "Connection cannot name what nginx has set", method: http.MethodGet, headers: []string{"Connection: close, X-Forwarded-For, X-Code"}},
		"conditions":      {reason: "there is nothing that has not been modified", method: http.MethodGet, headers: []string{"If-None-Match: *", "Range: bytes=0-0"}},
		"a user's header": {reason: "no parameter is taken from the client", method: http.MethodGet, headers: []string{"X-Tierlimit-Tier: enterprise", "X-User: root"}},
	}
	b := startBacked(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client := newClient(t)
			send := func() answer {
				var body io.Reader
				if tc.body != nil {
					body = tc.body(tc.size)
				}
				// What the client asks for reaches the backend: as a query, which is no parameter.
				return client.do(t, request(t, tc.method, b.url+"/free/a?tier=enterprise&user=root", body, tc.headers...))
			}
			if got := send(); got.status != 200 || len(rateLimit(got.header)) != 0 {
				t.Errorf("%s: got %d with %v, want 200 without headers", tc.reason, got.status, got.header)
			}
			before := b.usage(t)
			got := send()
			expectRejected(t, tc.reason, got, tc.method)
			got.noTrace(t)
			if diff := cmp.Diff(before, b.usage(t)); diff != "" {
				t.Errorf("%s: a rejection was charged (-before +after):\n%s", tc.reason, diff)
			}
			if asked := b.Asked(); len(asked) != 2 {
				t.Errorf("%s: %d checks for two requests", tc.reason, len(asked))
			}
			if requests := b.application.Requests(); len(requests) != 1 {
				t.Errorf("%s: the application got %d requests, want 1", tc.reason, len(requests))
			}
		})
	}
}

// TestNginxBackendOthers is about refusals of which the error backend is asked, and which are not,
// or may not be, a check's.
func TestNginxBackendOthers(t *testing.T) {
	const problem = "application/problem+json"
	cases := map[string]struct {
		reason  string
		limited bool // the client has used up its budget
		path    string
		headers []string
		status  int
		kind    string // the Content-Type
		body    string // a part of it
	}{
		"own 403 kept":         {reason: "disable-proxy-intercept-errors", path: "/free/forbidden", status: 403, kind: "text/plain; charset=utf-8", body: proxytest.ForbiddenBody},
		"own 403 taken":        {reason: "without it the application's page is lost", path: "/wide/forbidden", status: 403, kind: problem, body: "refused"},
		"the last own 403":     {reason: "and where the budget is used up by this very request, a 429 stands in its place", path: "/taken/forbidden", status: 429, kind: problem, body: "Retry after"},
		"allow-list":           {reason: "the caller is not limited", path: "/denied/", status: 403, kind: problem, body: "refused"},
		"allow-list, victim":   {reason: "nor by the name of somebody who is", path: "/denied/", headers: []string{"X-Real-IP: 127.0.0.1", "X-Forwarded-For: 127.0.0.1"}, status: 403, kind: problem, body: "refused"},
		"allow-list, limited":  {reason: "the backend cannot tell", path: "/denied/", limited: true, status: 429, kind: problem, body: "Retry after"},
		"a budget of 0":        {reason: "its own parameters", path: "/nobody/", status: 429, kind: problem, body: "admits no requests"},
		"another route":        {reason: "this one has a budget of its own, which is not used up", path: "/chat/", limited: true, status: 200, kind: "text/plain; charset=utf-8", body: "the application got"},
		"a wrong parameter":    {reason: "400 comes out as 403", path: "/wrong/", status: 403, kind: problem, body: "refused"},
		"wrong, limited":       {reason: "a client that is limited is told so all the same", path: "/wrong/", limited: true, status: 429, kind: problem, body: "Retry after"},
		"the client's X-Code":  {reason: "a refused client is never told that it was served", path: "/denied/", headers: []string{"X-Code: 200"}, status: 403, kind: problem, body: "refused"},
		"the client's Upgrade": {reason: "no connection is handed over", path: "/denied/", headers: []string{"Connection: Upgrade", "Upgrade: websocket"}, status: 403, kind: problem, body: "refused"},
	}
	b := startBacked(t)
	// Somebody else has used up a budget, for clients to point at.
	http.Get(b.url + "/free/")
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client := newClient(t)
			if tc.limited {
				client.get(t, b.url+"/free/")
			}
			before := b.usage(t)
			got := client.get(t, b.url+tc.path, tc.headers...)
			if got.status != tc.status || got.header.Get("Content-Type") != tc.kind || !strings.Contains(got.body, tc.body) {
				t.Errorf("%s: got %d, %v with %q, want %d with %q", tc.reason, got.status, got.header, got.body, tc.status, tc.body)
			}
			if (got.header.Get("Retry-After") != "") != (tc.status == 429 && name != "a budget of 0") {
				t.Errorf("%s: got %d with Retry-After %q", tc.reason, got.status, got.header.Get("Retry-After"))
			}
			if denied := strings.HasPrefix(tc.path, "/denied/"); denied && !maps.Equal(before, b.usage(t)) {
				t.Errorf("%s: charged", tc.reason)
			}
		})
	}
}

// TestNginxBackendChunked is about a limit that docs/ingress/ingress-nginx.md names: proxy-body-size
// does not hold where nginx sends a rejected client's body, and there it takes 1 MB.
func TestNginxBackendChunked(t *testing.T) {
	b := startBacked(t)
	client := newClient(t)
	for i, want := range []int{200, 413} {
		if got := client.do(t, request(t, http.MethodPost, b.url+"/free/", chunked(2*megabyte))); got.status != want {
			t.Errorf("request %d: got %d, want %d", i, got.status, want)
		}
	}
}

// TestNginxBackendTrouble has the store fail: the client gets a 403, and not a 200 or a 429.
func TestNginxBackendTrouble(t *testing.T) {
	b := startBacked(t)
	client := newClient(t)
	client.get(t, b.url+"/free/")
	b.Redis.Stop()
	if got := client.get(t, b.url+"/free/"); got.status != 403 || got.header.Get("Retry-After") != "" || got.took > 4*time.Second {
		t.Errorf("got %d with %v after %v, want 403 without Retry-After", got.status, got.header, got.took)
	}
}
