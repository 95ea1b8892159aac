// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func testStoreDown(t *testing.T, g *guarded) {
	g.check.Redis.Stop()
	defer g.check.Redis.Restart()
	answer := g.send(t, http.MethodGet, "/", nil)
	if answer.status != http.StatusServiceUnavailable || !strings.Contains(answer.body, "failurePolicy FailClosed") {
		t.Errorf("status %d with %q, want the check's 503", answer.status, answer.body)
	}
	if got := answer.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q, want a problem", got)
	}
	g.passed(t, 1, 0)
}

// scripted is a check that does what the client's path says.
func scripted(t *testing.T) (address string) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, h := r.Header.Get("X-Forwarded-Uri"), w.Header()
		switch path {
		case "/slow":
			<-release
		case "/nonsense", "/closed":
			connection, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			if path == "/nonsense" {
				_, _ = connection.Write([]byte("nonsense\r\n\r\n"))
			}
			_ = connection.Close()
		case "/admitted":
			fill(h)
			h.Set("X-Secret", "not for clients")
		case "/rejected":
			fill(h)
			h.Set("Content-Type", "application/problem+json")
			h.Set("Retry-After", "7")
			h.Set("Retry-After-Ms", "6500")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write([]byte(`{"status":429}`))
		case "/unauthorized":
			h.Set("WWW-Authenticate", `Bearer realm="api"`)
			h.Add("Set-Cookie", "a=1; Path=/")
			h.Add("Set-Cookie", "b=2; Path=/")
			h.Set("X-Other", "relayed")
			h.Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte("<p>log in"))
		case "/login":
			h.Set("Location", "https://login.example/?next=%2F")
			w.WriteHeader(http.StatusFound)
		case "/large":
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(strings.Repeat("x", 100<<10)))
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	return server.Listener.Addr().String()
}

// budgetHeaders are all that a check can say about a budget.
var budgetHeaders = map[string]string{
	"RateLimit": `"minute";r=0;t=7`, "RateLimit-Policy": `"minute";q=5;w=60`,
	"X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "0", "X-RateLimit-Window": "minute",
	"X-Tierlimit-Tier": "free", "X-Tierlimit-Unknown-Tier": "gold", "X-Tierlimit-Enforcement": "dry-run",
}

func fill(h http.Header) {
	for name, value := range budgetHeaders {
		h.Set(name, value)
	}
	h.Set("Cache-Control", "no-store")
}

// holds fails the test unless the answer has each of these headers, once. With none it must have
// none of them.
func (a *answer) holds(t *testing.T, want map[string]string, all bool) {
	t.Helper()
	for name, value := range want {
		values := []string{value}
		if !all {
			values = nil
		}
		if diff := cmp.Diff(values, a.header.Values(name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// What the check answers is the client's answer, whatever it is.
func testRelayed(t *testing.T, g *guarded) {
	check := &guarded{recipe: g.recipe, proxy: g.run(t, scripted(t), g.application.Address())}

	admitted := check.send(t, http.MethodGet, "/admitted", nil)
	if admitted.status != http.StatusOK || admitted.body != "the application got 0 bytes" {
		t.Errorf("status %d with %q, want the application's", admitted.status, admitted.body)
	}
	admitted.holds(t, budgetHeaders, g.told)
	admitted.holds(t, map[string]string{"X-Secret": ""}, false)

	rejected := check.send(t, http.MethodGet, "/rejected", nil)
	if rejected.status != http.StatusTooManyRequests || rejected.body != `{"status":429}` {
		t.Errorf("status %d with %q, want the check's 429", rejected.status, rejected.body)
	}
	rejected.holds(t, budgetHeaders, true)
	rejected.holds(t, map[string]string{"Retry-After": "7", "Retry-After-Ms": "6500", "Cache-Control": "no-store",
		"Content-Type": "application/problem+json"}, true)

	unauthorized := check.send(t, http.MethodGet, "/unauthorized", nil)
	if unauthorized.status != http.StatusUnauthorized || unauthorized.body != "<p>log in" {
		t.Errorf("status %d with %q, want the check's 401", unauthorized.status, unauthorized.body)
	}
	unauthorized.holds(t, map[string]string{"WWW-Authenticate": `Bearer realm="api"`, "X-Other": "relayed",
		"Content-Type": "text/html"}, true)
	if diff := cmp.Diff([]string{"a=1; Path=/", "b=2; Path=/"}, unauthorized.header.Values("Set-Cookie")); diff != "" {
		t.Errorf("Set-Cookie (-want +got):\n%s", diff)
	}

	login := check.raw(t, "GET /login HTTP/1.1")
	if got := login.header.Get("Location"); login.status != http.StatusFound || got != "https://login.example/?next=%2F" {
		t.Errorf("status %d to %q, want the check's 302", login.status, got)
	}
	if large := check.send(t, http.MethodGet, "/large", nil); large.status != g.large {
		t.Errorf("status %d for a 403 with a body of 100 KiB, want %d", large.status, g.large)
	}
	if requested := g.application.Requests(); len(requested) != 1 {
		t.Errorf("%d requests to the application, want the one admitted", len(requested))
	}
	// Clients that leave while the check is asked do no harm.
	for range 20 {
		_ = check.connect(t, "GET /slow HTTP/1.1").Close()
	}
	if again := check.send(t, http.MethodGet, "/rejected", nil); again.status != http.StatusTooManyRequests {
		t.Errorf("status %d after clients have left, want 429", again.status)
	}
}

// A check that gives no answer lets nobody pass, and the client waits a bounded time.
func testUnanswered(t *testing.T, r recipe) {
	application := StartApplication(t)
	down := &guarded{recipe: r, proxy: r.run(t, FreeAddress(t), application.Address())}
	silent := &guarded{recipe: r, proxy: r.run(t, scripted(t), application.Address())}
	for reason, c := range map[string]struct {
		*guarded
		path string
		want int
	}{
		"nothing listens":          {down, "/", r.unanswered.down},
		"no answer":                {silent, "/slow", r.unanswered.slow},
		"not HTTP":                 {silent, "/nonsense", r.unanswered.nonsense},
		"the connection is closed": {silent, "/closed", r.unanswered.closed},
	} {
		start := time.Now()
		answer := c.send(t, http.MethodGet, c.path, nil)
		if took := time.Since(start); took > r.patience {
			t.Errorf("%s: the client waits for %s, want at most %s", reason, took, r.patience)
		}
		if answer.status != c.want {
			t.Errorf("%s: status %d, want %d; the body is %q", reason, answer.status, c.want, answer.body)
		}
		if !r.problem {
			continue
		}
		var problem struct{ Status int }
		if err := json.Unmarshal([]byte(answer.body), &problem); err != nil || problem.Status != c.want {
			t.Errorf("%s: body %q, want a problem", reason, answer.body)
		}
		if got := answer.header.Get("Content-Type"); got != "application/problem+json" {
			t.Errorf("%s: Content-Type %q, want a problem", reason, got)
		}
	}
	if requested := application.Requests(); len(requested) > 0 {
		t.Errorf("%d requests reach the application", len(requested))
	}
}

// testFailOpen tests a recipe that lets clients pass while the check gives no answer.
func testFailOpen(t *testing.T, run func(t *testing.T, check, application string) string) {
	application := StartApplication(t)
	down := &guarded{proxy: run(t, FreeAddress(t), application.Address())}
	silent := &guarded{proxy: run(t, scripted(t), application.Address())}
	if answer := down.send(t, http.MethodPost, "/", strings.NewReader("hello")); answer.body != "the application got 5 bytes" {
		t.Errorf("status %d with %q when nothing listens, want the application's 200", answer.status, answer.body)
	}
	for _, path := range []string{"/slow", "/nonsense"} {
		if answer := silent.send(t, http.MethodGet, path, nil); answer.status != http.StatusOK {
			t.Errorf("status %d on %s, want 200", answer.status, path)
		}
	}
	if requested := application.Requests(); len(requested) != 3 {
		t.Errorf("%d requests to the application, want 3", len(requested))
	}
	g := guard(t, recipe{run: run})
	t.Run("Large", func(t *testing.T) { testLarge(t, g) })
	t.Run("StoreDown", func(t *testing.T) {
		g.reset(t)
		testStoreDown(t, g)
	})
}
