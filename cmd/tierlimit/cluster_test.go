// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// serviceAccount is who the program is in a cluster; it has the rights of config/rbac and no more.
const (
	serviceAccount      = "system:serviceaccount:tierlimit-system:tierlimit"
	serviceAccountGroup = "system:serviceaccounts:tierlimit-system"
)

// kubectl runs kubectl with full access and fails the test if it fails.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return apply(t, "", args...)
}

// apply is kubectl with standard input.
func apply(t *testing.T, input string, args ...string) string {
	t.Helper()
	output, err := cluster.Kubectl(t, adminKubeconfig(t), input, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return output
}

var adminFile string

func adminKubeconfig(t *testing.T) string {
	t.Helper()
	if adminFile == "" {
		adminFile = cluster.Kubeconfig(t, "admin", "system:masters")
	}
	return adminFile
}

// installed puts the shipped manifests into the cluster and returns the environment in which the
// program runs with the rights that they give it.
func installed(t *testing.T, server *redistest.Server) []string {
	t.Helper()
	kubectl(t, "apply", "-k", "config/default")
	t.Cleanup(func() { kubectl(t, "delete", "ratelimittiers", "--all") })
	return []string{
		"REDIS_URL=" + server.URL(),
		"KUBECONFIG=" + cluster.Kubeconfig(t, serviceAccount, "system:serviceaccounts", serviceAccountGroup, "system:authenticated"),
	}
}

const tierManifest = `
apiVersion: tierlimit.dev/v1alpha1
kind: RateLimitTier
metadata:
  name: %s
spec:
  requests:
    perMinute: %d
`

// TestClusterMainJob is the product's main job with two replicas: apply, ask, change, delete.
func TestClusterMainJob(t *testing.T) {
	server := redistest.Start(t)
	env := installed(t, server)
	// The binary has the race detector and its checks take many times longer than they should.
	replicas := []*process{start(t, env, "--redis-timeout", "20s"), start(t, env, "--redis-timeout", "20s")}
	everywhere := func(what string, condition func(p *process) bool) {
		t.Helper()
		eventually(t, what, func() bool { return condition(replicas[0]) && condition(replicas[1]) })
	}
	limit := func(tier, want string) func(*process) bool {
		return func(p *process) bool {
			return p.ask("tier="+tier+"&user=probe").header.Get("X-RateLimit-Limit") == want
		}
	}

	if got := replicas[0].ask("user=u"); got.status != 503 || !strings.Contains(got.body, `create it`) {
		t.Errorf("in an empty cluster: %v", got)
	}

	kubectl(t, "apply", "-k", "config/samples")
	everywhere("the samples are in force", limit("enterprise", "600"))
	kubectl(t, "wait", "--for=condition=Ready", "--timeout=30s", "ratelimittier/free", "ratelimittier/pro", "ratelimittier/enterprise")

	apply(t, fmt.Sprintf(tierManifest, "ten", 10), "apply", "-f", "-")
	everywhere("a new tier is in force", limit("ten", "10"))
	if got := askTogether(t, 2000, "tier=ten&user=u", replicas...); got[200] != 10 || got[429] != 1990 {
		t.Errorf("of 2,000 checks at once over two replicas: %v", got)
	}

	apply(t, fmt.Sprintf(tierManifest, "ten", 12), "apply", "-f", "-")
	everywhere("a changed tier is in force", limit("ten", "12"))

	kubectl(t, "delete", "ratelimittier", "ten")
	everywhere("a deleted tier falls back to the default tier", func(p *process) bool {
		r := p.ask("tier=ten&user=probe2")
		return r.header.Get("X-Tierlimit-Tier") == "free" && r.header.Get("X-Tierlimit-Unknown-Tier") == "ten"
	})
	for _, p := range replicas {
		for line := range strings.Lines(p.log.String()) {
			if strings.Contains(line, `"level":"ERROR"`) && !strings.Contains(line, "there is no tier to apply") {
				t.Errorf("an error in the log: %s", line)
			}
		}
	}
}

// TestClusterKillSwitch engages and releases a tier's switch with kubectl, and lets one expire.
func TestClusterKillSwitch(t *testing.T) {
	server := redistest.Start(t)
	p := start(t, installed(t, server))
	apply(t, fmt.Sprintf(tierManifest, "free", 1), "apply", "-f", "-")
	eventually(t, "the tier is in force", func() bool { return p.ask("user=probe").status != 503 })
	p.ask("user=u")
	if got := p.ask("user=u").status; got != 429 {
		t.Fatalf("before the switch: %d", got)
	}
	kubectl(t, "patch", "rlt", "free", "--type=merge", "-p", `{"spec":{"killSwitch":{"engaged":true,"reason":"Redis migration"}}}`)
	eventually(t, "the switch is obeyed", func() bool { return p.ask("user=u").header.Get("X-Tierlimit-Enforcement") == "disabled" })
	server.Stop()
	if got := p.ask("user=u"); got.status != 200 || got.header.Get("X-RateLimit-Remaining") != "1" {
		t.Errorf("with Redis stopped: %v", got)
	}
	kubectl(t, "wait", "--for=condition=Enforcing=False", "--timeout=30s", "rlt/free")
	if got := kubectl(t, "get", "rlt", "free", "-o", `jsonpath={.status.conditions[?(@.type=="Enforcing")].message}`); !strings.Contains(got, "Redis migration") {
		t.Errorf("the condition does not give the reason: %s", got)
	}
	eventually(t, "an Event tells", func() bool {
		return strings.Contains(kubectl(t, "get", "events", "-n", "default", "-o", "wide"), "KillSwitchEngaged")
	})
	server.Restart()
	expiry := time.Now().Add(3 * time.Second).UTC().Format(time.RFC3339)
	kubectl(t, "patch", "rlt", "free", "--type=merge", "-p", `{"spec":{"killSwitch":{"expiresAt":"`+expiry+`"}}}`)
	eventually(t, "it expires by itself", func() bool { return p.ask("user=v").header.Get("X-Tierlimit-Enforcement") == "" })
	if at, _ := time.Parse(time.RFC3339, expiry); time.Now().Before(at) {
		t.Errorf("it expired before %s", expiry)
	}
	kubectl(t, "wait", "--for=condition=Enforcing", "--timeout=30s", "rlt/free")
}

// TestClusterOutage stops the API server under a running replica.
func TestClusterOutage(t *testing.T) {
	server := redistest.Start(t)
	p := start(t, installed(t, server))
	apply(t, fmt.Sprintf(tierManifest, "free", 3), "apply", "-f", "-")
	eventually(t, "the tier is in force", func() bool { return p.ask("user=probe").status != 503 })
	cluster.StopAPIServer(t)
	for range 20 {
		if got := p.ask("user=probe").header.Get("X-RateLimit-Limit"); got != "3" {
			t.Fatalf("without the API server the limit is %q", got)
		}
		if got := status(p.health + "/readyz"); got != 200 {
			t.Fatalf("without the API server /readyz answers %d", got)
		}
		time.Sleep(50 * time.Millisecond)
	}
	cluster.StartAPIServer(t)
	apply(t, fmt.Sprintf(tierManifest, "free", 4), "apply", "-f", "-")
	eventually(t, "a change after the outage is in force", func() bool { return p.ask("user=probe").header.Get("X-RateLimit-Limit") == "4" })
}

// TestClusterMetricsAreSecured asks for metrics as nobody, as somebody and as a reader.
func TestClusterMetricsAreSecured(t *testing.T) {
	server := redistest.Start(t)
	p := start(t, installed(t, server))
	kubectl(t, "create", "serviceaccount", "somebody", "-n", "default")
	kubectl(t, "create", "serviceaccount", "reader", "-n", "default")
	kubectl(t, "create", "clusterrolebinding", "reader", "--clusterrole=tierlimit-metrics-reader", "--serviceaccount=default:reader")
	get := func(token string) (int, string) {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // the server signs for itself
		defer client.CloseIdleConnections()
		request, _ := http.NewRequest(http.MethodGet, "https://"+p.metrics+"/metrics", nil)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(body)
	}
	token := func(name string) string {
		return strings.TrimSpace(kubectl(t, "create", "token", name, "-n", "default"))
	}
	if code, _ := get(""); code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", code)
	}
	if code, _ := get(token("somebody")); code != http.StatusForbidden {
		t.Errorf("without the right: %d", code)
	}
	if code, body := get(token("reader")); code != http.StatusOK || !strings.Contains(body, "tierlimit_tiers") {
		t.Errorf("as a reader: %d %.200s", code, body)
	}
}

// TestNoCluster says what is wrong when there is none.
func TestNoCluster(t *testing.T) {
	missing := t.TempDir() + "/config"
	p := launch(t, []string{"REDIS_URL=redis://127.0.0.1:1", "KUBECONFIG=" + missing, "HOME=" + t.TempDir()})
	if err := p.Wait(); err == nil {
		t.Error("it ran without a cluster")
	}
	if got := p.log.String(); !strings.Contains(got, "no access to a cluster") || strings.Count(strings.TrimSpace(got), "\n") != 0 {
		t.Errorf("printed:\n%s", got)
	}
}
