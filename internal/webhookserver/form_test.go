// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// recorder is a Limiter that admits everything and takes note of whom.
type recorder struct{ subjects []limiter.Subject }

func (r *recorder) CheckBudgets(_ context.Context, budgets ...limiter.Budget) (limiter.Decision, error) {
	subject, limits := budgets[0].Subject, budgets[0].Limits
	r.subjects = append(r.subjects, subject)
	d := limiter.Decision{Allowed: true, Limit: limits[0], Remaining: limits[0].Requests - 1}
	for _, l := range limits {
		d.Usage = append(d.Usage, limiter.Usage{Limit: l, Remaining: l.Requests - 1})
	}
	return d, nil
}

func (r *recorder) LookBudgets(ctx context.Context, budgets ...limiter.Budget) (limiter.Decision, error) {
	return r.CheckBudgets(ctx, budgets...)
}

func TestExtAuthzPath(t *testing.T) {
	const peer = "192.0.2.1" // that of httptest
	cases := map[string]struct {
		reason, target string
		status         int
		tier           string
		subject        limiter.Subject
	}{
		"Bare":         {"without parameters the default tier applies", "/check/ext-authz/v1/chat", 200, "free", limiter.Subject{Kind: "ip", User: peer}},
		"Alone":        {"also without a path", "/check/ext-authz", 200, "free", limiter.Subject{Kind: "ip", User: peer}},
		"Parameters":   {"parameters stand before the client's path", "/check/ext-authz;tier=pro;route=chat/v1/chat", 200, "pro", limiter.Subject{Kind: "ip", User: peer, Route: "chat"}},
		"Query":        {"the query is the client's and means nothing", "/check/ext-authz;tier=free/v1/chat?tier=pro&user=bob", 200, "free", limiter.Subject{Kind: "ip", User: peer}},
		"ClientPath":   {"nor does anything in the client's path", "/check/ext-authz;tier=free/;tier=pro/x;user=bob", 200, "free", limiter.Subject{Kind: "ip", User: peer}},
		"BareForged":   {"also where the route's owner gave no parameter", "/check/ext-authz/;tier=pro", 200, "free", limiter.Subject{Kind: "ip", User: peer}},
		"EncodedSlash": {"an encoded slash is not the client's first", "/check/ext-authz;tier=free/a%2Fb", 200, "free", limiter.Subject{Kind: "ip", User: peer}},
		"DoubleSlash":  {"empty segments stay", "/check/ext-authz;tier=free//x", 200, "free", limiter.Subject{Kind: "ip", User: peer}},
		"Dots":         {"dot segments lead nowhere", "/check/ext-authz;tier=free/../../check", 200, "free", limiter.Subject{Kind: "ip", User: peer}},
		"Encoded":      {"values are percent-decoded", "/check/ext-authz;route=a%2Fb%3B/x", 200, "free", limiter.Subject{Kind: "ip", User: peer, Route: "a/b;"}},
		"Unknown":      {"a typing error", "/check/ext-authz;teir=pro/x", 400, "", limiter.Subject{}},
		"NoBoundary":   {"another path", "/check/ext-authzier=pro", 404, "", limiter.Subject{}},
		"EncodedForm":  {"a form is written as it is", "/check%2Fext-authz/x", 404, "", limiter.Subject{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			asked := new(recorder)
			e := newEndpoint(asked, nil, budget("free", 5, 100), budget("pro", 60, 5000))
			r := e.ask(tc.target)
			if r.Code != tc.status || r.Header().Get("X-Tierlimit-Tier") != tc.tier {
				t.Fatalf("%s: %d by %q, want %d by %q: %s", tc.reason, r.Code, r.Header().Get("X-Tierlimit-Tier"), tc.status, tc.tier, r.Body)
			}
			var subject limiter.Subject
			if len(asked.subjects) > 0 {
				subject = asked.subjects[0]
			}
			if diff := cmp.Diff(tc.subject, subject); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// Another auth service behind Envoy's ext_authz is told which request is checked, whatever the
// client says about it.
func TestExtAuthzPathDescribesTheRequest(t *testing.T) {
	for target, want := range map[string]string{
		"/check/ext-authz;tier=free/v1/a%2Fb;x?y=z": "/v1/a%2Fb;x?y=z",
		"/check/ext-authz//v1":                      "//v1",
		"/check/ext-authz":                          "/",
		"/check/ext-authz;tier=free?x=1":            "?x=1",
	} {
		var asked *http.Request
		e := newEndpoint(new(recorder), guardedBy(t, func(_ http.ResponseWriter, r *http.Request) { asked = r }), budget("free", 5, 100))
		request := httptest.NewRequest(http.MethodPost, target, nil)
		for _, name := range []string{"X-Forwarded-Uri", "X-Forwarded-Method", "X-Forwarded-Host"} {
			request.Header.Set(name, "forged")
		}
		e.ServeHTTP(httptest.NewRecorder(), request)
		got := []string{asked.Header.Get("X-Forwarded-Method"), asked.Header.Get("X-Forwarded-Host"), asked.Header.Get("X-Forwarded-Uri")}
		if diff := cmp.Diff([]string{"POST", "example.com", want}, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", target, diff)
		}
	}
}

func TestExemptMethods(t *testing.T) {
	cases := map[string]struct {
		reason, target, method string
		header                 []string
		charged                bool
	}{
		"Plain":          {"Traefik and Caddy say which method it is", "/check?exempt=OPTIONS", "GET", []string{"X-Forwarded-Method", "OPTIONS"}, false},
		"PlainOther":     {"another method is charged", "/check?exempt=OPTIONS", "GET", []string{"X-Forwarded-Method", "GET"}, true},
		"PlainOwn":       {"the method of the check itself is that of the proxy", "/check?exempt=GET", "GET", nil, true},
		"PlainForged":    {"another proxy's header is the client's", "/check?exempt=OPTIONS", "GET", []string{"X-Forwarded-Method", "POST", "X-Original-Method", "OPTIONS"}, true},
		"PlainTwice":     {"one of them is the client's", "/check?exempt=OPTIONS", "GET", []string{"X-Forwarded-Method", "OPTIONS", "X-Forwarded-Method", "OPTIONS"}, true},
		"Nginx":          {"ingress-nginx says it in its own way", "/check/nginx?methods=POST", "GET", []string{"X-Original-Method", "OPTIONS"}, false},
		"NginxListed":    {"a listed method is charged", "/check/nginx?methods=POST", "GET", []string{"X-Original-Method", "POST"}, true},
		"NginxForged":    {"another proxy's header is the client's", "/check/nginx?methods=POST", "GET", []string{"X-Original-Method", "POST", "X-Forwarded-Method", "OPTIONS"}, true},
		"ExtAuthz":       {"Envoy's check has the method of the request", "/check/ext-authz;exempt=OPTIONS/v1", "OPTIONS", nil, false},
		"ExtAuthzForged": {"headers do not matter there", "/check/ext-authz;exempt=OPTIONS/v1", "POST", []string{"X-Forwarded-Method", "OPTIONS", "X-Original-Method", "OPTIONS"}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			asked := new(recorder)
			e := newEndpoint(asked, nil, budget("free", 5, 100))
			request := httptest.NewRequest(tc.method, tc.target, nil)
			for i := 0; i+1 < len(tc.header); i += 2 {
				request.Header.Add(tc.header[i], tc.header[i+1])
			}
			r := httptest.NewRecorder()
			e.ServeHTTP(r, request)
			if charged := len(asked.subjects) > 0; r.Code != http.StatusOK || charged != tc.charged {
				t.Fatalf("%s: %d, charged: %v, want %v", tc.reason, r.Code, charged, tc.charged)
			}
			if said := whatWasSaid(r); !tc.charged && (said.Enforcement != "exempt" || said.Limit != "") {
				t.Errorf("%s: %+v", tc.reason, said)
			}
		})
	}
}

// auth_request drops the body, so the nginx form carries it in a header too.
func TestNginxFormCarriesTheBodyInAHeader(t *testing.T) {
	e := newEndpoint(realLimiter(t, redistest.Start(t)), nil, budget("free", 1, 100))
	for _, target := range []string{"/check/nginx?user=u", "/check/nginx?user=u", "/check/nginx?teir=%22%0a"} {
		r := e.ask(target)
		problem := r.Header().Get("X-Tierlimit-Problem")
		if r.Code == http.StatusOK {
			if problem != "" {
				t.Errorf("%s: an admission has a problem: %s", target, problem)
			}
			continue
		}
		if problem+"\n" != r.Body.String() || problem == "" {
			t.Errorf("%s: the header is not the body:\n%s\n%s", target, problem, r.Body)
		}
	}
}
