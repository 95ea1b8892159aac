// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// unquoted are names that YAML takes for something else unless they are quoted.
const unquoted = `
fullnameOverride: "null"
image: {repository: "1", tag: "30"}
imagePullSecrets: [{name: "123"}]
commonLabels: {team: "on"}
podLabels: {example.com/tier: "1e3"}
podAnnotations: {example.com/note: "null"}
nodeSelector: {example.com/pool: "0x1"}
priorityClassName: "true"
podSecurityContext: {seccompProfile: {type: Localhost, localhostProfile: "1"}}
serviceAccount: {name: "no", annotations: {example.com/role: "1_000"}}
service: {annotations: {example.com/note: "~"}}
tiers: {"123": {requests: {perDay: 1}}, "true": {requests: {perDay: 1}}, "1e3": {requests: {perDay: 1}}}
defaultTier: "123"
redis: {existingSecret: {name: "123", key: "1e3"}, tls: {existingSecret: "456", mountPath: "/1"}}
identity: {hashKey: {existingSecret: {name: "1.5", key: "true"}}}
metrics:
  readers: [{namespace: "123", name: "null"}]
  serviceMonitor: {enabled: true, interval: "30", labels: {release: "1"}}
tracing: {endpoint: "http://1"}
profiling: {enabled: true}
extraEnv: [{name: "A", value: "1"}]
`

// TestStringsStayStrings gives every name that may be a number, a boolean or nothing in YAML.
func TestStringsStayStrings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(unquoted), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, err := helm(t, "", "template", "123", chart, "-n", "1e3", "-f", file)
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	seen := map[string]bool{}
	for _, o := range objects(t, stdout) {
		walkStrings(t, o, "", seen)
	}
	for _, value := range []string{"123", "1e3", "null", "true", "no", "on", "~", "1_000", "0x1", "456", "30", "1:30"} {
		if !seen[value] {
			t.Errorf("%q is nowhere: the test would not notice it unquoted", value)
		}
	}
}

// walkStrings looks at the fields of an object that Kubernetes wants to be strings, and notes which there are.
func walkStrings(t *testing.T, value any, path string, seen map[string]bool) {
	t.Helper()
	switch value := value.(type) {
	case object:
		for key, next := range value {
			walkStrings(t, next, path+"."+key, seen)
		}
	case []any:
		for _, next := range value {
			walkStrings(t, next, path+"[]", seen)
		}
	case string:
		seen[value] = true
	default:
		for _, suffix := range []string{
			".name", ".namespace", ".key", ".secretName", ".serviceAccountName", ".priorityClassName", ".image", ".value",
			".mountPath", ".localhostProfile", ".interval", ".description",
		} {
			if strings.HasSuffix(path, suffix) {
				t.Errorf("%s is %v, no string", path, value)
			}
		}
		for _, field := range []string{".labels.", ".matchLabels.", ".annotations.", ".nodeSelector.", ".spec.selector."} {
			if strings.Contains(path, field) {
				t.Errorf("%s is %v, no string", path, value)
			}
		}
	}
}

// TestNames looks at the name of the objects of releases, and at what no name may change: the selectors.
func TestNames(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, release, override, want string
	}{
		"Release":   {"the usual one", release, "", "tierlimit"},
		"Contains":  {"twice the same says nothing", "my-tierlimit", "", "my-tierlimit"},
		"Other":     {"whose objects they are", "edge", "", "edge-tierlimit"},
		"Part":      {"a part of the name is not the name", "tier", "", "tier-tierlimit"},
		"Override":  {"as somebody wants it", release, "limiter", "limiter"},
		"Truncated": {"no name ends with a dash", strings.Repeat("a", 36) + "----tierlimit", "", strings.Repeat("a", 36)},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, err := helm(t, "", "template", tc.release, chart, "-f", valuesOf("existing-secret"), "--set", "fullnameOverride="+tc.override)
			if err != nil {
				t.Fatalf("%s: %v: %s", tc.reason, err, stderr)
			}
			want := object{"app.kubernetes.io/name": "tierlimit", "app.kubernetes.io/instance": tc.release}
			for kind, selector := range map[string][]string{
				"Deployment": {"spec", "selector", "matchLabels"}, "NetworkPolicy": {"spec", "podSelector", "matchLabels"}, "Service": {"spec", "selector"},
			} {
				got, _ := at(find(t, stdout, kind, tc.want), selector...).(object)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: selector of the %s: -want +got:\n%s", tc.reason, kind, diff)
				}
			}
		})
	}
}

// TestProfiler compares the role for profiles with the one for kustomize.
func TestProfiler(t *testing.T) {
	var want object
	if err := yaml.Unmarshal([]byte(read(t, "..", "config", "rbac", "profiler_role.yaml")), &want); err != nil {
		t.Fatal(err)
	}
	got := find(t, render(t, "-f", valuesOf("everything")), "ClusterRole", "limiter-profiler")
	if diff := cmp.Diff(want["rules"], got["rules"]); diff != "" {
		t.Errorf("-config +chart:\n%s", diff)
	}
	if manifests := render(t, "-f", valuesOf("existing-secret")); strings.Contains(manifests, "profiler") {
		t.Error("the role is there though there are no profiles")
	}
}

// TestSampleRatio gives it as Helm's flags do, which make a string of what has a point.
func TestSampleRatio(t *testing.T) {
	for _, ratio := range []string{"0", "1", "0.5", "1.0", "0.001"} {
		manifests := render(t, "-f", valuesOf("existing-secret"), "--set", "tracing.endpoint=http://collector:4318,tracing.sampleRatio="+ratio)
		if !strings.Contains(manifests, "name: OTEL_TRACES_SAMPLER_ARG\n            value: \""+ratio+"\"\n") {
			t.Errorf("%s is not in the environment", ratio)
		}
	}
}
