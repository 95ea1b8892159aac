// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config_test applies the manifests to a real API server.
package config_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/internal/clustertest"
)

const serviceAccount = "system:serviceaccount:tierlimit-system:tierlimit"

// TestManifests installs Tierlimit as the README says and looks at what the API server made of it.
// The steps build on each other.
func TestManifests(t *testing.T) {
	cluster := clustertest.New(t)
	admin := cluster.Kubeconfig(t, "admin", "system:masters")
	kubectl := func(t *testing.T, input string, args ...string) string {
		t.Helper()
		return cluster.MustKubectl(t, admin, input, args...)
	}
	// The cluster comes with the CustomResourceDefinition; config/default has to bring it.
	kubectl(t, "", "delete", "--wait", "crd", "ratelimittiers.tierlimit.dev")

	for _, step := range [][]string{
		{"apply", "-f", "config/manager/namespace.yaml"},
		{"apply", "-k", "config/default"},
		{"wait", "--for=condition=Established", "crd/ratelimittiers.tierlimit.dev", "--timeout=30s"},
		{"apply", "-k", "config/samples"},
	} {
		// A warning is about a deprecated field or a Pod that the namespace will refuse.
		if output := kubectl(t, "", step...); strings.Contains(output, "Warning") {
			t.Errorf("kubectl %v: %s", step, output)
		}
	}
	t.Run("what is stored is what the manifests say", func(t *testing.T) {
		for _, folder := range []string{"config/default", "config/samples"} {
			kubectl(t, "", "diff", "-k", folder) // fails on a difference, and shows it
		}
	})
	t.Run("the samples are there", func(t *testing.T) {
		if got, want := kubectl(t, "", "get", "rlt", "-o", "jsonpath={.items[*].metadata.name}"), "enterprise free pro"; got != want {
			t.Errorf("got tiers %q, want %q", got, want)
		}
	})
	t.Run("rights", func(t *testing.T) { testRights(t, cluster, admin) })
	t.Run("overlays", func(t *testing.T) { testOverlays(t, cluster, admin) })
	t.Run("restricted Pods", func(t *testing.T) { testRestrictedPods(t, cluster, admin) })
}

// testOverlays applies what is made of config/default. The kinds of the Prometheus Operator are not known
// here, and stood in for.
func testOverlays(t *testing.T, cluster *clustertest.Cluster, admin string) {
	cluster.MustKubectl(t, admin, "", "apply", "-f", "charts/testdata/monitoring-crds.yaml")
	cluster.MustKubectl(t, admin, "", "wait", "--for=condition=Established", "--timeout=60s",
		"crd/servicemonitors.monitoring.coreos.com", "crd/prometheusrules.monitoring.coreos.com")
	for _, folder := range []string{"config/trial", "config/prometheus", "config/with-prometheus"} {
		if output := cluster.MustKubectl(t, admin, "", "apply", "--validate=strict", "-k", folder); strings.Contains(output, "Warning") {
			t.Errorf("%s: %s", folder, output)
		}
		cluster.MustKubectl(t, admin, "", "diff", "-k", folder)
	}
	for _, c := range []struct{ object, path, want string }{
		{"secret/tierlimit-redis", ".data.url", base64.StdEncoding.EncodeToString([]byte("redis://tierlimit-trial-redis:6379"))},
		{"service/tierlimit-trial-redis", ".spec.ports[0].port", "6379"},
		{"configmap/tierlimit-dashboard", ".metadata.labels.grafana_dashboard", "1"},
		{"networkpolicy/tierlimit", ".spec.policyTypes", `["Ingress","Egress"]`},
		{"prometheusrule/tierlimit", ".spec.groups[0].name", "tierlimit"},
	} {
		if got := cluster.MustKubectl(t, admin, "", "-n", "tierlimit-system", "get", c.object, "-o", "jsonpath={"+c.path+"}"); got != c.want {
			t.Errorf("%s of %s is %q, want %q", c.path, c.object, got, c.want)
		}
	}
}

// testRights asks the API server what the service account may do.
func testRights(t *testing.T, cluster *clustertest.Cluster, admin string) {
	for _, c := range []struct{ ask, want string }{
		{"get ratelimittiers.tierlimit.dev", "yes"},
		{"list ratelimittiers.tierlimit.dev", "yes"},
		{"watch ratelimittiers.tierlimit.dev", "yes"},
		{"patch ratelimittiers.tierlimit.dev --subresource=status", "yes"},
		{"create events.events.k8s.io --namespace=default", "yes"}, // where Events of cluster-scoped objects are
		{"patch events.events.k8s.io --namespace=default", "yes"},
		{"create tokenreviews.authentication.k8s.io", "yes"},
		{"create subjectaccessreviews.authorization.k8s.io", "yes"},
		{"list endpointslices.discovery.k8s.io --namespace=tierlimit-system", "yes"},
		{"watch endpointslices.discovery.k8s.io --namespace=tierlimit-system", "yes"},

		{"list endpointslices.discovery.k8s.io --namespace=default", "no"},
		{"list endpointslices.discovery.k8s.io --all-namespaces", "no"},
		{"get endpointslices.discovery.k8s.io --namespace=tierlimit-system", "no"},
		{"update endpointslices.discovery.k8s.io --namespace=tierlimit-system", "no"},
		{"create ratelimittiers.tierlimit.dev", "no"},
		{"update ratelimittiers.tierlimit.dev", "no"},
		{"patch ratelimittiers.tierlimit.dev", "no"},
		{"delete ratelimittiers.tierlimit.dev", "no"},
		{"update ratelimittiers.tierlimit.dev --subresource=status", "no"},
		{"get secrets --namespace=tierlimit-system", "no"},
		{"list configmaps --namespace=tierlimit-system", "no"},
		{"get configmaps/extension-apiserver-authentication --namespace=kube-system", "yes"}, // the CA of client certificates
		{"get configmaps/kubeadm-config --namespace=kube-system", "no"},
		{"get /admin/v1/quota", "no"},
		{"put /admin/v1/grant", "no"},
		{"create leases.coordination.k8s.io --namespace=tierlimit-system", "no"},
		{"delete events.events.k8s.io --namespace=default", "no"},
		{"get /metrics", "no"}, // of the API server, or of Tierlimit itself
	} {
		args := append([]string{"auth", "can-i", "--as=" + serviceAccount}, strings.Fields(c.ask)...)
		output, _ := cluster.Kubectl(t, admin, "", args...) // "no" is exit code 1
		lines := strings.Split(strings.TrimSpace(output), "\n")
		if got := lines[len(lines)-1]; got != c.want { // warnings come before it
			t.Errorf("%s: got %q, want %q", c.ask, output, c.want)
		}
	}
}

// testRestrictedPods creates the Pods that the Deployments describe, which no controller does here,
// in their namespace, which admits restricted Pods only.
func testRestrictedPods(t *testing.T, cluster *clustertest.Cluster, admin string) {
	for _, deployment := range []string{"tierlimit", "tierlimit-trial-redis"} {
		testRestrictedPodOf(t, cluster, admin, deployment)
	}
}

func testRestrictedPodOf(t *testing.T, cluster *clustertest.Cluster, admin, deployment string) {
	output, err := cluster.Kubectl(t, admin, "", "-n", "tierlimit-system", "get", "deployment", deployment, "-o", "jsonpath={.spec.template}")
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	var pod struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       map[string]any `json:"spec"`
	}
	if err := json.Unmarshal([]byte(output), &pod); err != nil {
		t.Fatal(err)
	}
	pod.APIVersion, pod.Kind = "v1", "Pod"
	pod.Metadata["namespace"] = "tierlimit-system"

	create := func(name string) (string, error) {
		pod.Metadata["name"] = name
		manifest, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		return cluster.Kubectl(t, admin, string(manifest), "create", "-f", "-")
	}
	if output, err := create(deployment); err != nil {
		t.Errorf("the Pod of the Deployment was refused: %v: %s", err, output)
	}
	pod.Spec["hostNetwork"] = true
	if output, err := create(deployment + "-unrestricted"); err == nil || !strings.Contains(output, "violates PodSecurity") {
		t.Errorf("a Pod in the host's network was not refused: %s", output)
	}
}
