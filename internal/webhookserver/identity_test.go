// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/identity"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// identifiedBy sets the sources of an endpoint.
func identifiedBy(t testing.TB, list string) func(*Options) {
	t.Helper()
	sources, err := identity.Parse(list, identity.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.Identity = sources }
}

// guardedBy puts another auth service before an endpoint.
func guardedBy(t testing.TB, handler http.HandlerFunc) func(*Options) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return func(o *Options) {
		o.Auth = identity.NewService(identity.ServiceConfig{URL: server.URL, Timeout: time.Second,
			UserHeader: "X-Auth-Request-User", TenantHeader: "X-Auth-Request-Org", TierHeader: "X-Auth-Request-Tier"})
	}
}

func TestWhoseBudget(t *testing.T) {
	names := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Auth-Request-User", "alice")
		w.Header().Set("X-Auth-Request-Org", "acme")
		w.Header().Set("X-Auth-Request-Tier", "pro")
	}
	nobody := func(http.ResponseWriter, *http.Request) {}
	cases := map[string]struct {
		reason  string
		options func(*Options)
		query   string
		header  []string
		tier    string
		want    limiter.Subject
	}{
		"Parameter":       {reason: "the user parameter goes first", options: identifiedBy(t, "header:X-User"), query: "user=bob&tenant=t&route=r", header: []string{"X-User", "eve"}, tier: "free", want: limiter.Subject{User: "bob", Tenant: "t", Route: "r"}},
		"Header":          {reason: "then what is configured", options: identifiedBy(t, "header:X-User"), query: "tenant=t", header: []string{"X-User", "bob"}, tier: "free", want: limiter.Subject{User: "bob", Tenant: "t"}},
		"Key":             {reason: "a key is another kind of caller", options: identifiedBy(t, "api-key:X-Api-Key"), header: []string{"X-Api-Key", "k"}, tier: "free", want: limiter.Subject{User: "8254c329a92850f6d539dd376f4816ee", Kind: limiter.KindKey}},
		"Auth":            {reason: "the other auth service names all three; its tier goes before the route's", options: guardedBy(t, names), query: "tier=free&tenant=t", tier: "pro", want: limiter.Subject{User: "alice", Tenant: "acme"}},
		"AuthParameter":   {reason: "it is asked although the user is known, and the user stays", options: guardedBy(t, names), query: "user=bob", tier: "pro", want: limiter.Subject{User: "bob", Tenant: "acme"}},
		"AuthForged":      {reason: "the headers of its answer count, not those of the request", options: guardedBy(t, nobody), header: []string{"X-Auth-Request-User", "eve", "X-Auth-Request-Tier", "pro", "X-Real-IP", "203.0.113.7"}, tier: "free", want: limiter.Subject{User: "203.0.113.7", Kind: limiter.KindAddress}},
		"AuthNone":        {reason: "a route can do without it", options: guardedBy(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }), query: "auth=none&user=bob", tier: "free", want: limiter.Subject{User: "bob"}},
		"DefaultForged":   {reason: "by default nothing but the proxy's X-Real-IP is believed", header: []string{"X-User", "eve", "X-Forwarded-For", "198.51.100.1", "Authorization", "Bearer x", "X-Forwarded-User", "eve", "X-Real-IP", "203.0.113.7"}, tier: "free", want: limiter.Subject{User: "203.0.113.7", Kind: limiter.KindAddress}},
		"AddressNotUser":  {reason: "a user called like an address is not that address", query: "user=203.0.113.7", tier: "free", want: limiter.Subject{User: "203.0.113.7"}},
		"ParameterSkips":  {reason: "with a user the headers are not looked at", query: "user=u", header: []string{"X-Real-IP", "x", "X-Real-IP", "y"}, tier: "free", want: limiter.Subject{User: "u"}},
		"AddressOfTenant": {reason: "tenant and route apply to every identity", query: "tenant=acme&route=r", header: []string{"X-Real-IP", "203.0.113.7"}, tier: "free", want: limiter.Subject{User: "203.0.113.7", Kind: limiter.KindAddress, Tenant: "acme", Route: "r"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			asked := new(recorder)
			e := newEndpoint(asked, tc.options, budget("free", 5, 100), budget("pro", 60, 5000))
			r := e.ask("/check?"+tc.query, tc.header...)
			if r.Code != http.StatusOK || len(asked.subjects) != 1 {
				t.Fatalf("%s: %d %s", tc.reason, r.Code, r.Body)
			}
			if diff := cmp.Diff(tc.want, asked.subjects[0]); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			if got := r.Header().Get("X-Tierlimit-Tier"); got != tc.tier {
				t.Errorf("%s: tier %q, want %q", tc.reason, got, tc.tier)
			}
		})
	}
}

func TestTierOfTheCaller(t *testing.T) {
	for asked, want := range map[string]said{
		"gold":        {Status: 200, Tier: "free", UnknownTier: "gold", Limit: "5", Remaining: "4", Window: "minute"},
		"Bad\x01Name": {Status: 200, Tier: "free", Limit: "5", Remaining: "4", Window: "minute"},
	} {
		e := newEndpoint(new(recorder), guardedBy(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Auth-Request-User", "alice")
			w.Header().Set("X-Auth-Request-Tier", strings.ReplaceAll(asked, "\x01", " "))
		}), budget("free", 5, 100), budget("pro", 60, 5000))
		if diff := cmp.Diff(want, whatWasSaid(e.ask("/check?tier=pro"))); diff != "" {
			t.Errorf("tier %q of the caller falls back to the default tier: -want +got:\n%s", asked, diff)
		}
	}
}

func TestRefusedCallers(t *testing.T) {
	signIn := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Www-Authenticate", "Bearer realm=other")
			w.Header().Add("Set-Cookie", "csrf=1")
			w.Header().Add("Set-Cookie", "state=2")
			w.Header().Set("Content-Type", "text/html")
			w.Header().Set("Location", "/sign-in")
			w.Header().Set("X-Tierlimit-Status", "200") // forged: nginx would believe it
			w.Header().Set("X-Tierlimit-Problem", "{}")
			w.WriteHeader(status)
			fmt.Fprint(w, "<sign in>")
		}
	}
	type told struct {
		Status                                    int
		TrueCode, Challenge, Type, Location, Body string
		Cookies                                   int
		Charged, Problem                          bool // Problem: of another service
	}
	const noCaller = `{"type":"about:blank","title":"Forbidden","status":403,"detail":"The request does not say who is calling."}`
	const noCredentials = `{"type":"about:blank","title":"Unauthorized","status":401,"detail":"The request carries no credentials: send them in the header Authorization."}`
	cases := map[string]struct {
		reason       string
		options      func(*Options)
		plain, nginx told
	}{
		"NoCaller": {reason: "the list has come to its end", options: identifiedBy(t, "header:X-User"),
			plain: told{Status: 403, Type: "application/problem+json", Body: noCaller},
			nginx: told{Status: 403, TrueCode: "403", Type: "application/problem+json", Body: noCaller}},
		"NoCredentials": {reason: "credentials would help", options: identifiedBy(t, "authorization"),
			plain: told{Status: 401, Challenge: "Bearer", Type: "application/problem+json", Body: noCredentials},
			nginx: told{Status: 403, TrueCode: "401", Challenge: "Bearer", Type: "application/problem+json", Body: noCredentials}},
		"Auth401": {reason: "the other auth service speaks for itself", options: guardedBy(t, signIn(401)),
			plain: told{Status: 401, Challenge: "Bearer realm=other", Type: "text/html", Location: "/sign-in", Body: "<sign in>", Cookies: 2},
			nginx: told{Status: 401, Challenge: "Bearer realm=other", Type: "text/html", Location: "/sign-in", Body: "<sign in>", Cookies: 2}},
		"Auth403": {reason: "in every form that can carry it", options: guardedBy(t, signIn(403)),
			plain: told{Status: 403, Challenge: "Bearer realm=other", Type: "text/html", Location: "/sign-in", Body: "<sign in>", Cookies: 2},
			nginx: told{Status: 403, Challenge: "Bearer realm=other", Type: "text/html", Location: "/sign-in", Body: "<sign in>", Cookies: 2}},
		"Auth302": {reason: "a proxy that passes redirects on gets one", options: guardedBy(t, signIn(302)),
			plain: told{Status: 302, Challenge: "Bearer realm=other", Type: "text/html", Location: "/sign-in", Body: "<sign in>", Cookies: 2},
			nginx: told{Status: 403, Challenge: "Bearer realm=other", Type: "text/html", Location: "/sign-in", Body: "<sign in>", Cookies: 2}},
		"Auth429": {reason: "its 429 is its own, not ours", options: guardedBy(t, signIn(429)),
			plain: told{Status: 429, Challenge: "Bearer realm=other", Type: "text/html", Location: "/sign-in", Body: "<sign in>", Cookies: 2},
			nginx: told{Status: 403, Challenge: "Bearer realm=other", Type: "text/html", Location: "/sign-in", Body: "<sign in>", Cookies: 2}},
		"AuthAway": {reason: "who cannot be authenticated does not pass", options: guardedBy(t, signIn(500)),
			plain: told{Status: 503, Type: "application/problem+json", Body: `{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"The caller cannot be identified now. Retry later."}`},
			nginx: told{Status: 403, TrueCode: "503", Type: "application/problem+json", Body: `{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"The caller cannot be identified now. Retry later."}`}},
	}
	switches := map[string]func(*Options){
		"Enforcing": func(*Options) {},
		// A kill switch turns the limits off, not the authentication.
		"KillSwitch": func(o *Options) { o.Disabled = true },
	}
	for name, tc := range cases {
		for state, change := range switches {
			for path, want := range map[string]told{"/check": tc.plain, "/check/nginx": tc.nginx, "/check/ext-authz": tc.plain} {
				t.Run(name+"/"+state+path, func(t *testing.T) {
					asked := new(recorder)
					e := newEndpoint(asked, func(o *Options) { tc.options(o); change(o) }, budget("free", 5, 100))
					r := e.ask(path)
					get := func(name string) string { return r.Header().Get(name) }
					got := told{Status: r.Code, TrueCode: get("X-Tierlimit-Status"), Problem: get("X-Tierlimit-Problem") != "", Type: get("Content-Type"), Location: get("Location"),
						Body: strings.TrimSuffix(r.Body.String(), "\n"), Cookies: len(r.Header()["Set-Cookie"]), Charged: len(asked.subjects) > 0}
					got.Problem = get("X-Tierlimit-Problem") != "" && got.TrueCode == ""
					for header, values := range r.Header() {
						if strings.EqualFold(header, "WWW-Authenticate") {
							got.Challenge = values[0]
						}
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
					}
				})
			}
		}
	}
}

// What the other auth service adds to an admitted request goes on to the application, and cannot
// speak for the budget. A client that is over the budget gets its refreshed cookies all the same.
func TestHeadersOfTheOtherAuthService(t *testing.T) {
	e := newEndpoint(realLimiter(t, redistest.Start(t)), guardedBy(t, func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range map[string]string{"X-Auth-Request-User": "alice", "X-Auth-Request-Email": "alice@example.com", "Authorization": "Bearer upstream",
			"Set-Cookie": "session=2", "X-Ratelimit-Limit": "1000000", "X-Tierlimit-Status": "200", "Retry-After": "1", "Content-Type": "text/html", "Server": "other", "Cache-Control": "public"} {
			w.Header().Set(name, value)
		}
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, "ok")
	}), budget("free", 1, 100))
	r := e.ask("/check/nginx")
	want := http.Header{"Cache-Control": {"no-store"}, "X-Auth-Request-User": {"alice"}, "X-Auth-Request-Email": {"alice@example.com"}, "Authorization": {"Bearer upstream"},
		"Set-Cookie": {"session=2"}, "X-RateLimit-Limit": {"1"}, "X-RateLimit-Remaining": {"0"}, "X-RateLimit-Window": {"minute"},
		"RateLimit-Policy": {`"minute";q=1;w=60, "day";q=100;w=86400`}, "RateLimit": {`"minute";r=0, "day";r=99`}, "X-Tierlimit-Tier": {"free"}, "X-Tierlimit-Status": {"200"}}
	if diff := cmp.Diff(want, r.Header()); diff != "" || r.Code != 200 || r.Body.Len() > 0 {
		t.Errorf("admitted with %d and %q: -want +got:\n%s", r.Code, r.Body, diff)
	}
	r = e.ask("/check/nginx")
	if got := whatWasSaid(r); got.TrueCode != "429" || r.Header().Get("Set-Cookie") != "session=2" || r.Header().Get("X-Auth-Request-Email") != "" {
		t.Errorf("rejected: %+v %v", got, r.Header())
	}
}

// net/http would guess a type, and a browser show a page that was meant as text.
func TestRelayedAnswersGetNoContentType(t *testing.T) {
	e := newEndpoint(new(recorder), guardedBy(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, "<html>")
	}), budget("free", 5, 100))
	server := httptest.NewServer(e)
	defer server.Close()
	response, err := http.Get(server.URL + "/check")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if values, typed := response.Header["Content-Type"]; typed || response.StatusCode != http.StatusForbidden {
		t.Errorf("%s with Content-Type %q", response.Status, values)
	}
}

// What only proxies of another form set is the client's invention: it does not reach the other auth
// service, which might take it for a description of the request.
func TestOtherAuthServiceIsNotToldInventions(t *testing.T) {
	all := []string{"X-Forwarded-Method", "a", "X-Forwarded-Host", "b", "X-Forwarded-Uri", "c", "X-Forwarded-Proto", "d", "X-Original-Method", "e", "X-Original-Url", "f", "X-Auth-Request-Redirect", "g"}
	for path, want := range map[string]string{
		"/check":                 "X-Forwarded-Host X-Forwarded-Method X-Forwarded-Proto X-Forwarded-Uri",
		"/check/nginx":           "X-Auth-Request-Redirect X-Original-Method X-Original-Url",
		"/check/ext-authz/v1/ai": "X-Forwarded-Host X-Forwarded-Method X-Forwarded-Uri", // its own
	} {
		var asked http.Header
		newEndpoint(new(recorder), guardedBy(t, func(_ http.ResponseWriter, r *http.Request) { asked = r.Header }), budget("free", 5, 100)).ask(path, all...)
		var told []string
		for name := range asked {
			if strings.HasPrefix(name, "X-") {
				told = append(told, name)
			}
		}
		slices.Sort(told)
		if got := strings.Join(told, " "); got != want {
			t.Errorf("%s: told %s, want %s", path, got, want)
		}
	}
}

// Nothing that was sent to identify a caller shows in Redis or in an answer.
func TestKeysAreNotStored(t *testing.T) {
	server := redistest.Start(t)
	e := newEndpoint(realLimiter(t, server), identifiedBy(t, "authorization"), budget("free", 1, 100))
	for range 2 {
		r := e.ask("/check", "Authorization", "Bearer sk-very-secret")
		if strings.Contains(fmt.Sprint(r.Header(), r.Body), "secret") {
			t.Errorf("the answer shows the key: %v %s", r.Header(), r.Body)
		}
	}
	keys, err := server.Client.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) != 2 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	for _, key := range keys {
		if strings.Contains(key, "secret") || !strings.HasPrefix(key, "ratelimit:%key.") {
			t.Errorf("the key %q", key)
		}
	}
}

// A kill switch lets everybody pass whose address is malformed, and nobody who has to prove who he
// is: whoever sends two Authorization headers has proved nothing.
func TestKillSwitchAndMalformedHeaders(t *testing.T) {
	cases := map[string]struct {
		reason             string
		list               string
		header             []string
		enforced, disabled int
	}{
		"Address":       {"an address proves nothing", "address", []string{"X-Real-IP", "nonsense"}, 400, 200},
		"Forwarded":     {"wherever it is from", "forwarded-for:1", []string{"X-Forwarded-For", "nonsense"}, 400, 200},
		"Authorization": {"credentials do", "authorization", []string{"Authorization", "Bearer a", "Authorization", "Bearer b"}, 400, 400},
		"Header":        {"and so does the ingress", "header:X-User", []string{"X-User", "a", "X-User", "b"}, 400, 400},
		"Nobody":        {"by whom somebody must be named", "header:X-User", nil, 403, 403},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for disabled, want := range map[bool]int{false: tc.enforced, true: tc.disabled} {
				options := func(o *Options) { identifiedBy(t, tc.list)(o); o.Disabled = disabled }
				e := newEndpoint(fixed(limiter.Decision{}, errors.New("not asked")), options, budget("free", 1, 1))
				if r := e.ask("/check", tc.header...); r.Code != want {
					t.Errorf("%s: disabled %v: %d, want %d", tc.reason, disabled, r.Code, want)
				}
			}
		})
	}
}
