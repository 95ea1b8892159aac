// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/clustertest"
)

// traefikCluster is a cluster with Traefik's kinds.
type traefikCluster struct {
	*clustertest.Cluster
	admin string
}

// apply applies objects.
func (c traefikCluster) apply(t *testing.T, objects string) {
	t.Helper()
	c.MustKubectl(t, c.admin, objects, "apply", "--server-side", "--validate=strict", "-f", "-")
}

// applyExample applies a file of examples with other texts.
func (c traefikCluster) applyExample(t *testing.T, path string, replacements ...string) {
	t.Helper()
	content, err := os.ReadFile(adapted(t, path, replacements...))
	if err != nil {
		t.Fatal(err)
	}
	c.apply(t, string(content))
}

// external makes a Service lead out of the cluster to an address of this machine. Traefik follows
// such a Service only if it is told to. That is not in the recipe; here, no Pods run.
func (c traefikCluster) external(t *testing.T, namespace, name, address string) {
	t.Helper()
	c.apply(t, fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {namespace: %s, name: %s},"+
		" spec: {type: ExternalName, externalName: localhost, ports: [{port: %s}]}}", namespace, name, port(t, address)))
}

// TestTraefikKubernetes runs the Kubernetes form of the recipe, read by Traefik from an API server.
func TestTraefikKubernetes(t *testing.T) {
	cluster := clustertest.New(t)
	c := traefikCluster{Cluster: cluster, admin: cluster.Kubeconfig(t, "admin", "system:masters")}
	definitions, err := os.ReadFile(built(t, "traefik-crds.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c.apply(t, string(definitions))
	c.apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: tierlimit-system}}")
	for name, run := range map[string]func(*testing.T, string, string) string{
		"Simple": c.startSimple, "Bounded": c.startBounded,
	} {
		t.Run(name, func(t *testing.T) {
			g := guard(t, recipe{run: run})
			for name, test := range map[string]func(*testing.T, *guarded){
				"Admitted": testAdmitted, "Rejected": testRejected, "Routes": testRoutes, "Paths": testPaths} {
				t.Run(name, func(t *testing.T) {
					g.reset(t)
					test(t, g)
				})
			}
		})
	}
}

// port returns the port of an address.
func port(t *testing.T, address string) string {
	t.Helper()
	_, p, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// startSimple runs examples/traefik/kubernetes.yaml.
func (c traefikCluster) startSimple(t *testing.T, check, application string) string {
	c.routes(t, check, application)
	return c.runTraefik(t, "")
}

// startBounded runs it with examples/traefik/bounded/kubernetes.yaml.
func (c traefikCluster) startBounded(t *testing.T, check, application string) string {
	internal := FreeAddress(t)
	c.routes(t, internal, application)
	c.applyExample(t, example(t, "traefik", "bounded", "kubernetes.yaml"), "port: 80", "port: "+port(t, check))
	c.external(t, "tierlimit-system", "tierlimit", check)
	return c.runTraefik(t, fmt.Sprintf("  tierlimit:\n    address: %s\n    forwardedHeaders:\n      trustedIPs: [127.0.0.1/32]\n", internal))
}

func (c traefikCluster) routes(t *testing.T, check, application string) {
	t.Helper()
	c.applyExample(t, example(t, "traefik", "kubernetes.yaml"),
		"tierlimit.tierlimit-system.svc.cluster.local", check, "port: 8080", "port: "+port(t, application))
	c.external(t, "default", "application", application)
}

// runTraefik runs Traefik with the Kubernetes provider and more entry points, and waits for its
// routes.
func (c traefikCluster) runTraefik(t *testing.T, entryPoints string) string {
	t.Helper()
	proxy := FreeAddress(t)
	static := filepath.Join(t.TempDir(), "traefik.yaml")
	content := fmt.Sprintf("global:\n  checkNewVersion: false\nentryPoints:\n  web:\n    address: %s\n%s"+
		"providers:\n  kubernetesCRD:\n    allowExternalNameServices: true\n", proxy, entryPoints)
	if err := os.WriteFile(static, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", c.admin)
	Run(t, built(t, "traefik"), []string{"--configFile=" + static}, proxy)
	g := &guarded{proxy: proxy}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if g.send(t, http.MethodGet, "/", nil).status == http.StatusOK {
			return proxy
		}
	}
	t.Fatalf("traefik has no routes after %s", patience)
	return ""
}
