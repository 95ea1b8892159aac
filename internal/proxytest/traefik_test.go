// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// traefikStatic is what a test changes in the static configuration besides addresses: only the
// loopback interface is used.
var traefikStatic = []string{"entryPoints:\n", "global:\n  checkNewVersion: false\nentryPoints:\n"}

// traefikReady adds a route that leads nowhere and answers 418.
var traefikReady = []string{"  routers:\n", "  routers:\n    ready:\n      entryPoints: [web]\n" +
	"      rule: Path(`/ready`)\n      priority: 1000\n      service: noop@internal\n"}

// runTraefik runs Traefik with a static configuration and waits for its routes: it listens before it
// has read them, and answers 404 until then.
func runTraefik(t *testing.T, static, proxy string) string {
	t.Helper()
	Run(t, built(t, "traefik"), []string{"--configFile=" + static}, proxy)
	g := &guarded{proxy: proxy}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if g.send(t, http.MethodGet, "/ready", nil).status == http.StatusTeapot {
			return proxy
		}
	}
	t.Fatalf("traefik has no routes after %s", patience)
	return ""
}

// startTraefik runs examples/traefik with other addresses, and then with other changes.
func startTraefik(t *testing.T, check, application string, static, dynamic []string) string {
	t.Helper()
	proxy := FreeAddress(t)
	dynamicFile := adapted(t, example(t, "traefik", "dynamic.yaml"), append(append([]string{
		"tierlimit.tierlimit-system.svc.cluster.local", check,
		"application.example:8080", application}, traefikReady...), dynamic...)...)
	staticFile := adapted(t, example(t, "traefik", "traefik.yaml"), append(append([]string{
		`":8080"`, proxy, "/etc/traefik/dynamic.yaml", dynamicFile}, traefikStatic...), static...)...)
	return runTraefik(t, staticFile, proxy)
}

// startBoundedTraefik runs examples/traefik/bounded on top of examples/traefik.
func startBoundedTraefik(t *testing.T, check, application string) string {
	t.Helper()
	proxy, internal := FreeAddress(t), FreeAddress(t)
	routes := adapted(t, example(t, "traefik", "dynamic.yaml"), append([]string{
		"tierlimit.tierlimit-system.svc.cluster.local", internal,
		"application.example:8080", application}, traefikReady...)...)
	more := adapted(t, example(t, "traefik", "bounded", "tierlimit.yaml"),
		"tierlimit.tierlimit-system.svc.cluster.local:80", check)
	directory := filepath.Dir(routes)
	if err := os.Rename(more, filepath.Join(directory, "bounded.yaml")); err != nil {
		t.Fatal(err)
	}
	static := adapted(t, example(t, "traefik", "bounded", "traefik.yaml"), append([]string{
		`":8080"`, proxy, "127.0.0.1:8410", internal, "/etc/traefik/dynamic", directory}, traefikStatic...)...)
	return runTraefik(t, static, proxy)
}

func TestTraefik(t *testing.T) {
	// ForwardAuth waits for 30 seconds, and there is no setting for that.
	r := recipe{large: 401, patience: 45 * time.Second}
	r.run = func(t *testing.T, check, application string) string {
		return startTraefik(t, check, application, nil, nil)
	}
	r.unanswered.down, r.unanswered.slow, r.unanswered.nonsense, r.unanswered.closed = 500, 500, 500, 500
	behave(t, r)
}

func TestTraefikBounded(t *testing.T) {
	r := recipe{run: startBoundedTraefik, large: 401, patience: 10 * time.Second}
	r.unanswered.down, r.unanswered.slow, r.unanswered.nonsense, r.unanswered.closed = 502, 504, 500, 502
	g := guard(t, r)
	testRejected(t, g)
	g.reset(t)
	if forged := g.raw(t, "GET / HTTP/1.1", "X-Real-IP: 192.0.2.1", "X-Forwarded-Method: OPTIONS"); forged.status != http.StatusOK {
		t.Fatalf("status %d, want 200", forged.status)
	}
	asked, _ := g.passed(t, 1, 1)
	if got := asked[0].Header.Values("X-Real-IP"); !cmp.Equal(got, []string{clientAddress}) {
		t.Errorf("X-Real-IP is %q, want %s", got, clientAddress)
	}
	if got := asked[0].Header.Values("X-Forwarded-Method"); !cmp.Equal(got, []string{"GET"}) {
		t.Errorf("X-Forwarded-Method is %q, want GET", got)
	}
	testRelayed(t, g)
	testUnanswered(t, r)
}

// What decides whether a client can choose its address is the entry point, not trustForwardHeader.
func TestTraefikTrust(t *testing.T) {
	trust := []string{"maxResponseBodySize: 65536", "trustForwardHeader: true"}
	t.Run("TrustForwardHeader", func(t *testing.T) {
		testForged(t, guard(t, recipe{run: func(t *testing.T, check, application string) string {
			return startTraefik(t, check, application, nil, trust)
		}}))
	})
	t.Run("InsecureEntryPoint", func(t *testing.T) {
		insecure := []string{"  web:\n", "  web:\n    forwardedHeaders:\n      insecure: true\n"}
		g := guard(t, recipe{run: func(t *testing.T, check, application string) string {
			return startTraefik(t, check, application, insecure, nil)
		}})
		g.reset(t)
		g.raw(t, "GET / HTTP/1.1", "X-Real-IP: 192.0.2.1")
		asked, _ := g.passed(t, 1, 1)
		if got := asked[0].Header.Get("X-Real-IP"); got != "192.0.2.1" {
			t.Errorf("X-Real-IP is %s; docs/ingress/traefik.md warns that a client could choose it", got)
		}
	})
}
