// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/tierlimit/tierlimit/config/crd"
	"github.com/tierlimit/tierlimit/internal/clustertest"
)

const shown = `
apiVersion: tierlimit.dev/v1alpha1
kind: RateLimitTier
metadata:
  name: columns
spec:
  requests:
    perMinute: 5
    perDay: 100
  mode: DryRun
  killSwitch:
    engaged: true
    reason: Redis migration
`

const readyPatch = `{"status":{"observedGeneration":1,"replicas":3,"updatedReplicas":2,"conditions":[
{"type":"Ready","status":"False","reason":"RollingOut","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"},
{"type":"Enforcing","status":"False","reason":"KillSwitchEngaged","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`

func TestColumns(t *testing.T) {
	kubeconfig := cluster.Kubeconfig(t, "admin", "system:masters")
	kubectl := func(input string, args ...string) string {
		return cluster.MustKubectl(t, kubeconfig, input, args...)
	}
	kubectl(shown, "apply", "-f", "-")
	t.Cleanup(func() { kubectl("", "delete", "rlt", "columns") })
	kubectl("", "patch", "rlt", "columns", "--subresource=status", "--type=merge", "-p", readyPatch)

	for name, tc := range map[string]struct {
		reason string
		args   []string
		header string
		row    []string
	}{
		"Default": {
			reason: "what somebody looks for first",
			args:   []string{"get", "rlt"},
			header: "NAME PER MINUTE PER DAY MODE KILL SWITCH ENFORCING READY UP TO DATE REPLICAS AGE",
			row:    []string{"columns", "5", "100", "DryRun", "true", "KillSwitchEngaged", "False", "2", "3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			lines := strings.Split(strings.TrimSpace(kubectl("", tc.args...)), "\n")
			if len(lines) != 2 {
				t.Fatalf("%d lines, want a header and one tier:\n%s", len(lines), strings.Join(lines, "\n"))
			}
			if diff := cmp.Diff(tc.header, strings.Join(strings.Fields(lines[0]), " ")); diff != "" {
				t.Errorf("%s: header (-want +got):\n%s", tc.reason, diff)
			}
			row := strings.Fields(lines[1])
			if diff := cmp.Diff(tc.row, row[:len(row)-1]); diff != "" { // the last one is the age
				t.Errorf("%s: row (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestRefusalByKubectl shows what a person gets, whole.
func TestRefusalByKubectl(t *testing.T) {
	kubeconfig := cluster.Kubeconfig(t, "admin", "system:masters")
	for name, want := range map[string]string{
		"per-day-below-per-minute": `The RateLimitTier "t" is invalid: spec.requests: Invalid value: perDay is below perMinute, so perMinute could never be used up: raise perDay or lower perMinute`,
		"unknown-field-requests":   `strict decoding error: unknown field "spec.requests.perHour"`,
		"mode-unknown":             `spec.mode: Unsupported value: "Off": supported values: "Enforce", "DryRun"`,
	} {
		file := filepath.Join(clustertest.Root(), "api", "v1alpha1", "testdata", "invalid", name+".yaml")
		if output, err := cluster.Kubectl(t, kubeconfig, "", "apply", "--dry-run=server", "-f", file); err == nil || !strings.Contains(output, want) {
			t.Errorf("%s: kubectl apply ends with %v and prints %q, want a failure with %q", name, err, output, want)
		}
	}
}

func TestSamplesAreAccepted(t *testing.T) {
	kubeconfig := cluster.Kubeconfig(t, "admin", "system:masters")
	if output, err := cluster.Kubectl(t, kubeconfig, "", "apply", "--dry-run=server", "-k", filepath.Join("config", "samples")); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

// TestExplain asks for the manual of every field, as `kubectl explain` prints it.
func TestExplain(t *testing.T) {
	kubeconfig := cluster.Kubeconfig(t, "admin", "system:masters")
	for _, path := range fields("ratelimittier", definition(t).Properties, "spec") {
		output, err := cluster.Kubectl(t, kubeconfig, "", "explain", path)
		_, description, found := strings.Cut(output, "DESCRIPTION:\n")
		description, _, _ = strings.Cut(description, "\nFIELDS:")
		if err != nil || !found || strings.TrimSpace(strings.ReplaceAll(description, "<empty>", "")) == "" {
			t.Errorf("kubectl explain %s has no description (%v):\n%s", path, err, output)
		}
	}
}

func TestEveryFieldIsDescribed(t *testing.T) {
	schema := definition(t)
	if schema.Description == "" {
		t.Error("the kind has no description")
	}
	var check func(path string, properties map[string]apiextensionsv1.JSONSchemaProps)
	check = func(path string, properties map[string]apiextensionsv1.JSONSchemaProps) {
		for name, property := range properties {
			if property.Description == "" && path+name != ".metadata" {
				t.Errorf("%s%s has no description", path, name)
			}
			check(path+name+".", property.Properties)
			if property.Items != nil && property.Items.Schema != nil {
				check(path+name+"[].", property.Items.Schema.Properties)
			}
		}
	}
	check(".", schema.Properties)
}

// fields returns the paths of a property and of all below it.
func fields(path string, properties map[string]apiextensionsv1.JSONSchemaProps, name string) []string {
	path += "." + name
	paths := []string{path}
	property := properties[name]
	for child := range property.Properties {
		paths = append(paths, fields(path, property.Properties, child)...)
	}
	return paths
}

func definition(t *testing.T) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(crd.RateLimitTiers, &definition); err != nil {
		t.Fatal(err)
	}
	return definition.Spec.Versions[0].Schema.OpenAPIV3Schema
}
