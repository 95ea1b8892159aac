// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/tierlimit/tierlimit/internal/clustertest"
)

var update = flag.Bool("update", false, "write the snapshots in testdata instead of comparing with them")

func TestLint(t *testing.T) {
	for _, shape := range shapes {
		stdout, stderr, err := helm(t, "", "lint", "--strict", chart, "-f", valuesOf(shape))
		if err != nil || strings.Contains(stdout, "[WARNING]") || strings.Contains(stderr, "fail") {
			t.Errorf("%s: %v\n%s%s", shape, err, stdout, stderr)
		}
	}
}

// TestSnapshots shows in a review what a change of the chart does. After a change that is meant:
//
//	go test ./charts -run Snapshots -update
func TestSnapshots(t *testing.T) {
	for _, shape := range shapes {
		t.Run(shape, func(t *testing.T) {
			got := snapshot(render(t, "-f", valuesOf(shape)))
			file := filepath.Join("testdata", shape+".yaml")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(read(t, file), got); diff != "" {
				t.Errorf("-snapshot +rendered; 'go test ./charts -run Snapshots -update' writes it anew:\n%s", diff)
			}
		})
	}
}

// snapshot leaves the alerts and the dashboard out: TestMonitoring compares them with their sources.
func snapshot(manifests string) string {
	parts := strings.Split(manifests, "\n---\n")
	parts = slices.DeleteFunc(parts, func(part string) bool {
		return strings.Contains(part, "templates/prometheusrule.yaml") || strings.Contains(part, "templates/dashboard.yaml")
	})
	return strings.Join(parts, "\n---\n")
}

// TestMonitoring compares with the manifests for kustomize.
func TestMonitoring(t *testing.T) {
	manifests := render(t, "-f", valuesOf("everything"))
	source := func(name string) (o object) {
		if err := yaml.Unmarshal([]byte(read(t, "..", "config", "prometheus", name)), &o); err != nil {
			t.Fatal(err)
		}
		return o
	}

	rule := find(t, manifests, "PrometheusRule", "limiter")
	want, err := yaml.Marshal(source("prometheusrule.yaml")["spec"])
	if err != nil {
		t.Fatal(err)
	}
	renamed := strings.ReplaceAll(string(want), "deployment/tierlimit", "deployment/limiter")
	if renamed == string(want) {
		t.Error("no alert names the Deployment any more: the template replaces nothing")
	}
	got, err := yaml.Marshal(rule["spec"])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(renamed, string(got)); diff != "" {
		t.Errorf("alerts: -config +chart:\n%s", diff)
	}

	monitor := find(t, manifests, "ServiceMonitor", "limiter")
	endpoints := monitor["spec"].(object)["endpoints"].([]any)
	if interval := at(endpoints[0], "interval"); interval != "15s" {
		t.Errorf("the interval is %v", interval)
	}
	delete(endpoints[0].(object), "interval")
	if diff := cmp.Diff(at(source("servicemonitor.yaml"), "spec", "endpoints"), any(endpoints)); diff != "" {
		t.Errorf("endpoints of the ServiceMonitor: -config +chart:\n%s", diff)
	}
	labels := at(find(t, manifests, "Service", "limiter-metrics"), "metadata", "labels").(object)
	for name, value := range at(monitor, "spec", "selector", "matchLabels").(object) {
		if labels[name] != value {
			t.Errorf("the ServiceMonitor selects by %s=%v, which the Service of the metrics does not have: %v", name, value, labels)
		}
	}
	for kind, o := range map[string]object{"ServiceMonitor": monitor, "PrometheusRule": rule} {
		if at(o, "metadata", "labels", "release") != "prometheus" {
			t.Errorf("the labels of values are not on the %s", kind)
		}
	}

	dashboard := find(t, manifests, "ConfigMap", "limiter-dashboard")
	if got, want := at(dashboard, "data", "tierlimit.json"), read(t, "..", "config", "prometheus", "dashboard.json"); got != strings.TrimSpace(want)+"\n" {
		t.Error("the dashboard is not that of config/prometheus")
	}
	if at(dashboard, "metadata", "labels", "grafana_dashboard") != "1" {
		t.Error("the sidecar of Grafana would not find the dashboard")
	}
}

// TestProgramTakesArguments lets the program itself read the arguments and the environment of each shape.
func TestProgramTakesArguments(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "tierlimit")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/tierlimit")
	build.Dir = clustertest.Root()
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, output)
	}
	run := func(t *testing.T, args []string, environment ...string) (int, string) {
		program := exec.CommandContext(t.Context(), binary, args...)
		program.Env = slices.Concat(environment, []string{"HOME=" + t.TempDir(), "KUBECONFIG=" + filepath.Join(t.TempDir(), "none"), "REDIS_URL=redis://127.0.0.1:1"})
		output, err := program.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Fatalf("it ends with %v: %s", err, output)
		}
		return exit.ExitCode(), string(output)
	}
	for _, shape := range shapes {
		name := release
		if shape == "everything" {
			name = "limiter"
		}
		deployment := find(t, render(t, "-f", valuesOf(shape)), "Deployment", name)
		args := arguments(t, deployment)
		var environment []string
		for _, variable := range at(container(t, deployment), "env").([]any) {
			if value, plain := at(variable, "value").(string); plain {
				environment = append(environment, at(variable, "name").(string)+"="+value)
			}
		}
		if code, output := run(t, args, environment...); code != 1 || !strings.Contains(output, "no access to a cluster") {
			t.Errorf("%s: %v: code %d, %s; it should get as far as looking for a cluster", shape, args, code, output)
		}
	}
	if code, output := run(t, []string{"--no-such-flag"}); code != 2 {
		t.Errorf("a wrong flag: code %d, %s; this test would not notice one", code, output)
	}
}

// container returns the one container of a Deployment.
func container(t *testing.T, deployment object) object {
	t.Helper()
	containers, _ := at(deployment, "spec", "template", "spec", "containers").([]any)
	if len(containers) != 1 {
		t.Fatalf("containers: %v", containers)
	}
	return containers[0].(object)
}

func arguments(t *testing.T, deployment object) []string {
	t.Helper()
	var result []string
	for _, arg := range at(container(t, deployment), "args").([]any) {
		result = append(result, arg.(string))
	}
	return result
}
