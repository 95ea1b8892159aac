// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// obeyed is how long kubectl and all replicas took to follow a kill switch. Times are from the start of
// kubectl, and from its end.
type obeyed struct{ fromStart, fromEnd []time.Duration }

// TestClusterKillSwitchEverywhere engages and releases a tier's switch 20 times with kubectl, and
// measures how long it takes until three replicas obey. It is where the numbers in docs/killswitch.md
// come from: go test ./cmd/tierlimit -run KillSwitchEverywhere -v
func TestClusterKillSwitchEverywhere(t *testing.T) {
	const times = 20
	server := redistest.Start(t)
	env := installed(t, server)
	replicas := []*process{start(t, env, "--redis-timeout", "20s"), start(t, env, "--redis-timeout", "20s"), start(t, env, "--redis-timeout", "20s")}
	apply(t, fmt.Sprintf(tierManifest, "free", 1000), "apply", "-f", "-")
	eventually(t, "the tier is in force", func() bool {
		return !slices.ContainsFunc(replicas, func(p *process) bool { return p.ask("user=probe").status != 200 })
	})
	var engaged, released obeyed
	for i := range times {
		engaged.measure(t, replicas, fmt.Sprintf(`{"spec":{"killSwitch":{"engaged":true,"reason":"drill %d"}}}`, i), "disabled")
		released.measure(t, replicas, `{"spec":{"killSwitch":null}}`, "")
	}
	t.Logf("engage:  %s", engaged)
	t.Logf("release: %s", released)
}

// measure patches the tier and asks every replica until its answers say that it obeys.
func (o *obeyed) measure(t *testing.T, replicas []*process, patch, enforcement string) {
	t.Helper()
	begin := time.Now()
	patched := make(chan time.Time, 1)
	go func() {
		kubectl(t, "patch", "rlt", "free", "--type=merge", "-p", patch)
		patched <- time.Now()
	}()
	var last time.Time
	for i, deadline := 0, begin.Add(30*time.Second); i < len(replicas); {
		if got := replicas[i].ask("user=probe").header.Get("X-Tierlimit-Enforcement"); got == enforcement {
			i++
			last = time.Now()
			continue
		}
		if time.Now().After(deadline) {
			t.Fatalf("replica %d does not obey %s", i, patch)
		}
		time.Sleep(time.Millisecond)
	}
	o.fromStart = append(o.fromStart, last.Sub(begin))
	o.fromEnd = append(o.fromEnd, max(0, last.Sub(<-patched)))
}

func (o obeyed) String() string {
	return fmt.Sprintf("%d times; from the start of kubectl p50 %v, max %v; from its end p50 %v, max %v", len(o.fromStart),
		p50(o.fromStart), slices.Max(o.fromStart).Round(time.Millisecond), p50(o.fromEnd), slices.Max(o.fromEnd).Round(time.Millisecond))
}

func p50(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[len(all)/2].Round(time.Millisecond)
}

const ownSlice = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: tierlimit-own
  namespace: tierlimit-system
  labels: {kubernetes.io/service-name: tierlimit}
addressType: IPv4
endpoints:
- {addresses: [198.51.100.1], conditions: {ready: true}, targetRef: {kind: Pod, namespace: tierlimit-system, name: tierlimit-a, uid: a}}
`

// TestClusterReports runs the binary with the rights of config/rbac as the one replica of its Service, and
// asks it as another replica would.
func TestClusterReports(t *testing.T) {
	server := redistest.Start(t)
	env := append(installed(t, server), "POD_NAMESPACE=tierlimit-system", "POD_NAME=tierlimit-a")
	apply(t, ownSlice, "apply", "-f", "-")
	t.Cleanup(func() { kubectl(t, "-n", "tierlimit-system", "delete", "endpointslice", "tierlimit-own") })
	p := start(t, env, "--service", "tierlimit")
	apply(t, fmt.Sprintf(tierManifest, "free", 3), "apply", "-f", "-")
	kubectl(t, "wait", "--for=condition=Ready", "--timeout=30s", "rlt/free")
	fields := strings.Fields(kubectl(t, "get", "rlt", "free", "-o", "jsonpath={.metadata.uid} {.metadata.generation} {.status.updatedReplicas}/{.status.replicas}"))
	if fields[2] != "1/1" {
		t.Errorf("status says %s replicas, want 1/1", fields[2])
	}
	question := `{"tiers":[{"name":"free","uid":"` + fields[0] + `","generation":%s}]}`
	if got := p.post(p.health+"/loaded", fmt.Sprintf(question, fields[1])); got.status != 200 || strings.TrimSpace(got.body) != `{"asked":1}` {
		t.Errorf("it is in force, but the answer is %v", got)
	}
	if got := p.post(p.health+"/loaded", fmt.Sprintf(question, "99")); strings.TrimSpace(got.body) != `{"asked":1,"lacking":["free"]}` {
		t.Errorf("there is no such generation, but the answer is %v", got)
	}
	if got := p.get(p.check + "/loaded"); got.status != 404 {
		t.Errorf("the check endpoint answers /loaded with %d", got.status)
	}
}

// TestLocalModeHasNoReplicas asks a process in local mode.
func TestLocalModeHasNoReplicas(t *testing.T) {
	p := start(t, nil, "--tiers", "config/samples")
	if got := p.post(p.health+"/loaded", "{}"); got.status != 404 {
		t.Errorf("/loaded is answered with %d", got.status)
	}
}
