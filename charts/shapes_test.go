// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"
)

// remains is what an uninstall leaves: the kind, so that no tier is lost.
var remains = []string{"APIService//v1alpha1.tierlimit.dev", "CustomResourceDefinition//" + definition}

// TestShapes installs each shape for real, and takes it away again.
func TestShapes(t *testing.T) {
	l := newLab(t)
	stays := remains // the first brings the kind
	for _, shape := range shapes {
		t.Run(shape, func(t *testing.T) {
			l := l.at(t)
			before := l.inventory()
			l.helm("install", release, chart, "-f", valuesOf(shape))
			l.helm("upgrade", release, chart, "-f", valuesOf(shape), "--dry-run=server")
			l.admitPods()
			t.Run("what is stored is what the chart says", func(t *testing.T) {
				l := l.at(t)
				l.pipe(l.helm("get", "manifest", release), "diff", "--server-side", "--field-manager=reader", "--force-conflicts", "-f", "-")
			})
			switch shape {
			case "existing-secret":
				t.Run("rights", func(t *testing.T) { testRights(t, l) })
			case "everything":
				t.Run("metrics", func(t *testing.T) { testMetricsReader(t, l) })
				t.Run("admin", func(t *testing.T) { testQuotaRoles(t, l) })
			}
			l.helm("uninstall", release)
			want := slices.Clone(stays)
			if shape == "everything" { // which was told to keep the tiers
				want = append(want, "RateLimitTier//free", "RateLimitTier//gpt-4o", "RateLimitTier//pro", "RateLimitTier//trial")
			}
			if diff := cmp.Diff(want, l.added(before, l.inventory()), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("left behind: -want +got:\n%s", diff)
			}
			l.kubectl("delete", "rlt", "--all")
			stays = nil
		})
	}
}

// canI asks the API server what an account may do.
func (l *lab) canI(account, ask, want string) {
	l.t.Helper()
	args := append([]string{"auth", "can-i", "--as=system:serviceaccount:" + account}, strings.Fields(ask)...)
	output, _ := l.cluster.Kubectl(l.t, l.kubeconfig, "", args...) // "no" is exit code 1
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if got := lines[len(lines)-1]; got != want { // warnings come before it
		l.t.Errorf("%s: %s: got %q, want %q", account, ask, output, want)
	}
}

// testRights looks at the rules, which are those of config, and that they are bound.
func testRights(t *testing.T, l *lab) {
	l = l.at(t)
	for _, document := range strings.Split(strings.TrimPrefix(read(t, "..", "config", "rbac", "role.yaml"), "---\n"), "---\n") {
		var role object
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		kind := role["kind"].(string)
		var stored object
		if err := yaml.Unmarshal([]byte(l.kubectl("-n", namespace, "get", kind, release, "-o", "yaml")), &stored); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(role["rules"], stored["rules"]); diff != "" {
			t.Errorf("rules of the %s: -config +chart:\n%s", kind, diff)
		}
	}
	account := namespace + ":" + release
	for ask, want := range map[string]string{
		"watch ratelimittiers.tierlimit.dev":                                     "yes",
		"patch ratelimittiers.tierlimit.dev --subresource=status":                "yes",
		"create events.events.k8s.io --namespace=default":                        "yes",
		"create tokenreviews.authentication.k8s.io":                              "yes",
		"create subjectaccessreviews.authorization.k8s.io":                       "yes",
		"list endpointslices.discovery.k8s.io --namespace=" + namespace:          "yes",
		"list endpointslices.discovery.k8s.io --namespace=default":               "no",
		"patch ratelimittiers.tierlimit.dev":                                     "no",
		"delete ratelimittiers.tierlimit.dev":                                    "no",
		"get secrets --namespace=" + namespace:                                   "no",
		"list configmaps --namespace=" + namespace:                               "no",
		"get configmaps/extension-apiserver-authentication -n kube-system":       "yes",
		"get /admin/v1/quota":                                                    "no",
		"list pods --namespace=" + namespace:                                     "no",
		"get /metrics":                                                           "no",
		"update endpointslices.discovery.k8s.io --namespace=" + namespace:        "no",
		"update ratelimittiers.tierlimit.dev --subresource=status":               "no",
		"create rolebindings.rbac.authorization.k8s.io --namespace=" + namespace: "no",
	} {
		l.canI(account, ask, want)
	}
}

// testQuotaRoles looks at who may do what by the bindings of values.
func testQuotaRoles(t *testing.T, l *lab) {
	l = l.at(t)
	for ask, want := range map[string]string{
		"get /admin/v1/quota": "yes", "get /admin/v1/explain": "yes", "get /admin/v1/openapi.yaml": "yes",
		"delete /admin/v1/quota": "no", "put /admin/v1/grant": "no", "delete /admin/v1/grant": "no", "get /admin/v1/top": "no",
	} {
		l.canI("support:bot", ask, want)
	}
	for _, subject := range []struct{ as, ask, want string }{
		{"oncall@example.com", "put /admin/v1/grant", "yes"}, {"oncall@example.com", "delete /admin/v1/grant", "yes"}, {"oncall@example.com", "delete /admin/v1/quota", "yes"},
		{"oncall@example.com", "get /admin/v1/explain", "no"}, {"other@example.com", "get /admin/v1/quota", "no"}, {"other@example.com --as-group=support", "get /admin/v1/quota", "yes"},
	} {
		args := append([]string{"auth", "can-i"}, strings.Fields("--as="+subject.as+" "+subject.ask)...)
		output, _ := l.cluster.Kubectl(t, l.kubeconfig, "", args...) // "no" is exit code 1
		lines := strings.Split(strings.TrimSpace(output), "\n")
		if got := lines[len(lines)-1]; got != subject.want {
			t.Errorf("%s: %s: got %q, want %q", subject.as, subject.ask, output, subject.want)
		}
	}
}

// testMetricsReader looks at who may read /metrics.
func testMetricsReader(t *testing.T, l *lab) {
	l = l.at(t)
	l.canI("monitoring:prometheus", "get /metrics", "yes")
	l.canI("monitoring:prometheus", "list ratelimittiers.tierlimit.dev", "no")
	l.canI("monitoring:other", "get /metrics", "no")
	l.canI("monitoring:prometheus", "get /debug/pprof/heap", "no")
	l.kubectl("create", "clusterrolebinding", "profiles", "--clusterrole=limiter-profiler", "--serviceaccount=default:me")
	l.canI("default:me", "get /debug/pprof/heap", "yes")
	l.canI("default:me", "get /metrics", "no")
	l.kubectl("delete", "clusterrolebinding", "profiles")
}
