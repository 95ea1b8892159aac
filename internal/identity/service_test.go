// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// serviceAt returns a Service that asks a handler.
func serviceAt(t testing.TB, timeout time.Duration, handler http.HandlerFunc) *Service {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return NewService(ServiceConfig{URL: server.URL + "/oauth2/auth?allowed_groups=llm", Timeout: timeout,
		UserHeader: "X-Auth-Request-User", TenantHeader: "X-Auth-Request-Org", TierHeader: "X-Auth-Request-Tier"})
}

func TestServiceAnswers(t *testing.T) {
	cases := map[string]struct {
		reason string
		answer http.HandlerFunc
		want   Answer
	}{
		"Accepted": {
			reason: "the headers of a 2xx answer name the caller",
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Auth-Request-User", "alice")
				w.Header().Set("X-Auth-Request-Org", "acme")
				w.Header().Set("X-Auth-Request-Tier", "pro")
				w.WriteHeader(http.StatusAccepted)
			},
			want: Answer{Status: 202, Header: headers("X-Auth-Request-User", "alice", "X-Auth-Request-Org", "acme", "X-Auth-Request-Tier", "pro"),
				Caller: Caller{User: "alice", Tenant: "acme", Tier: "pro"}},
		},
		"Nobody": {
			reason: "or nobody, and its body is of no use",
			answer: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "welcome") },
			want:   Answer{Status: 200, Header: headers("Content-Type", "text/plain; charset=utf-8")},
		},
		"Unauthorized": {
			reason: "a refusal is kept whole",
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Www-Authenticate", `Basic realm="x"`)
				w.Header().Add("Set-Cookie", "a=1")
				w.Header().Add("Set-Cookie", "b=2")
				w.Header().Set("Content-Type", "text/html")
				w.Header().Set("Content-Encoding", "gzip")
				w.Header().Set("Connection", "close")
				w.Header().Set("X-Accel-Redirect", "/open/") // nginx would obey
				w.WriteHeader(http.StatusUnauthorized)
				fmt.Fprint(w, "<sign in>")
			},
			want: Answer{Status: 401, Header: headers("Www-Authenticate", `Basic realm="x"`, "Set-Cookie", "a=1", "Set-Cookie", "b=2",
				"Content-Type", "text/html", "Content-Encoding", "gzip"), Body: []byte("<sign in>")},
		},
		"Redirect": {
			reason: "a redirect is an answer and is not followed",
			answer: func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/oauth2/auth" {
					t.Errorf("the redirect to %s was followed", r.URL)
				}
				w.Header().Set("Location", "/sign-in")
				w.WriteHeader(http.StatusFound)
			},
			want: Answer{Status: 302, Header: headers("Location", "/sign-in"), Body: []byte{}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := serviceAt(t, time.Second, tc.answer).Ask(context.Background(), http.Header{})
			if err != nil {
				t.Fatal(err)
			}
			delete(got.Header, "Date")
			if diff := cmp.Diff(&tc.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// rawAnswer answers with these bytes and nothing else.
func rawAnswer(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer connection.Close()
		fmt.Fprint(connection, answer)
	}
}

// The body of a 2xx answer is of no use, and is not waited for.
func TestServiceDoesNotWaitForABodyOfNoUse(t *testing.T) {
	s := serviceAt(t, 30*time.Second, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	start := time.Now()
	if answer, err := s.Ask(context.Background(), http.Header{}); err != nil || !answer.Allows() || time.Since(start) > 20*time.Second {
		t.Errorf("%+v, %v after %v", answer, err, time.Since(start))
	}
}

// The log shows neither what the URL may hold nor what the service has sent.
func TestServiceErrorsShowNoSecrets(t *testing.T) {
	away := NewService(ServiceConfig{URL: "http://127.0.0.1:1/?key=secret", Timeout: time.Second})
	if _, err := away.Ask(context.Background(), http.Header{}); err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("%v", err)
	}
	for _, answer := range []string{"HTTP/1.1 secret\r\n\r\n", "HTTP/1.1 200 OK\r\nsecret\r\n\r\n", "HTTP/1.1 302 Found\r\nLocation: http://[x/%zz?secret\r\n\r\n"} {
		_, err := serviceAt(t, time.Second, rawAnswer(answer)).Ask(context.Background(), http.Header{})
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", answer, err)
		}
	}
}

func TestServiceIsUnavailable(t *testing.T) {
	cases := map[string]struct {
		reason string
		answer http.HandlerFunc
		want   string
	}{
		"Hangs": {"one deadline for everything", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no answer in time"},
		"HangsInBody": {"also for the body", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, "no answer in time"},
		"ServerError": {"its own failure refuses nobody", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, "status 502"},
		"Upgrade":     {"it was not asked for another protocol", rawAnswer("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"), "status 101"},
		"NoStatus":    {"this is no status of HTTP", rawAnswer("HTTP/1.1 099 What\r\nContent-Length: 0\r\n\r\n"), "status 99"},
		"TwoUsers": {"which of them?", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Add("X-Auth-Request-User", "alice")
			w.Header().Add("X-Auth-Request-User", "bob")
		}, "X-Auth-Request-User is given twice"},
		"Endless": {"an answer is no download", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, strings.Repeat("x", maxAnswer+1))
		}, "larger than 256 KiB"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			timeout := 10 * time.Second
			if strings.HasPrefix(name, "Hangs") {
				timeout = 50 * time.Millisecond
			}
			answer, err := serviceAt(t, timeout, tc.answer).Ask(context.Background(), http.Header{})
			if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), tc.want) || answer != nil {
				t.Errorf("%s: %+v, %v; want ErrUnavailable with %q", tc.reason, answer, err, tc.want)
			}
		})
	}
	away := NewService(ServiceConfig{URL: "http://127.0.0.1:1/", Timeout: time.Second})
	if _, err := away.Ask(context.Background(), http.Header{}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("nobody listens: %v", err)
	}
}

// What reaches the service is the client's request and what the proxy added, and nothing that would
// make the answer another than that to this client.
func TestServiceIsAskedWithTheRequest(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	var asked *http.Request
	s := serviceAt(t, time.Second, func(_ http.ResponseWriter, r *http.Request) { asked = r })
	client := headers("Cookie", "session=1", "Authorization", "Bearer x", "X-Original-Url", "https://api.example/chat?x=1",
		"If-None-Match", `"tag"`, "If-Modified-Since", "Mon, 30 Nov 2026 09:34:22 GMT", "Range", "bytes=0-1",
		"Content-Length", "10000", "Transfer-Encoding", "chunked", "Expect", "100-continue", "Upgrade", "websocket",
		"Connection", "Upgrade, X-Original-Url, Cookie", "Te", "trailers", "Proxy-Authorization", "Basic x", "Accept-Encoding", "gzip", "X-Control", "a\x01b")
	client["not a name"] = []string{"x"} // as over gRPC
	before := client.Clone()
	if _, err := s.Ask(context.Background(), client); err != nil {
		t.Fatal(err)
	}
	if asked.Method != http.MethodGet || asked.URL.String() != "/oauth2/auth?allowed_groups=llm" || asked.ContentLength != 0 {
		t.Errorf("asked %s %s with %d bytes", asked.Method, asked.URL, asked.ContentLength)
	}
	delete(asked.Header, "User-Agent")
	want := headers("Cookie", "session=1", "Authorization", "Bearer x", "X-Original-Url", "https://api.example/chat?x=1")
	if diff := cmp.Diff(want, asked.Header); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(before, client); diff != "" {
		t.Errorf("the request itself was changed:\n%s", diff)
	}
}
