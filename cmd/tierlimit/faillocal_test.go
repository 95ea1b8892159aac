// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// TestFailLocalInLocalMode stops Redis under a process that was told that there are two.
func TestFailLocalInLocalMode(t *testing.T) {
	server := redistest.Start(t)
	dir := t.TempDir()
	writeTier(t, dir, "free", "{perMinute: 4}\n  failurePolicy: FailLocal")
	p := start(t, []string{"REDIS_URL=" + server.URL()}, "--tiers", dir, "--replicas", "2")
	if got := p.ask("user=u"); got.status != 200 || got.header.Get("X-RateLimit-Limit") != "4" || got.header.Get("X-Tierlimit-Enforcement") != "" {
		t.Fatalf("with Redis: %v", got)
	}
	server.Stop()
	for i, want := range []int{200, 200, 429} {
		got := p.ask("user=u")
		if got.status != want || got.header.Get("X-RateLimit-Limit") != "2" || got.header.Get("X-Tierlimit-Enforcement") != "local" {
			t.Errorf("request %d without Redis: %v", i, got)
		}
	}
	metrics := p.get("http://" + p.metrics + "/metrics").body
	for _, line := range []string{"tierlimit_replicas 2", `tierlimit_checks_total{outcome="local_admitted",tier="free",window="minute"} 2`, `outcome="local_rejected"`} {
		if !strings.Contains(metrics, line) {
			t.Errorf("the metrics have no %s", line)
		}
	}
}

const tierlimitSlice = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: tierlimit-test
  namespace: tierlimit-system
  labels: {kubernetes.io/service-name: tierlimit}
addressType: IPv4
endpoints:
- {addresses: [192.0.2.1], conditions: {ready: true}}
- {addresses: [192.0.2.2], conditions: {ready: true}}
- {addresses: [192.0.2.3], conditions: {ready: true}}
- {addresses: [192.0.2.4], conditions: {ready: false}}
`

// TestClusterCountsReplicas has the rights of config/rbac, without Redis from the start.
func TestClusterCountsReplicas(t *testing.T) {
	server := redistest.Start(t)
	env := append(installed(t, server), "POD_NAMESPACE=tierlimit-system")
	server.Stop()
	apply(t, tierlimitSlice, "apply", "-f", "-")
	t.Cleanup(func() { kubectl(t, "-n", "tierlimit-system", "delete", "endpointslice", "tierlimit-test") })
	apply(t, fmt.Sprintf(tierManifest, "free", 30)+"  failurePolicy: FailLocal\n", "apply", "-f", "-")
	p := start(t, env, "--service", "tierlimit", "--replicas", "5")
	share := func(want string) func() bool {
		return func() bool {
			got := p.ask("user=probe").header
			return got.Get("X-RateLimit-Limit") == want && got.Get("X-Tierlimit-Enforcement") == "local"
		}
	}
	eventually(t, "three replicas share 30", share("10"))
	kubectl(t, "-n", "tierlimit-system", "patch", "endpointslice", "tierlimit-test", "--type=json", "-p", `[{"op":"remove","path":"/endpoints/0"}]`)
	eventually(t, "two replicas share 30", share("15"))
}

// Without the right to read EndpointSlices, as with the manifests of an older version, everything
// else works, and the process ends when it is told to.
func TestClusterWithoutTheRightToCount(t *testing.T) {
	server := redistest.Start(t)
	env := append(installed(t, server), "POD_NAMESPACE=default")
	apply(t, fmt.Sprintf(tierManifest, "free", 3), "apply", "-f", "-")
	p := start(t, env, "--service", "tierlimit")
	eventually(t, "the tier is in force", func() bool { return p.ask("user=probe").status != 503 })
	eventually(t, "the log says what is missing", func() bool { return strings.Contains(p.log.String(), "endpointslices.discovery.k8s.io is forbidden") })
	begin := time.Now()
	if err := p.stop(); err != nil || time.Since(begin) > 20*time.Second {
		t.Errorf("ended after %v with %v", time.Since(begin), err)
	}
}
