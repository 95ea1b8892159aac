// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/tierlimit/tierlimit/internal/identity"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// parameterNames are all there are.
var parameterNames = []string{"tier", "user", "tenant", "route", "upstream", "upstream-per", "methods", "exempt", "auth"}

// encode writes parameters as an encoding wants them, so that parse returns the same.
func (e encoding) encode(p parameters) string {
	var pairs []string
	for _, name := range parameterNames {
		if value := *p.field(name); value != "" {
			escaped := url.QueryEscape(value)
			if e.separator == ";" {
				escaped = strings.ReplaceAll(url.PathEscape(value), "&", "%26")
			}
			pairs = append(pairs, name+"="+escaped)
		}
	}
	return strings.Join(pairs, e.separator)
}

// FuzzValues gives values to parameters, in a query, in a path and in the context extensions of Envoy.
// All three mean the same, no value becomes another parameter, and none can be given twice.
func FuzzValues(f *testing.F) {
	f.Add("free", "alice", "acme", "chat", "gpt-4o", "tenant", "POST,PUT", "OPTIONS", "none", "user")
	f.Add("free", "a&tier=pro", "a;tier=pro", "a=b", "", "", "", "", "", "tier")
	f.Add("", "50%", "%26", "a+b c", "x", "", "", "", "", "teir")
	f.Add("Gold", "\x00\r\n", "käse\xff", "/v1/chat?x=1#y", "a", "user", "get", "GET,", "off", "")
	f.Fuzz(func(t *testing.T, tierName, user, tenant, route, upstream, per, methods, exempt, auth, extra string) {
		want := parameters{tier: tierName, user: user, tenant: tenant, route: route, upstream: upstream, upstreamPer: per, methods: methods, exempt: exempt, auth: auth}
		extensions := map[string]string{}
		for _, name := range parameterNames {
			if value := *want.field(name); value != "" {
				extensions[name] = value
			}
		}
		fromEnvoy, err := fromExtensions(extensions)
		if (err != nil) != (want.validate() != nil) || err == nil && fromEnvoy != want {
			t.Fatalf("extensions %q: %+v, error %v", extensions, fromEnvoy, err)
		}
		for _, e := range []encoding{inQuery, inPath} {
			raw := e.encode(want)
			got, err := e.parse(raw)
			if (err != nil) != (want.validate() != nil) || err == nil && got != want {
				t.Fatalf("%q: %+v, error %v, want %+v", raw, got, err, want)
			}
			for name := range extensions {
				if _, err := e.parse(raw + e.separator + name + "=x"); err == nil {
					t.Fatalf("%q is given twice after %q, without an error", name, raw)
				}
			}
			unknown := e.separator + url.QueryEscape(extra) + "=x"
			if _, err := e.parse(raw + unknown); err == nil && want.field(extra) == nil {
				t.Fatalf("parameter %q is known after %q", extra, raw)
			}
		}
	})
}

// FuzzParseParametersInPath reads what a route could have in its path. What is accepted names nothing
// twice and means the same when it is written anew, in a path or in a query.
func FuzzParseParametersInPath(f *testing.F) {
	for _, path := range []string{"", ";tier=free;user=u", ";user=a+b%20", ";tier=a;tier=b", ";t%69er=a;tier=b", ";user=%", ";a&b", ";user=a&b", ";;user=x;", ";user=a=b%3Btier=pro", ";=x", ";tenant", ";user=%00%0D%0A"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		got, err := inPath.parse(path)
		if err != nil {
			if got != (parameters{}) {
				t.Fatalf("%q: parameters beside the error %v: %+v", path, err, got)
			}
			if message := err.Error(); strings.ContainsFunc(message, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				t.Fatalf("%q: control characters in the error %q", path, message)
			}
			return
		}
		given := map[string]string{}
		for pair := range strings.SplitSeq(path, ";") {
			if pair == "" {
				continue
			}
			name, value, _ := strings.Cut(pair, "=")
			if name, err = url.PathUnescape(name); err != nil {
				t.Fatal(err)
			}
			if _, twice := given[name]; twice || got.field(name) == nil || strings.Contains(value, "&") {
				t.Fatalf("%q: accepted %q", path, pair)
			}
			if given[name], err = url.PathUnescape(value); err != nil || *got.field(name) != given[name] || given[name] == "" {
				t.Fatalf("%q: %s is %q, want %q, error %v", path, name, *got.field(name), given[name], err)
			}
		}
		for _, e := range []encoding{inQuery, inPath} {
			if again, err := e.parse(e.encode(got)); err != nil || again != got {
				t.Fatalf("%q: %+v, written anew %+v, error %v", path, got, again, err)
			}
		}
	})
}

// scripted is a limiter that gives one of the answers there are. It insists on what Limiter promises.
type scripted struct {
	t      *testing.T
	answer byte
}

func (s scripted) CheckBudgets(_ context.Context, budgets ...limiter.Budget) (limiter.Decision, error) {
	for i, b := range budgets {
		if b.Subject.User == "" || len(b.Limits) == 0 || i > 0 && b.Subject == budgets[0].Subject {
			s.t.Errorf("a check that cannot be asked: %+v", budgets)
		}
	}
	last := len(budgets) - 1
	switch s.answer % 5 {
	case 0:
		d := limiter.Decision{Allowed: true, Limit: budgets[0].Limits[0], Remaining: 3}
		for i, b := range budgets {
			for _, l := range b.Limits {
				d.Usage = append(d.Usage, limiter.Usage{Limit: l, Budget: i, Remaining: 3})
			}
		}
		return d, nil
	case 1:
		return limiter.Decision{Limit: budgets[last].Limits[0], Budget: last, RetryAfter: 42 * time.Second, Wait: 41*time.Second + 1}, nil
	case 2: // no wait would help
		return limiter.Decision{Limit: budgets[0].Limits[0]}, nil
	case 3:
		return limiter.Decision{}, limiter.ErrReply
	}
	return limiter.Decision{}, errors.New("redis is away")
}

func (s scripted) LookBudgets(ctx context.Context, budgets ...limiter.Budget) (limiter.Decision, error) {
	return s.CheckBudgets(ctx, budgets...)
}

// FuzzHandler makes whole requests, as far as net/http lets them through, and looks at the answers.
func FuzzHandler(f *testing.F) {
	for i, head := range []string{
		"GET /check?tier=free&user=alice HTTP/1.1\r\nHost: a",
		"GET /check/nginx?tier=failopen&upstream=pro&upstream-per=tenant&tenant=acme HTTP/1.1\r\nHost: a\r\nX-Real-Ip: 192.0.2.7\r\nX-Original-Method: POST",
		"GET /check/nginx?tier=Nope&user=%0D%0AX-Evil:1 HTTP/1.1\r\nHost: a",
		"POST /check/ext-authz;tier=local;user=a%3Bb/v1/chat?tier=pro HTTP/1.1\r\nHost: a\r\nX-User: bob\r\nContent-Length: 3\r\n\r\nabc",
		"OPTIONS /check/ext-authz;exempt=OPTIONS HTTP/1.1\r\nHost: a",
		"GET /check?tier=dry&upstream=dry&methods=POST HTTP/1.1\r\nHost: a\r\nX-Forwarded-Method: POST\r\nAuthorization: Basic YTpi",
		"GET /check?tier=missing HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer sk-1\r\nAuthorization: Bearer sk-2",
		"GET /check?upstream=missing HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1, [2001:db8::1]:80",
		"GET /check%2Fnginx HTTP/1.1\r\nHost: a",
		"OPTIONS * HTTP/1.1\r\nHost: a",
		"GET http://a/check?user=%FF%C2%85%7F HTTP/1.1\r\nHost: b",
	} {
		for _, identities := range []string{"address", "header:X-User,authorization", "forwarded-for:1"} {
			f.Add(head, identities, byte(i))
		}
	}
	f.Fuzz(func(t *testing.T, head, identities string, decision byte) {
		sources, err := identity.Parse(identities, identity.Config{})
		if err != nil {
			t.Skip()
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head + "\r\n\r\n")))
		if err != nil {
			t.Skip()
		}
		r.RemoteAddr = "192.0.2.1:4711"
		e := newEndpoint(scripted{t: t, answer: decision}, func(o *Options) { o.Identity = sources },
			budget("free", 5, 100), budget("pro", 60, 5000), budget("dry", 5, 100, dryRunTier), budget("failopen", 5, 100, failOpenTier),
			budget("local", 5, 100, func(t *tier.Tier) { t.FailurePolicy = tier.FailLocal }), budget("off", 5, 100, engaged(time.Time{})))
		recorder := httptest.NewRecorder()
		e.ServeHTTP(recorder, r)
		wellFormed(t, head, r.URL.EscapedPath(), recorder)
	})
}

// wellFormed fails the test unless an answer is one that docs/check.md knows.
func wellFormed(t *testing.T, head, path string, r *httptest.ResponseRecorder) {
	t.Helper()
	for name, values := range r.Header() {
		for _, value := range values {
			if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
				t.Fatalf("%q: header %q: %q", head, name, value)
			}
		}
	}
	status, body := r.Code, r.Body.String()
	header := func(name string) string { return strings.Join(r.Header()[name], "|") }
	if status == http.StatusNotFound {
		if path == pathCheck || path == pathNginx {
			t.Fatalf("%q: not found", head)
		}
		return
	}
	if path == pathNginx && status != http.StatusOK {
		var err error
		if status, err = strconv.Atoi(header(headerStatus)); err != nil || r.Code != http.StatusForbidden || body != header(headerProblem)+"\n" {
			t.Fatalf("%q: status %d for nginx, %v; body %q, header %q", head, r.Code, err, body, header(headerProblem))
		}
	}
	if !slices.Contains([]int{200, 400, 401, 403, 429, 503}, status) {
		t.Fatalf("%q: status %d", head, status)
	}
	if status == http.StatusOK {
		if body != "" {
			t.Fatalf("%q: an admission with the body %q", head, body)
		}
		return
	}
	var p problem
	if err := json.Unmarshal([]byte(body), &p); err != nil || p.Status != status || p.Title == "" || p.Detail == "" || header("Content-Type") != "application/problem+json" {
		t.Fatalf("%q: status %d, %s, body %q: %v", head, status, header("Content-Type"), body, err)
	}
	if known := []string{"", "free", "pro", "dry", "failopen", "local", "off"}; !slices.Contains(known, header(headerTier)) {
		t.Fatalf("%q: tier %q", head, header(headerTier))
	}
	if (header(headerRetryAfter) != "") != (p.RetryAfter > 0) {
		t.Fatalf("%q: Retry-After %q, in the body %d", head, header(headerRetryAfter), p.RetryAfter)
	}
}
