// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

func testWebsocket(t *testing.T, g *guarded) {
	upgrade := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}
	connection := g.connect(t, "GET /socket HTTP/1.1", upgrade...)
	reader := bufio.NewReader(connection)
	response, err := http.ReadResponse(reader, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v; want 101", response, err)
	}
	for _, line := range []string{"one\n", "two\n"} {
		if _, err := io.WriteString(connection, line); err != nil {
			t.Fatal(err)
		}
		if got, err := reader.ReadString('\n'); got != line {
			t.Fatalf("sent %q, got back %q, %v", line, got, err)
		}
	}
	_ = connection.Close()
	g.passed(t, 1, 1)

	g.check.Redis.Client.FlushAll(t.Context())
	g.spend(t)
	connection = g.connect(t, "GET /socket HTTP/1.1", upgrade...)
	response, err = http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil || response.StatusCode != http.StatusTooManyRequests {
		t.Fatalf("%v, %v; want 429", response, err)
	}
	g.passed(t, 1, 0)
}

// Each route has its own tier and budget.
func testRoutes(t *testing.T, g *guarded) {
	g.spend(t)
	for range proLimit {
		if answer := g.send(t, http.MethodGet, "/chat", nil); answer.status != http.StatusOK {
			t.Fatalf("status %d on /chat, want 200", answer.status)
		}
	}
	g.passed(t, proLimit, proLimit)
	answer := g.send(t, http.MethodGet, "/chat/any", nil)
	if answer.status != http.StatusTooManyRequests || answer.header.Get("X-Tierlimit-Tier") != "pro" {
		t.Errorf("status %d of tier %q, want 429 of pro", answer.status, answer.header.Get("X-Tierlimit-Tier"))
	}
	asked, _ := g.passed(t, 1, 0)
	if got := asked[0].URL.RawQuery; got != "tier=pro&route=chat" {
		t.Errorf("the query is %s", got)
	}
}

// The application's own 403 is not mistaken for the check's.
func testForbidden(t *testing.T, g *guarded) {
	answer := g.send(t, http.MethodGet, "/forbidden", nil)
	if answer.status != http.StatusForbidden || strings.TrimSpace(answer.body) != ForbiddenBody {
		t.Errorf("status %d with %q, want the application's 403", answer.status, answer.body)
	}
	g.passed(t, 1, 1)
}

// No spelling of a path reaches the application without one check.
func testPaths(t *testing.T, g *guarded) {
	paths := map[string]string{
		"/a;b":                     "some proxies cut parameters of a path off",
		"/a%3Bb":                   "an encoded semicolon",
		"/?a;b":                    "some parsers refuse the query",
		"/a%2Fb":                   "an encoded slash",
		"/x%2f..%2fchat":           "encoded slashes and dot segments",
		"//chat":                   "an empty segment",
		"//other.example/chat":     "the path looks like a host",
		"/./chat":                  "a dot segment",
		"/x/../chat":               "dot segments into the other route",
		"/chat/../x":               "dot segments out of it",
		"/x/%2e%2e/chat":           "encoded dots",
		"/../chat":                 "dot segments above the root",
		"/%63hat":                  "an encoded letter",
		"/CHAT":                    "another case",
		"/a#b":                     "a fragment, which no client may send",
		"/a%23b":                   "an encoded fragment",
		"/a\\..\\chat":             "backslashes",
		"/a%00b":                   "an encoded NUL",
		"/%zz":                     "a broken encoding",
		"/a%0d%0aX-Real-IP: 1.2.3": "encoded line breaks and a space",
		"/check?tier=enterprise":   "the path of the check",
		"http://other.example/a":   "an absolute URI",
		"http://other.example":     "an absolute URI without a path",
		"*":                        "the whole server",
	}
	for path, reason := range paths {
		g.reset(t)
		fresh := g.raw(t, "GET "+path+" HTTP/1.1")
		asked, requested := g.check.Asked(), g.application.Requests()
		if len(asked) > 1 || len(requested) > len(asked) {
			t.Errorf("%s (%s): %d checks and %d requests to the application", path, reason, len(asked), len(requested))
		}
		charged := "nothing"
		for _, check := range asked {
			charged = check.URL.RawQuery
			if charged != "tier=free" && charged != "tier=pro&route=chat" {
				t.Errorf("%s (%s): the query of the check is %s", path, reason, charged)
			}
		}
		g.reset(t)
		g.spend(t)
		for range proLimit {
			g.send(t, http.MethodGet, "/chat", nil)
		}
		g.passed(t, proLimit, proLimit)
		spent := g.raw(t, "GET "+path+" HTTP/1.1")
		if len(g.application.Requests()) > 0 {
			t.Errorf("%s (%s) reaches the application when the budget is spent", path, reason)
		}
		if fresh.status == http.StatusOK && spent.status != http.StatusTooManyRequests {
			t.Errorf("%s (%s): status %d when the budget is spent, want 429", path, reason, spent.status)
		}
		t.Logf("%s: %d, then %d; charged: %s", path, fresh.status, spent.status, charged)
	}
	// All of the above would hold for a proxy that refuses everything.
	for _, path := range []string{"/a;b", "/a%3Bb", "/CHAT"} {
		if answer := g.raw(t, "GET "+path+" HTTP/1.1"); answer.status == http.StatusBadRequest {
			t.Errorf("%s is refused with 400", path)
		}
	}
}

// Nothing that a client says changes whose budget is charged.
func testForged(t *testing.T, g *guarded) {
	key := limiter.Subject{Kind: limiter.KindAddress, User: clientAddress}.Key(time.Minute)
	for reason, headers := range map[string][]string{
		"nothing forged":           {},
		"the address":              {"X-Real-IP: 192.0.2.1"},
		"the address twice":        {"X-Real-IP: 192.0.2.1", "X-Real-IP: 192.0.2.2"},
		"the address is empty":     {"X-Real-IP:"},
		"the address in lower":     {"x-real-ip: 192.0.2.1", "X_Real_IP: 192.0.2.1"},
		"the address is dropped":   {"X-Real-IP: 192.0.2.1", "Connection: X-Real-IP, X-Forwarded-For, X-Forwarded-Method"},
		"the path of proxies":      {"X-Forwarded-For: 192.0.2.1", "X-Forwarded-For: 192.0.2.2", "Forwarded: for=192.0.2.1"},
		"others":                   {"X-Client-IP: 192.0.2.1", "True-Client-IP: 192.0.2.1", "CF-Connecting-IP: 192.0.2.1"},
		"the method":               {"X-Forwarded-Method: OPTIONS", "X-Original-Method: OPTIONS", "X-HTTP-Method-Override: OPTIONS"},
		"the method twice":         {"X-Forwarded-Method: OPTIONS", "X-Forwarded-Method: OPTIONS"},
		"the URI":                  {"X-Forwarded-Uri: /check?tier=enterprise", "X-Original-URL: /x", "X-Original-URI: /x", "X-Rewrite-URL: /x"},
		"the host":                 {"X-Forwarded-Host: other.example", "X-Forwarded-Proto: https", "X-Forwarded-Port: 1"},
		"the headers of Tierlimit": {"X-Tierlimit-Tier: enterprise", "X-Tierlimit-User: bob", "X-Tierlimit-Status: 200", "X-Tierlimit-Enforcement: disabled", "X-Tierlimit-Unreachable: true"},
	} {
		g.reset(t)
		forged := g.raw(t, "GET /forged?tier=enterprise&user=bob&route=x HTTP/1.1", headers...)
		if forged.status != http.StatusOK {
			t.Errorf("%s: status %d, want 200", reason, forged.status)
			continue
		}
		asked, _ := g.passed(t, 1, 1)
		got := map[string]string{"query": asked[0].URL.RawQuery}
		for name, values := range asked[0].Header {
			switch {
			case strings.HasPrefix(name, "X-Original-"), strings.HasPrefix(name, "X-Tierlimit-"),
				name == "X-Real-Ip", name == "X-Forwarded-For", name == "X-Forwarded-Method", name == "X-Forwarded-Uri":
				got[name] = strings.Join(values, " and ")
			}
		}
		want := map[string]string{"query": "tier=free", "X-Real-Ip": clientAddress, "X-Forwarded-For": clientAddress,
			"X-Forwarded-Method": "GET", "X-Forwarded-Uri": "/forged?tier=enterprise&user=bob&route=x"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: what the check is told (-want +got):\n%s", reason, diff)
		}
		keys, err := g.check.Redis.Client.Keys(t.Context(), "*").Result()
		if diff := cmp.Diff([]string{key}, keys); err != nil || diff != "" {
			t.Errorf("%s: keys charged (-want +got), %v:\n%s", reason, err, diff)
		}
	}
}

// A request that a check cannot be asked for, because its headers are too large or too many, does
// not pass, and neither do requests that follow on the same connection.
func testLarge(t *testing.T, g *guarded) {
	g.spend(t)
	for size := 1 << 10; size < 1<<20; size += max(500, size/8) {
		g.bytes(t, "GET / HTTP/1.1", "X-Large: "+strings.Repeat("x", size))
		g.bytes(t, "GET /"+strings.Repeat("x", size)+" HTTP/1.1")
	}
	for count := 80; count < 120; count++ {
		var headers []string
		for i := range count {
			headers = append(headers, fmt.Sprintf("X-%d: x", i))
		}
		g.bytes(t, "GET / HTTP/1.1", headers...)
	}
	if requested := g.application.Requests(); len(requested) > 0 {
		t.Errorf("%d requests reach the application", len(requested))
	}
}

// Each request of a connection is checked.
func testPipelined(t *testing.T, g *guarded) {
	next := "GET / HTTP/1.1\r\nHost: api.example\r\n"
	content := g.bytes(t, strings.Repeat(next+"\r\n", freeLimit+1)+"GET / HTTP/1.1")
	reader := bufio.NewReader(strings.NewReader(content))
	var statuses []int
	for {
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			break
		}
		_, _ = io.Copy(io.Discard, response.Body)
		statuses = append(statuses, response.StatusCode)
	}
	if diff := cmp.Diff([]int{200, 200, 200, 200, 200, 429, 429}, statuses); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	g.passed(t, freeLimit+2, freeLimit)
}
