// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package charts_test renders the chart by the real Helm, and installs it into a real API server.
package charts_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

const (
	chart     = "tierlimit" // the folder of the chart, from here
	release   = "tierlimit"
	namespace = "tierlimit-system"
)

// shapes are the main ones: each has its values and its snapshot in testdata.
var shapes = []string{"existing-secret", "everything", "trial", "autoscaling-tls", "minimal"}

func valuesOf(shape string) string { return filepath.Join("testdata", shape+".values.yaml") }

// helm runs Helm with a configuration of its own, in this folder, and returns what it prints on both outputs.
func helm(t testing.TB, kubeconfig string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	directory := os.Getenv("TIERLIMIT_HELM")
	if directory == "" {
		t.Fatal("charts: TIERLIMIT_HELM is not set: run the tests with 'make test', or with TIERLIMIT_HELM=$(hack/setup-helm.sh)")
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(directory, "helm"), args...)
	home := t.TempDir()
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + kubeconfig}
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err = cmd.Run()
	return out.String(), problems.String(), err
}

// render returns the manifests of values, given as flags.
func render(t testing.TB, args ...string) string {
	t.Helper()
	stdout, stderr, err := helm(t, "", append([]string{"template", release, chart, "-n", namespace}, args...)...)
	if err != nil || stderr != "" {
		t.Fatalf("helm template %s: %v\n%s", strings.Join(args, " "), err, stderr)
	}
	return stdout
}

type object = map[string]any

// objects returns the objects of manifests.
func objects(t testing.TB, manifests string) []object {
	t.Helper()
	var result []object
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096)
	for {
		var next object
		switch err := decoder.Decode(&next); {
		case errors.Is(err, io.EOF):
			return result
		case err != nil:
			t.Fatalf("%v in\n%s", err, manifests)
		case next != nil:
			result = append(result, next)
		}
	}
}

// find returns the one object of a kind and name.
func find(t testing.TB, manifests, kind, name string) object {
	t.Helper()
	for _, o := range objects(t, manifests) {
		if o["kind"] == kind && at(o, "metadata", "name") == name {
			return o
		}
	}
	t.Fatalf("no %s %s in\n%s", kind, name, manifests)
	return nil
}

// at follows keys; nil if there is nothing.
func at(value any, keys ...string) any {
	for _, key := range keys {
		m, _ := value.(object)
		value = m[key]
	}
	return value
}

func read(t testing.TB, elements ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// withoutInstance leaves the label out that tells releases apart.
func withoutInstance(manifest string) string {
	lines := slices.DeleteFunc(strings.SplitAfter(manifest, "\n"), func(line string) bool {
		return strings.Contains(line, "app.kubernetes.io/instance:")
	})
	return strings.Join(lines, "")
}
