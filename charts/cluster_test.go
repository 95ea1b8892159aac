// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/clustertest"
)

// definition is the name of the CustomResourceDefinition.
const definition = "ratelimittiers.tierlimit.dev"

// lab is a cluster for releases of the chart, with a namespace that admits restricted Pods only, and
// without the CustomResourceDefinition: the chart has to bring it.
type lab struct {
	t          *testing.T
	cluster    *clustertest.Cluster
	kubeconfig string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	cluster := clustertest.New(t)
	l := &lab{t: t, cluster: cluster, kubeconfig: cluster.Kubeconfig(t, "admin", "system:masters")}
	l.forgetKind()
	l.kubectl("apply", "-f", "config/manager/namespace.yaml", "-f", "charts/testdata/monitoring-crds.yaml")
	l.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd/servicemonitors.monitoring.coreos.com", "crd/prometheusrules.monitoring.coreos.com")
	return l
}

// at returns the lab for a subtest.
func (l *lab) at(t *testing.T) *lab {
	return &lab{t: t, cluster: l.cluster, kubeconfig: l.kubeconfig}
}

// forgetKind takes the CustomResourceDefinition away, and waits until the API server does not offer the
// kind any more.
func (l *lab) forgetKind() {
	l.t.Helper()
	l.kubectl("delete", "--wait=false", "crd", definition)
	for i := range 300 {
		if l.kubectl("get", "crd", definition, "--ignore-not-found") == "" &&
			strings.TrimSpace(l.kubectl("api-resources", "--cached=false", "--api-group=tierlimit.dev", "-o", "name")) == "" {
			return
		}
		if i%10 == 9 { // an API server that misses the deletion looks again only after five minutes, or at a change
			_, _ = l.cluster.Kubectl(l.t, l.kubeconfig, "", "annotate", "crd", definition, "--overwrite", "example.com/touched="+strconv.Itoa(i))
		}
		time.Sleep(100 * time.Millisecond)
	}
	l.t.Fatal("the API server goes on offering the kind that was deleted")
}

func (l *lab) kubectl(args ...string) string {
	l.t.Helper()
	return l.pipe("", args...)
}

// pipe is kubectl with an input.
func (l *lab) pipe(input string, args ...string) string {
	l.t.Helper()
	output := l.cluster.MustKubectl(l.t, l.kubeconfig, input, args...)
	if strings.Contains(output, "Warning") {
		l.t.Errorf("kubectl %v: %s", args, output)
	}
	return output
}

// helm runs a command that must succeed without a warning.
func (l *lab) helm(args ...string) string {
	l.t.Helper()
	stdout, stderr, err := helm(l.t, l.kubeconfig, append(args, "-n", namespace)...)
	if err != nil {
		l.t.Fatalf("helm %v: %v\n%s", args, err, stderr)
	}
	if strings.Contains(stderr, "WARN") || strings.Contains(stderr, "Warning") || strings.Contains(stdout, "Warning") {
		l.t.Errorf("helm %v: %s%s", args, stdout, stderr)
	}
	return stdout
}

// refuse runs a command that must fail, and returns why.
func (l *lab) refuse(args ...string) string {
	l.t.Helper()
	_, stderr, err := helm(l.t, l.kubeconfig, append(args, "-n", namespace)...)
	if err == nil {
		l.t.Fatalf("helm %v was not refused", args)
	}
	return stderr
}

// field returns a field of an object, by a JSONPath.
func (l *lab) field(object, path string) string {
	l.t.Helper()
	return l.kubectl("-n", namespace, "get", object, "-o", "jsonpath={"+path+"}")
}

// expect looks at fields: object, path and value.
func (l *lab) expect(reason string, fields ...[3]string) {
	l.t.Helper()
	for _, f := range fields {
		if got := l.field(f[0], f[1]); got != f[2] {
			l.t.Errorf("%s: %s of %s is %q, want %q", reason, f[1], f[0], got, f[2])
		}
	}
}

// inventory lists all objects of all kinds, but for what an API server writes by itself all the time.
func (l *lab) inventory() []string {
	l.t.Helper()
	kinds := strings.Fields(l.kubectl("api-resources", "--verbs=list", "--cached=false", "-o", "name"))
	kinds = slices.DeleteFunc(kinds, func(kind string) bool {
		return strings.HasPrefix(kind, "events") || kind == "leases.coordination.k8s.io" || kind == "endpoints" || kind == "componentstatuses"
	})
	output := l.kubectl("get", strings.Join(kinds, ","), "-A",
		"-o", `jsonpath={range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name}{"\n"}{end}`)
	lines := strings.Fields(output)
	slices.Sort(lines)
	return slices.Compact(lines)
}

// added returns what is in an inventory that was not in an earlier one, and fails if something is gone.
func (l *lab) added(before, after []string) []string {
	l.t.Helper()
	for _, o := range before {
		if !slices.Contains(after, o) {
			l.t.Errorf("%s is gone, which was there before", o)
		}
	}
	return slices.DeleteFunc(slices.Clone(after), func(o string) bool { return slices.Contains(before, o) })
}

// admitPods creates the Pods that the Deployments of the release describe, which no controller does here.
func (l *lab) admitPods() {
	l.t.Helper()
	var list struct{ Items []object }
	if err := json.Unmarshal([]byte(l.kubectl("-n", namespace, "get", "deployments", "-o", "json")), &list); err != nil {
		l.t.Fatal(err)
	}
	if len(list.Items) == 0 {
		l.t.Error("there is no Deployment")
	}
	for _, deployment := range list.Items {
		pod := at(deployment, "spec", "template").(object)
		pod["apiVersion"], pod["kind"] = "v1", "Pod"
		pod["metadata"].(object)["name"] = at(deployment, "metadata", "name")
		pod["metadata"].(object)["namespace"] = namespace
		create := func() (string, error) {
			manifest, err := json.Marshal(pod)
			if err != nil {
				l.t.Fatal(err)
			}
			return l.cluster.Kubectl(l.t, l.kubeconfig, string(manifest), "create", "--dry-run=server", "-f", "-")
		}
		if output, err := create(); err != nil || strings.Contains(output, "Warning") {
			l.t.Errorf("the Pod was refused: %v: %s", err, output)
		}
		pod["spec"].(object)["hostNetwork"] = true
		if output, err := create(); err == nil || !strings.Contains(output, "violates PodSecurity") {
			l.t.Errorf("a Pod in the host's network was not refused: %s", output)
		}
	}
}
