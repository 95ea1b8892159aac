// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/tier"
)

// recipe is a proxy that runs one of the files in examples.
type recipe struct {
	// run starts the proxy before an application, with a check at this address, and returns the
	// proxy's own.
	run func(t *testing.T, check, application string) string
	// told says whether an admitted client learns what is left of its budget.
	told bool
	// unanswered is what the client gets when nothing listens for checks, or what listens does not
	// answer, answers nonsense or closes the connection.
	unanswered struct{ down, slow, nonsense, closed int }
	// large is what the client gets when the check answers 403 and 100 KiB.
	large int
	// problem says whether that answer is a problem document.
	problem bool
	// patience bounds how long a client waits when the check is slow.
	patience time.Duration
}

// guarded is an application behind a recipe.
type guarded struct {
	recipe
	proxy       string
	check       *Check
	application *Application
}

// The limits a minute of the two tiers that the recipes speak of.
const freeLimit, proLimit = 5, 3

// freePolicy is the RateLimit-Policy of the free tier.
const freePolicy = `"minute";q=5;w=60`

// guard starts a recipe and everything it needs.
func guard(t *testing.T, r recipe) *guarded {
	t.Helper()
	tiers := []*tier.Tier{Tier("free", freeLimit, time.Minute), Tier("pro", proLimit, time.Minute)}
	g := &guarded{recipe: r, check: StartCheck(t, nil, tiers...), application: StartApplication(t)}
	g.proxy = r.run(t, g.check.Address(), g.application.Address())
	return g
}

// behave tests everything that a recipe promises.
func behave(t *testing.T, r recipe) {
	g := guard(t, r)
	for name, test := range map[string]func(*testing.T, *guarded){
		"Admitted": testAdmitted, "Rejected": testRejected, "OwnHeader": testOwnHeader, "Upload": testUpload,
		"BodyOfGet": testBodyOfGet, "Head": testHead, "Websocket": testWebsocket, "Routes": testRoutes,
		"Forbidden": testForbidden, "Paths": testPaths, "Forged": testForged, "Large": testLarge,
		"Relayed": testRelayed, "Pipelined": testPipelined,
	} {
		t.Run(name, func(t *testing.T) {
			g.reset(t)
			test(t, g)
		})
	}
	t.Run("StoreDown", func(t *testing.T) {
		g.reset(t)
		testStoreDown(t, g)
	})
	t.Run("Unanswered", func(t *testing.T) { testUnanswered(t, r) })
}

// reset forgets what was charged, asked and requested.
func (g *guarded) reset(t *testing.T) {
	t.Helper()
	if err := g.check.Redis.Client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	g.check.Asked()
	g.application.Requests()
}

// passed fails the test unless so many checks were asked for and so many requests have reached the
// application since the last call, and returns both.
func (g *guarded) passed(t *testing.T, checks, requests int) (asked, requested []*http.Request) {
	t.Helper()
	asked, requested = g.check.Asked(), g.application.Requests()
	if len(asked) != checks || len(requested) != requests {
		t.Fatalf("%d checks and %d requests to the application, want %d and %d", len(asked), len(requested), checks, requests)
	}
	return asked, requested
}

// spend uses the budget of the free tier up.
func (g *guarded) spend(t *testing.T) {
	t.Helper()
	for range freeLimit {
		if answer := g.send(t, http.MethodGet, "/", nil); answer.status != http.StatusOK {
			t.Fatalf("status %d within the budget, want 200", answer.status)
		}
	}
	g.passed(t, freeLimit, freeLimit)
}

// budget are the headers that tell a client what is left.
func (a *answer) budget() map[string]string {
	b := make(map[string]string)
	for _, name := range []string{"RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Window"} {
		if values := a.header.Values(name); len(values) > 0 {
			b[name] = strings.Join(values, " and ")
		}
	}
	return b
}

// rejection fails the test unless the answer is the check's 429.
func (a *answer) rejection(t *testing.T) {
	t.Helper()
	if a.status != http.StatusTooManyRequests {
		t.Fatalf("status %d, want 429; the body is %q", a.status, a.body)
	}
	for name, want := range map[string]string{"Content-Type": "application/problem+json", "Cache-Control": "no-store",
		"X-Tierlimit-Tier": "free"} {
		if diff := cmp.Diff([]string{want}, a.header.Values(name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if after := a.header.Get("Retry-After"); after == "" || after == "0" {
		t.Errorf("Retry-After is %q, want a number of seconds", after)
	}
	if after := a.header.Get("retry-after-ms"); len(after) < 3 {
		t.Errorf("retry-after-ms is %q, want a number of milliseconds", after)
	}
	if left := a.header.Get("RateLimit"); !strings.HasPrefix(left, `"minute";r=0;t=`) {
		t.Errorf("RateLimit is %q, want nothing left for some time", left)
	}
	want := map[string]string{"RateLimit-Policy": freePolicy, "X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "0", "X-RateLimit-Window": "minute"}
	if diff := cmp.Diff(want, a.budget()); diff != "" {
		t.Errorf("budget (-want +got):\n%s", diff)
	}
}

func testAdmitted(t *testing.T, g *guarded) {
	answer := g.send(t, http.MethodGet, "/any?tier=enterprise", nil)
	if answer.status != http.StatusOK || answer.body != "the application got 0 bytes" {
		t.Errorf("status %d with %q, want the application's 200", answer.status, answer.body)
	}
	want := map[string]string{}
	if g.told {
		want = map[string]string{"RateLimit-Policy": freePolicy, "X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "4", "X-RateLimit-Window": "minute"}
	}
	if diff := cmp.Diff(want, answer.budget()); diff != "" {
		t.Errorf("budget (-want +got):\n%s", diff)
	}
	for name, values := range answer.header {
		if values[0] == "" || strings.Contains(values[0], "{") {
			t.Errorf("%s: %q; want no header where the check has none", name, values)
		}
	}
	asked, requested := g.passed(t, 1, 1)
	if got := requested[0].RequestURI; got != "/any?tier=enterprise" {
		t.Errorf("the application was asked for %s", got)
	}
	if got := asked[0].Method + " " + asked[0].RequestURI; got != "GET /check?tier=free" {
		t.Errorf("the check was asked with %s", got)
	}
}

func testRejected(t *testing.T, g *guarded) {
	g.spend(t)
	answer := g.send(t, http.MethodGet, "/", nil)
	answer.rejection(t)
	if !strings.Contains(answer.body, `"title":"Too Many Requests","status":429`) {
		t.Errorf("body %q, want the check's", answer.body)
	}
	g.passed(t, 1, 0)
}

// An application can speak of a limit of its own.
func testOwnHeader(t *testing.T, g *guarded) {
	want := "own"
	if g.told {
		want = "5"
	}
	answer := g.send(t, http.MethodGet, "/?own=1", nil)
	if got := answer.budget()["X-RateLimit-Limit"]; got != want {
		t.Errorf("X-RateLimit-Limit is %q, want %q", got, want)
	}
}

func testUpload(t *testing.T, g *guarded) {
	body := bytes.Repeat([]byte("0123456789"), 1<<20)
	for range freeLimit {
		answer := g.send(t, http.MethodPost, "/", bytes.NewReader(body))
		if want := "the application got 10485760 bytes"; answer.status != http.StatusOK || answer.body != want {
			t.Fatalf("status %d with %q, want 200 with %q", answer.status, answer.body, want)
		}
	}
	asked, _ := g.passed(t, freeLimit, freeLimit)
	if got := asked[0].Header.Get("X-Forwarded-Method"); got != http.MethodPost {
		t.Errorf("X-Forwarded-Method is %q, want POST", got)
	}
	g.send(t, http.MethodPost, "/", bytes.NewReader(body), "Expect", "100-continue").rejection(t)
	g.passed(t, 1, 0)
	// A client that goes on sending may find the connection closed before it has read the answer.
	if answer, err := g.try(t, http.MethodPost, "/", bytes.NewReader(body)); err == nil {
		answer.rejection(t)
	}
	g.passed(t, 1, 0)
}

// The check is sent no body, and takes none away.
func testBodyOfGet(t *testing.T, g *guarded) {
	for reason, body := range map[string]io.Reader{
		"of known length": strings.NewReader("hello"),
		"chunked":         io.MultiReader(strings.NewReader("hello")),
	} {
		if answer := g.send(t, http.MethodGet, "/", body); answer.body != "the application got 5 bytes" {
			t.Errorf("%s: status %d with %q", reason, answer.status, answer.body)
		}
		asked, _ := g.passed(t, 1, 1)
		if asked[0].ContentLength != 0 {
			t.Errorf("%s: the check was sent %d bytes of body", reason, asked[0].ContentLength)
		}
	}
}

func testHead(t *testing.T, g *guarded) {
	if answer := g.send(t, http.MethodHead, "/", nil); answer.status != http.StatusOK {
		t.Errorf("status %d, want 200", answer.status)
	}
	g.check.Redis.Client.FlushAll(t.Context())
	g.passed(t, 1, 1)
	g.spend(t)
	// A body after the answer to HEAD would be taken for the answer to the next request.
	raw := g.raw(t, "HEAD / HTTP/1.1")
	raw.rejection(t)
	if raw.rest != "" {
		t.Errorf("HEAD is answered with a body: %q", raw.rest)
	}
}
