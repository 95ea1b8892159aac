// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package ingressnginx_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/tierlimit/tierlimit/internal/clustertest"
	"github.com/tierlimit/tierlimit/internal/ingressnginx"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
)

// committed are the files in config/ingress-nginx and what they have to hold.
var committed = map[string]func([]string) []byte{
	"configmap.yaml":   ingressnginx.ConfigMap,
	"annotations.yaml": ingressnginx.Annotations,
}

// TestCommitted compares the files with the generator.
func TestCommitted(t *testing.T) {
	for file, generate := range committed {
		path := filepath.Join(clustertest.Root(), "config", "ingress-nginx", file)
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(generate(webhookserver.ClientHeaders)), string(got)); diff != "" {
			name := strings.TrimSuffix(file, ".yaml")
			t.Errorf("run 'go run ./cmd/tierlimit ingress-nginx %s > config/ingress-nginx/%s' (-generated +committed):\n%s", name, file, diff)
		}
	}
}

// TestHeaders has the generator place headers that it does not know.
func TestHeaders(t *testing.T) {
	const admission, rejection = "X-Some-Header", "Retry-After-Something"
	cases := map[string]struct {
		reason   string
		header   string
		admitted bool
	}{
		"any":         {reason: "on every answer", header: admission, admitted: true},
		"Retry-After": {reason: "an admission has none, and the application's own stays", header: rejection, admitted: false},
	}
	for file, generate := range committed {
		var object struct {
			Data     map[string]string
			Metadata struct{ Annotations map[string]string }
		}
		if err := yaml.Unmarshal(generate([]string{admission, rejection}), &object); err != nil {
			t.Fatal(err)
		}
		snippets := object.Data
		if snippets == nil {
			snippets = map[string]string{
				"location-snippet": object.Metadata.Annotations["nginx.ingress.kubernetes.io/configuration-snippet"],
				"server-snippet":   object.Metadata.Annotations["nginx.ingress.kubernetes.io/server-snippet"],
			}
		}
		for name, tc := range cases {
			t.Run(file+"/"+name, func(t *testing.T) {
				sets := `more_set_headers "` + tc.header + `: $`
				if got := strings.Contains(snippets["location-snippet"], sets); got != tc.admitted {
					t.Errorf("%s: set on the application's answer: %t, want %t", tc.reason, got, tc.admitted)
				}
				if !strings.Contains(snippets["server-snippet"], sets) {
					t.Errorf("%s: not set on a rejection", tc.reason)
				}
			})
		}
	}
}

// TestPatch merges the files into objects of a real API server, by the commands that they name.
func TestPatch(t *testing.T) {
	cluster := clustertest.New(t)
	admin := cluster.Kubeconfig(t, "admin", "system:masters")
	kubectl := func(input string, args ...string) string {
		t.Helper()
		return cluster.MustKubectl(t, admin, input, args...)
	}
	kubectl(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ingress-nginx"}}`, "apply", "-f", "-")
	kubectl(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ingress-nginx-controller", "namespace": "ingress-nginx"},
		"data": {"proxy-body-size": "8m"}}`, "apply", "-f", "-")
	kubectl(`{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "chat", "namespace": "default",
		"annotations": {"nginx.ingress.kubernetes.io/auth-url": "http://tierlimit.tierlimit-system.svc.cluster.local/check/nginx?tier=free"}},
		"spec": {"defaultBackend": {"service": {"name": "chat", "port": {"number": 80}}}}}`, "apply", "-f", "-")

	cases := map[string]struct {
		reason  string
		args    []string
		already string // a key that stays
	}{
		"configmap.yaml": {
			reason:  "the other keys of the ConfigMap stay",
			args:    []string{"-n", "ingress-nginx", "patch", "configmap", "ingress-nginx-controller"},
			already: "proxy-body-size",
		},
		"annotations.yaml": {
			reason:  "the other annotations of the Ingress stay",
			args:    []string{"-n", "default", "patch", "ingress", "chat"},
			already: "nginx.ingress.kubernetes.io/auth-url",
		},
	}
	type object struct {
		Data     map[string]string
		Metadata struct{ Annotations map[string]string }
	}
	for file, tc := range cases {
		t.Run(file, func(t *testing.T) {
			var want, got object
			if err := yaml.Unmarshal(committed[file](webhookserver.ClientHeaders), &want); err != nil {
				t.Fatal(err)
			}
			output := kubectl("", append(tc.args, "--patch-file", "config/ingress-nginx/"+file, "-o", "yaml")...)
			if err := yaml.Unmarshal([]byte(output), &got); err != nil {
				t.Fatal(err)
			}
			for _, pair := range [][2]map[string]string{{want.Data, got.Data}, {want.Metadata.Annotations, got.Metadata.Annotations}} {
				for key, value := range pair[0] {
					if diff := cmp.Diff(value, pair[1][key]); diff != "" {
						t.Errorf("%s (-file +stored):\n%s", key, diff)
					}
				}
			}
			if got.Data[tc.already]+got.Metadata.Annotations[tc.already] == "" {
				t.Errorf("%s: %s is gone", tc.reason, tc.already)
			}
		})
	}
}
