// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// errorBackendOf returns the error backend of an endpoint.
func errorBackendOf(t testing.TB, e *endpoint, query string) http.Handler {
	t.Helper()
	backend, err := e.ErrorBackend(query)
	if err != nil {
		t.Fatal(err)
	}
	return backend
}

// refusedRequest is what ingress-nginx sends to an error backend for a client at an address.
func refusedRequest(address string, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Code", "403")
	r.Header.Set("X-Forwarded-For", address)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func answerOf(handler http.Handler, r *http.Request) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	return recorder
}

func TestErrorBackend(t *testing.T) {
	server := redistest.Start(t)
	e := newEndpoint(realLimiter(t, server), identifiedBy(t, "header:X-User,api-key:X-Api-Key,address"),
		budget("free", 1, 100), budget("pro", 5, 100), budget("none", 0, 0), budget("dry", 0, 0, dryRunTier), budget("off", 1, 1, engaged(time.Time{})))
	e.ask("/check/nginx?tier=free&route=chat", "X-Real-IP", "203.0.113.7")
	e.ask("/check/nginx?tier=free&route=chat", "X-Api-Key", "k")
	cases := map[string]struct {
		reason, query string
		request       *http.Request
		status        int
	}{
		"Limited":        {"a caller who is over the budget now", "tier=free&route=chat", refusedRequest("203.0.113.7"), 429},
		"LimitedKey":     {"whoever it is", "tier=free&route=chat", refusedRequest("198.51.100.1", "X-Api-Key", "k"), 429},
		"OtherCaller":    {"somebody else was refused by something else", "tier=free&route=chat", refusedRequest("203.0.113.8"), 403},
		"OtherRoute":     {"a budget of another route", "tier=free", refusedRequest("203.0.113.7"), 403},
		"OtherTier":      {"the same log under a larger limit has room", "tier=pro&route=chat", refusedRequest("203.0.113.7"), 403},
		"ForgedAddress":  {"nginx leaves the client's X-Real-IP as it is", "tier=free&route=chat", refusedRequest("203.0.113.7", "X-Real-IP", "203.0.113.8"), 429},
		"ForgedList":     {"what the client wrote into X-Forwarded-For stands left", "tier=free&route=chat", refusedRequest("203.0.113.7, 203.0.113.8"), 403},
		"ForgedUser":     {"a header of the ingress cannot be told from the client's here", "tier=free&route=chat", refusedRequest("203.0.113.7", "X-User", "somebody"), 429},
		"NoAddress":      {"nobody", "tier=free&route=chat", refusedRequest(""), 403},
		"LimitZero":      {"a budget of 0 is always used up", "tier=none", refusedRequest("203.0.113.7"), 429},
		"DryRun":         {"a dry run rejects nobody", "tier=dry", refusedRequest("203.0.113.7"), 403},
		"KillSwitch":     {"nor does a tier that is switched off", "tier=off", refusedRequest("203.0.113.7"), 403},
		"OtherError":     {"another error stays the one it was", "tier=free&route=chat", refusedRequest("203.0.113.7", "X-Code", "502"), 502},
		"OtherLimit":     {"also the 429 of somebody else, who has another reason", "tier=free&route=chat", refusedRequest("203.0.113.8", "X-Code", "429"), 429},
		"NoError":        {"and stays an error, whatever is asked for", "tier=free&route=chat", refusedRequest("203.0.113.8", "X-Code", "200"), 403},
		"NoErrorLimited": {"for everybody", "tier=free&route=chat", refusedRequest("203.0.113.7", "X-Code", "200"), 429},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before, _ := server.Client.Info(t.Context(), "persistence").Result()
			r := answerOf(errorBackendOf(t, e, tc.query), tc.request)
			after, _ := server.Client.Info(t.Context(), "persistence").Result()
			if r.Code != tc.status {
				t.Fatalf("%s: %d, want %d: %s", tc.reason, r.Code, tc.status, r.Body)
			}
			said := whatWasSaid(r)
			if name == "OtherLimit" {
				if strings.Contains(r.Body.String(), "quota-exceeded") || said.Limit != "" {
					t.Errorf("%s: %+v %s", tc.reason, said, r.Body)
				}
				return
			}
			if limited := r.Code == 429; limited != (said.Limit != "") || limited && name != "LimitZero" && !said.RetryAfter || !said.Body {
				t.Errorf("%s: %+v", tc.reason, said)
			}
			if changed := func(info string) string {
				_, rest, _ := strings.Cut(info, "rdb_changes_since_last_save:")
				changes, _, _ := strings.Cut(rest, "\r\n")
				return changes
			}; changed(before) != changed(after) {
				t.Errorf("%s: looking changed data", tc.reason)
			}
		})
	}
}

func TestErrorBackendWhenRedisIsAway(t *testing.T) {
	e := newEndpoint(fixed(limiter.Decision{}, errors.New("away")), nil, budget("free", 1, 1))
	if r := answerOf(errorBackendOf(t, e, ""), refusedRequest("203.0.113.7")); r.Code != 403 {
		t.Errorf("%d, want 403: nobody knows whether the caller is limited", r.Code)
	}
}

// It would be told what the client makes up of the request.
func TestErrorBackendDoesNotAskAnotherService(t *testing.T) {
	e := newEndpoint(new(recorder), guardedBy(t, func(w http.ResponseWriter, _ *http.Request) {
		t.Error("the other auth service was asked")
		w.WriteHeader(429)
	}), budget("free", 1, 1))
	if r := answerOf(errorBackendOf(t, e, ""), refusedRequest("203.0.113.7")); r.Code != 403 {
		t.Errorf("%d, want 403", r.Code)
	}
}

func TestErrorBackendParameters(t *testing.T) {
	e := newEndpoint(nil, nil)
	for query, want := range map[string]string{"teir=free": "unknown parameter", "tier=free&tier=pro": "given twice", "tier=Free": "cannot be the name"} {
		if _, err := e.ErrorBackend(query); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", query, err, want)
		}
	}
}

// countingBody is a body of some size that takes note of how much of it was read at once.
type countingBody struct {
	left, largest int
}

func (b *countingBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), b.left)
	b.left -= n
	b.largest = max(b.largest, len(p))
	return n, nil
}

func TestErrorBackendTakesAnyBodyInPieces(t *testing.T) {
	e := newEndpoint(new(recorder), nil, budget("free", 1, 1))
	body := &countingBody{left: 1 << 30}
	r := refusedRequest("203.0.113.7")
	r.Method, r.Body = http.MethodPost, io.NopCloser(body)
	if got := answerOf(errorBackendOf(t, e, ""), r); got.Code != 403 || body.left > 0 || body.largest > 1<<20 {
		t.Errorf("%d, %d bytes unread, read in pieces of up to %d bytes", got.Code, body.left, body.largest)
	}
}

// Over a real connection, in HTTP/1.0 as nginx speaks it.
func TestErrorBackendOverAConnection(t *testing.T) {
	e := newEndpoint(new(recorder), nil, budget("free", 1, 1))
	server := httptest.NewUnstartedServer(errorBackendOf(t, e, "tier=free"))
	server.Config = NewHTTPServer(server.Config.Handler)
	server.Start()
	defer server.Close()
	request, err := http.NewRequest(http.MethodPost, server.URL+"/any?thing", bytes.NewReader(make([]byte, 20<<20)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Forwarded-For", "203.0.113.7")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != 403 {
		t.Errorf("%s", response.Status)
	}
}
