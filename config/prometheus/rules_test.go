// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prometheus_test runs Prometheus's own tests over the alerts.
package prometheus_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
		Rules []alert `json:"rules"`
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

// alert is as much of an alert as is looked at.
type alert struct {
	Alert       string            `json:"alert"`
	Annotations map[string]string `json:"annotations"`
}

// alerts returns all alerts.
func alerts(t *testing.T) []alert {
	t.Helper()
	var file ruleFile
	if err := yaml.Unmarshal(rules(t), &file); err != nil {
		t.Fatal(err)
	}
	var all []alert
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("there is no alert")
	}
	return all
}

func TestEveryAlertSaysWhatItIsAndWhatToDo(t *testing.T) {
	t.Parallel()
	for _, a := range alerts(t) {
		for _, name := range []string{"summary", "description"} {
			if a.Annotations[name] == "" {
				t.Errorf("alert %q has no annotation %q", a.Alert, name)
			}
		}
		if !strings.HasPrefix(a.Alert, "Tierlimit") {
			t.Errorf("alert %q: its name does not say whose it is", a.Alert)
		}
	}
}

// TestEveryAlertHasAPage compares the alerts with the pages that they lead to.
func TestEveryAlertHasAPage(t *testing.T) {
	t.Parallel()
	const folder = "../../docs/runbooks"
	pages, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	unread := map[string]bool{}
	for _, page := range pages {
		unread[page.Name()] = true
	}
	for _, a := range alerts(t) {
		name := a.Alert + ".md"
		if want := "https://github.com/tierlimit/tierlimit/blob/main/docs/runbooks/" + name; a.Annotations["runbook_url"] != want {
			t.Errorf("alert %s leads to %q, want %q", a.Alert, a.Annotations["runbook_url"], want)
		}
		page, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Errorf("alert %s: %v", a.Alert, err)
			continue
		}
		delete(unread, name)
		for _, part := range []string{"# " + a.Alert + "\n", "## What it means\n", "## Impact\n", "## Find the cause\n", "## What to do\n", "## When to leave it\n"} {
			if !strings.Contains(string(page), part) {
				t.Errorf("%s has no %q", name, part)
			}
		}
	}
	for name := range unread {
		t.Errorf("there is no alert for %s", name)
	}
}
