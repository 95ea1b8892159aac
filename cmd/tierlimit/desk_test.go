// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// plugin runs the binary as the plugin of kubectl, and returns all that it printed.
func plugin(t *testing.T, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Args[0] = "kubectl-tierlimit"
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "TZ=UTC")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	return output.String(), err
}

// TestQuotaDesk has two replicas in a cluster, and a support engineer with a client certificate who reaches them
// through the API server and a kubelet.
func TestQuotaDesk(t *testing.T) {
	admin := cluster.Kubeconfig(t, "admin", "system:masters")
	cluster.MustKubectl(t, admin, "", "apply", "-f", "config/rbac/quota_roles.yaml")
	cluster.MustKubectl(t, admin, `{"apiVersion":"tierlimit.dev/v1alpha1","kind":"RateLimitTier","metadata":{"name":"desk"},"spec":{"requests":{"perMinute":3}}}`, "apply", "-f", "-")
	cluster.MustKubectl(t, admin, "", "create", "namespace", "quota-desk")
	redis := redistest.Start(t)
	kubelet := cluster.StartKubelet(t)
	var replicas []*process
	for _, name := range []string{"tierlimit-a", "tierlimit-b"} {
		p := start(t, []string{"KUBECONFIG=" + admin, "REDIS_URL=" + redis.URL(), "POD_NAME=" + name})
		kubelet.Pod(t, "quota-desk", name, 8444, p.Admin, nil)
		replicas = append(replicas, p)
	}
	eventually(t, "the tier is in force", func() bool { return replicas[1].ask("tier=desk&user=probe").header.Get("X-RateLimit-Limit") == "3" })
	for i := range 5 {
		replicas[i%2].ask("tier=desk&user=8421")
	}
	support := cluster.Kubeconfig(t, "alice")
	desk := func(want string, args ...string) {
		t.Helper()
		output, err := plugin(t, support, append(args, "-n", "quota-desk")...)
		if failed := strings.HasPrefix(want, "!"); (err != nil) != failed || !strings.Contains(output, strings.TrimPrefix(want, "!")) {
			t.Errorf("%v: want %q: %v\n%s", args, want, err, output)
		}
	}
	desk("!create role tierlimit-pods --verb=get,list --resource=pods", "get", "8421")
	// The commands of docs/support.md.
	for _, command := range []string{
		"-n quota-desk create role tierlimit-pods --verb=get,list --resource=pods",
		"-n quota-desk create role tierlimit-port-forward --verb=get,create --resource=pods/portforward",
		"-n quota-desk create rolebinding support-pods --role=tierlimit-pods --user=alice",
		"-n quota-desk create rolebinding support-port-forward --role=tierlimit-port-forward --user=alice",
	} {
		cluster.MustKubectl(t, admin, "", strings.Fields(command)...)
	}
	desk("!kubectl create clusterrolebinding tierlimit-quota-get-alice --clusterrole=tierlimit-quota-get --user=alice", "get", "8421")
	for _, command := range []string{"get", "explain", "reset", "grant", "top", "watch", "simulate"} {
		cluster.MustKubectl(t, admin, "", "create", "clusterrolebinding", "alice-"+command, "--clusterrole=tierlimit-quota-"+command, "--user=alice")
	}
	eventually(t, "the right is known", func() bool {
		_, err := plugin(t, support, "get", "8421", "--tier", "desk", "-n", "quota-desk")
		return err == nil
	})
	desk("Blocked by the minute for", "get", "8421", "--tier", "desk")
	desk("429 Too Many Requests: the request would be rejected", "explain", "8421", "--tier", "desk")
	desk("as 2 replicas saw them", "top", "--tier", "desk")
	desk("<- rejected", "watch", "--count", "1", "--interval", "500ms", "--tier", "desk")
	desk("of 2 users would have been rejected", "simulate", "--tier", "desk", "--per-minute", "1")
	desk("Granted 2 extra requests to user 8421", "grant", "8421", "--tier", "desk", "--requests", "2", "--for", "1h", "--yes")
	eventually(t, "the grant is known", func() bool { return replicas[1].ask("tier=desk&user=8421").status == 200 })
	desk("Granted: 2 extra requests, 1 used, 1 left", "get", "8421", "--tier", "desk")
	desk("Took the grant of user 8421 back, with 1 of 2 requests left.", "revoke", "8421", "--tier", "desk", "--yes")
	desk("Cleared the minute (3 requests)", "reset", "8421", "--tier", "desk", "--yes")
	eventually(t, "the reset is known", func() bool { return replicas[0].ask("tier=desk&user=8421").status == 200 })
	eventually(t, "the changes are Events", func() bool {
		events := cluster.MustKubectl(t, admin, "", "get", "events", "-A", "--field-selector", "involvedObject.kind=RateLimitTier")
		return strings.Contains(events, "QuotaGranted") && strings.Contains(events, "GrantRevoked") && strings.Contains(events, "QuotaReset") && strings.Contains(events, "alice")
	})
}
