// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prometheus_test runs Prometheus's own tests over the alerts.
package prometheus_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

// prometheusRule is as much of the operator's kind as is looked at. The rules stay as they are.
type prometheusRule struct {
	Spec json.RawMessage `json:"spec"`
}

// ruleFile is as much of a Prometheus rules file as is looked at.
type ruleFile struct {
	Groups []struct {
		Rules []struct {
			Alert       string            `json:"alert"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

// rules returns the spec of the PrometheusRule, which is what a Prometheus rules file contains.
func rules(t *testing.T) []byte {
	t.Helper()
	content, err := os.ReadFile("prometheusrule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var object prometheusRule
	if err := yaml.Unmarshal(content, &object); err != nil {
		t.Fatal(err)
	}
	return object.Spec
}

func TestAlertsFireAndDoNotFire(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatalf("%v: install it with 'make setup' or your package manager (Debian: prometheus)", err)
	}
	tests, err := os.ReadFile("alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string][]byte{"rules.yaml": rules(t), "alerts_test.yaml": tests} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"check", "rules", "rules.yaml"},
		{"test", "rules", "alerts_test.yaml"},
	} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = dir
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, output)
		}
	}
}

func TestEveryAlertSaysWhatItIsAndWhatToDo(t *testing.T) {
	t.Parallel()
	var file ruleFile
	if err := yaml.Unmarshal(rules(t), &file); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			found++
			for _, name := range []string{"summary", "description"} {
				if rule.Annotations[name] == "" {
					t.Errorf("alert %q has no annotation %q", rule.Alert, name)
				}
			}
		}
	}
	if found == 0 {
		t.Error("there is no alert")
	}
}
