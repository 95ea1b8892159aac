// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/proxytest"
)

// auth is an auth service that answers all the same. Its address is that of a check.
type auth struct {
	status int
	header http.Header
}

func (a auth) start(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range a.header {
			w.Header()[name] = values
		}
		w.WriteHeader(a.status)
		_, _ = w.Write([]byte("nginx drops this"))
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// headers returns headers, each "Name: value", with the case of the name as it is here.
func headers(lines ...string) http.Header {
	all := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		all[name] = append(all[name], value)
	}
	return all
}

// own returns an answer without the headers that every answer of nginx has.
func (a answer) own() map[string]string {
	own := map[string]string{}
	for name, values := range a.header {
		switch name {
		case "Date", "Connection", "Content-Length":
		default:
			own[name] = strings.Join(values, "|")
		}
	}
	return own
}

// TestNginxStatuses looks at every status that a check can mean by 403. The whole answer reaches
// the client, byte for byte, and no other header does.
func TestNginxStatuses(t *testing.T) {
	problem := `{"type":"about:blank","detail":"Ünicode, \"quotes\", $dollar, 100%, {braces}; <tag>\\n"}`
	cases := map[string]struct {
		reason string
		check  auth
		status int
		want   map[string]string
	}{
		"400": {
			reason: "the owner of the route sees what is wrong with auth-url",
			check:  auth{403, headers("X-Tierlimit-Status: 400", "Cache-Control: no-store")},
			status: 400,
			want:   map[string]string{"Cache-Control": "no-store"},
		},
		"401": {
			reason: "clients learn how to identify themselves",
			check:  auth{403, headers("X-Tierlimit-Status: 401", "Cache-Control: no-store", `WWW-Authenticate: Bearer realm="tierlimit", error="invalid_token"`)},
			status: 401,
			want:   map[string]string{"Cache-Control": "no-store", "Www-Authenticate": `Bearer realm="tierlimit", error="invalid_token"`},
		},
		"403": {
			reason: "Tierlimit's own 403 says why",
			check:  auth{403, headers("X-Tierlimit-Status: 403")},
			status: 403,
			want:   map[string]string{},
		},
		"429": {
			reason: "with everything that a client needs to know",
			check: auth{403, headers("X-Tierlimit-Status: 429", "Retry-After: 7", "retry-after-ms: 6500", "Cache-Control: no-store",
				`RateLimit-Policy: "minute";q=5;w=60, "day";q=100;w=86400`, `RateLimit: "minute";r=0;t=7`,
				"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Window: minute",
				"X-Tierlimit-Tier: free", "X-Tierlimit-Unknown-Tier: gold", "X-Tierlimit-Enforcement: something",
				"Set-Cookie: session=1; Path=/", "X-Internal: not for clients")},
			status: 429,
			want: map[string]string{"Retry-After": "7", "Retry-After-Ms": "6500", "Cache-Control": "no-store",
				"Ratelimit-Policy": `"minute";q=5;w=60, "day";q=100;w=86400`, "Ratelimit": `"minute";r=0;t=7`,
				"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Window": "minute",
				"X-Tierlimit-Tier": "free", "X-Tierlimit-Unknown-Tier": "gold", "X-Tierlimit-Enforcement": "something",
				"Set-Cookie": "session=1; Path=/"},
		},
		"503": {
			reason: "the store has failed; that is not the client's fault",
			check:  auth{403, headers("X-Tierlimit-Status: 503", "Cache-Control: no-store", "X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Window: minute")},
			status: 503,
			want:   map[string]string{"Cache-Control": "no-store", "X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Window": "minute"},
		},
	}
	for recipe, configure := range recipes {
		for name, tc := range cases {
			t.Run(recipe+"/"+name, func(t *testing.T) {
				tc.check.header["X-Tierlimit-Problem"] = []string{problem}
				url := proxytest.StartNginx(t, configure(t, proxytest.Nginx{Application: proxytest.StartApplication(t).Address(), Routes: []proxytest.NginxRoute{
					{Path: "/", AuthURL: authURL(tc.check.start(t), "tier=free")},
				}}))
				got := newClient(t).get(t, url+"/")
				tc.want["Content-Type"] = "application/problem+json"
				if got.status != tc.status || got.body != problem {
					t.Errorf("%s: got %d with %q, want %d with %q", tc.reason, got.status, got.body, tc.status, problem)
				}
				if diff := cmp.Diff(tc.want, got.own()); diff != "" {
					t.Errorf("%s: headers (-want +got):\n%s", tc.reason, diff)
				}
			})
		}
	}
}
