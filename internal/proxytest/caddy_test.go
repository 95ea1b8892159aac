// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest

import (
	"net"
	"net/http"
	"testing"
	"time"
)

// caddyClosed is what the Caddyfile does with a request without an answer, and caddyOpen lets it
// pass.
const (
	caddyClosed = "\t\t\theader Content-Type application/problem+json\n\t\t\theader Cache-Control no-store\n\t\t\trespond "
	caddyOpen   = "\t\t\timport application\n\t\t\t#"
)

// startCaddy runs examples/caddy with other addresses, and then with other changes.
func startCaddy(t *testing.T, check, application string, replacements ...string) string {
	t.Helper()
	proxy := FreeAddress(t)
	_, port, _ := net.SplitHostPort(proxy)
	t.Setenv("TIERLIMIT_ADDRESS", check)
	t.Setenv("APPLICATION_ADDRESS", application)
	t.Setenv("PORT", port)
	// Not in the recipe: nothing but the loopback interface, and no files outside the test.
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	config := adapted(t, example(t, "caddy", "Caddyfile"), append([]string{
		"# Tierlimit behind Caddy", "{\n\tadmin off\n\tdefault_bind 127.0.0.1\n}\n# Tierlimit behind Caddy"}, replacements...)...)
	Run(t, built(t, "caddy"), []string{"run", "--adapter", "caddyfile", "--config", config}, proxy)
	return proxy
}

func TestCaddy(t *testing.T) {
	r := recipe{told: true, problem: true, large: 403, patience: 10 * time.Second}
	r.run = func(t *testing.T, check, application string) string { return startCaddy(t, check, application) }
	r.unanswered.down, r.unanswered.slow, r.unanswered.nonsense, r.unanswered.closed = 503, 503, 503, 503
	behave(t, r)
}

// With the one change that the recipe speaks of, clients pass while the check cannot be reached,
// and no client can bring that about.
func TestCaddyFailOpen(t *testing.T) {
	testFailOpen(t, func(t *testing.T, check, application string) string {
		return startCaddy(t, check, application, caddyClosed, caddyOpen)
	})
}

// An application that is down is not mistaken for the check.
func TestCaddyApplicationDown(t *testing.T) {
	g := &guarded{check: StartCheck(t, nil, Tier("free", freeLimit, time.Minute))}
	g.proxy = startCaddy(t, g.check.Address(), FreeAddress(t))
	if answer := g.send(t, http.MethodGet, "/", nil); answer.status != http.StatusBadGateway {
		t.Errorf("status %d with %q, want 502", answer.status, answer.body)
	}
}
