// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const (
	readyStatus = `{"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"True","reason":"InForce","message":"in force","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	switchedOff = `{"spec":{"killSwitch":{"engaged":true,"reason":"Redis migration"}}}`
)

// TestRelease goes through the life of a release as docs/helm.md describes it. The steps build on each other.
func TestRelease(t *testing.T) {
	l := newLab(t)
	before := l.inventory()
	previous := previousChart(t)
	values := []string{"-f", valuesOf("existing-secret")}

	l.helm(append([]string{"install", release, previous, "--set", "tiers.free.requests.perMinute=7,replicas=3"}, values...)...)
	l.expect("the previous chart", [3]string{"rlt/free", ".spec.requests.perMinute", "7"}, [3]string{"deployment/tierlimit", ".spec.replicas", "3"})
	l.kubectl("patch", "rlt", "free", "--subresource=status", "--type=merge", "-p", readyStatus)
	l.kubectl("patch", "rlt", "pro", "--type=merge", "-p", switchedOff)
	lives := func(reason string, uid string) {
		l.expect(reason,
			[3]string{"rlt/free", ".metadata.uid", uid},
			[3]string{"rlt/free", ".status.conditions[0].reason", "InForce"},
			[3]string{"rlt/pro", ".spec.killSwitch.reason", "Redis migration"},
			[3]string{"rlt/pro", ".spec.killSwitch.engaged", "true"})
	}
	uid := l.field("rlt/free", ".metadata.uid")

	upgradeDefinition := func() { // as documented
		l.pipe(l.helm("show", "crds", chart), "apply", "--server-side", "--force-conflicts", "-f", "-")
	}
	t.Run("upgrade", func(t *testing.T) {
		l := l.at(t)
		upgrade := append([]string{"upgrade", release, chart, "--set", "tiers.free.failurePolicy=FailLocal,tiers.pro.requests.perMinute=61"}, values...)
		if why := l.refuse(upgrade...); !strings.Contains(why, "failurePolicy") {
			t.Errorf("without the new definition the upgrade should fail because of the field that it lacks: %s", why)
		}
		l.expect("a refused upgrade changes no tier", [3]string{"rlt/free", ".spec.requests.perMinute", "7"})
		upgradeDefinition()
		lives("after the definition", uid)
		l.helm(upgrade...)
		lives("after the upgrade", uid)
		l.expect("the new values are in force",
			[3]string{"rlt/free", ".spec.failurePolicy", "FailLocal"}, [3]string{"rlt/free", ".spec.requests.perMinute", "5"},
			[3]string{"rlt/pro", ".spec.requests.perMinute", "61"}, [3]string{"deployment/tierlimit", ".spec.replicas", "2"})
		testDefinition(l)
	})
	t.Run("rollback", func(t *testing.T) {
		l := l.at(t)
		l.helm("rollback", release, "1")
		lives("after the rollback", uid)
		l.expect("the old values are back", [3]string{"rlt/free", ".spec.requests.perMinute", "7"},
			[3]string{"rlt/pro", ".spec.requests.perMinute", "60"}, [3]string{"deployment/tierlimit", ".spec.replicas", "3"})
		testDefinition(l) // it is not rolled back, so no field of a tier is lost
	})
	t.Run("uninstall", func(t *testing.T) {
		l := l.at(t)
		l.helm("uninstall", release)
		if diff := cmp.Diff(remains, l.added(before, l.inventory())); diff != "" {
			t.Errorf("left behind: -want +got:\n%s", diff)
		}
	})
}

// previousChart returns the chart of this repository as it might have been a version ago: its
// CustomResourceDefinition has no failurePolicy, and a field that is gone today.
func previousChart(t *testing.T) string {
	t.Helper()
	target := filepath.Join(t.TempDir(), chart)
	if err := os.CopyFS(target, os.DirFS(chart)); err != nil {
		t.Fatal(err)
	}
	change := func(file string, edit func(object)) {
		var content object
		if err := yaml.Unmarshal([]byte(read(t, target, file)), &content); err != nil {
			t.Fatal(err)
		}
		edit(content)
		changed, err := yaml.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(target, file), changed, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change("Chart.yaml", func(c object) { c["version"], c["appVersion"] = "0.0.9", "v0.0.9" })
	change("crds/tierlimit.dev_ratelimittiers.yaml", func(c object) {
		fields := specFields(c)
		delete(fields, "failurePolicy")
		fields["formerly"] = object{"type": "string"}
	})
	return target
}

// specFields returns the fields of the spec in a CustomResourceDefinition.
func specFields(definition object) object {
	version := at(definition, "spec", "versions").([]any)[0]
	return at(version, "schema", "openAPIV3Schema", "properties", "spec", "properties").(object)
}

// testDefinition compares the definition in the cluster with the one in the chart.
func testDefinition(l *lab) {
	l.t.Helper()
	var stored, committed object
	for source, into := range map[string]*object{
		l.kubectl("get", "crd", definition, "-o", "yaml"):             &stored,
		read(l.t, chart, "crds", "tierlimit.dev_ratelimittiers.yaml"): &committed,
	} {
		if err := yaml.Unmarshal([]byte(source), into); err != nil {
			l.t.Fatal(err)
		}
	}
	if diff := cmp.Diff(at(committed, "spec", "versions"), at(stored, "spec", "versions")); diff != "" {
		l.t.Errorf("the definition in the cluster: -chart +cluster:\n%s", diff)
	}
}

// TestKeptTiers uninstalls a release that was told to leave its tiers.
func TestKeptTiers(t *testing.T) {
	l := newLab(t)
	before := l.inventory()
	values := []string{"-f", valuesOf("existing-secret"), "--set", "tiersKeepOnUninstall=true"}
	tiers := []string{"RateLimitTier//enterprise", "RateLimitTier//free", "RateLimitTier//pro"}
	l.helm(append([]string{"install", release, chart}, values...)...)
	uid := l.field("rlt/free", ".metadata.uid")
	l.kubectl("patch", "rlt", "free", "--subresource=status", "--type=merge", "-p", readyStatus)

	l.helm("uninstall", release)
	if diff := cmp.Diff(slices.Concat(remains, tiers), l.added(before, l.inventory())); diff != "" {
		t.Errorf("left behind: -want +got:\n%s", diff)
	}
	l.helm(append([]string{"install", release, chart}, values...)...)
	l.expect("installed again, it adopts them", [3]string{"rlt/free", ".metadata.uid", uid}, [3]string{"rlt/free", ".status.conditions[0].reason", "InForce"})

	l.helm(append([]string{"upgrade", release, chart, "--set", "tiers.enterprise=null"}, values...)...)
	l.expect("a tier that is taken out stays too", [3]string{"rlt/enterprise", ".spec.requests.perMinute", "600"})
}

// TestByHand upgrades a release of which somebody has changed something by hand, in haste.
func TestByHand(t *testing.T) {
	l := newLab(t)
	values := []string{"-f", valuesOf("existing-secret")}
	upgrade := append([]string{"upgrade", release, chart}, values...)
	const disabled = `.spec.template.spec.containers[0].env[?(@.name=="RATE_LIMIT_DISABLED")].value`
	l.helm(append([]string{"install", release, chart}, values...)...)

	l.kubectl("-n", namespace, "set", "env", "deployment/tierlimit", "RATE_LIMIT_DISABLED=true")
	if why := l.refuse(upgrade...); !strings.Contains(why, "conflict") || !strings.Contains(why, "RATE_LIMIT_DISABLED") {
		t.Errorf("the message does not say that somebody has engaged the kill switch: %s", why)
	}
	l.expect("an upgrade does not undo a global kill switch", [3]string{"deployment/tierlimit", disabled, "true"})
	l.helm(append(upgrade, "--set", "killSwitch.engaged=true,killSwitch.reason=Redis migration")...)
	l.expect("it can be taken over by values", [3]string{"deployment/tierlimit", disabled, "true"},
		[3]string{"deployment/tierlimit", `.metadata.annotations.tierlimit\.dev/kill-switch-reason`, "Redis migration"})
	l.kubectl("-n", namespace, "set", "env", "deployment/tierlimit", "RATE_LIMIT_DISABLED=false")
	l.helm(upgrade...)
	l.expect("released", [3]string{"deployment/tierlimit", disabled, "false"},
		[3]string{"deployment/tierlimit", `.metadata.annotations.tierlimit\.dev/kill-switch-reason`, ""})

	l.helm(append(upgrade, "--set", "tiers.pro.killSwitch.engaged=false")...)
	l.kubectl("patch", "rlt", "pro", "--type=merge", "-p", switchedOff)
	if why := l.refuse(append(upgrade, "--set", "tiers.pro.killSwitch.engaged=false")...); !strings.Contains(why, ".spec.killSwitch.engaged") {
		t.Errorf("the message does not say that somebody has engaged the kill switch of a tier: %s", why)
	}
	l.expect("a kill switch that values speak of is not undone either", [3]string{"rlt/pro", ".spec.killSwitch.engaged", "true"})
	l.helm(append(upgrade, "--force-conflicts", "--set", "tiers.pro.killSwitch.engaged=false")...)
	l.expect("unless it is forced", [3]string{"rlt/pro", ".spec.killSwitch.engaged", "false"})

	l.kubectl("patch", "rlt", "pro", "--type=merge", "-p", `{"spec":{"killSwitch":null}}`)
	l.helm(upgrade...)

	l.kubectl("-n", namespace, "set", "env", "deployment/tierlimit", "RATE_LIMIT_DISABLED=true")
	l.kubectl("patch", "rlt", "pro", "--type=merge", "-p", switchedOff)
	l.helm(append(upgrade, "--server-side=false")...)
	l.expect("applied by the client, Helm undoes what its values speak of, and nothing else",
		[3]string{"deployment/tierlimit", disabled, "false"}, [3]string{"rlt/pro", ".spec.killSwitch.engaged", "true"})
}

// TestTurnAutoscalerOn looks at the number of replicas, which Helm then lets go of.
func TestTurnAutoscalerOn(t *testing.T) {
	l := newLab(t)
	l.helm("install", release, chart, "-f", valuesOf("existing-secret"), "--set", "replicas=4")
	l.kubectl("-n", namespace, "scale", "deployment/tierlimit", "--replicas=3")
	upgrade := []string{"upgrade", release, chart, "--reset-then-reuse-values"}
	if why := l.refuse(upgrade...); !strings.Contains(why, ".spec.replicas") {
		t.Errorf("the message does not say that somebody has scaled it: %s", why)
	}
	l.helm(append(upgrade, "--set", "replicas=null", "--set", "autoscaling.enabled=true")...)
	l.expect("it stays as somebody has scaled it; a field that nobody owns would be 1", [3]string{"deployment/tierlimit", ".spec.replicas", "3"},
		[3]string{"hpa/tierlimit", ".spec.minReplicas", "2"})
	l.helm(upgrade...)
	l.expect("and at the next upgrade", [3]string{"deployment/tierlimit", ".spec.replicas", "3"})
}
