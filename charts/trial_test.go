// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"sigs.k8s.io/yaml"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// TestTrialRedis gives the arguments of the Redis for trying out to a real one.
func TestTrialRedis(t *testing.T) {
	args := arguments(t, find(t, render(t, "-f", valuesOf("trial")), "Deployment", "tierlimit-trial-redis"))
	server := redistest.Start(t, args...)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	for name, want := range map[string]string{
		"maxmemory-policy": "noeviction", // an evicted log is a budget that begins anew
		"maxmemory":        "100663296",
		"save":             "",
		"appendonly":       "no",
		"protected-mode":   "no", // its clients come from other Pods
	} {
		got, err := client.ConfigGet(t.Context(), name).Result()
		if err != nil || got[name] != want {
			t.Errorf("%s is %q, want %q: %v", name, got[name], want, err)
		}
	}

	var kustomize object
	for _, o := range objects(t, read(t, "..", "config", "trial", "redis.yaml")) {
		if o["kind"] == "Deployment" {
			kustomize = o
		}
	}
	if diff := cmp.Diff(args, arguments(t, kustomize)); diff != "" {
		t.Errorf("arguments: -chart +config/trial:\n%s", diff)
	}
}

// TestParity compares the Pods of the chart and of config, which are written twice.
func TestParity(t *testing.T) {
	var config object
	if err := yaml.Unmarshal([]byte(read(t, "..", "config", "manager", "deployment.yaml")), &config); err != nil {
		t.Fatal(err)
	}
	chart := find(t, render(t, "-f", valuesOf("existing-secret")), "Deployment", release)
	for _, o := range []object{config, chart} {
		spec := at(o, "spec", "template", "spec").(object)
		container := spec["containers"].([]any)[0].(object)
		delete(container, "image")
		delete(container, "imagePullPolicy")
		delete(container, "args") // the chart passes what config leaves to the defaults
		for _, constraint := range spec["topologySpreadConstraints"].([]any) {
			delete(at(constraint, "labelSelector", "matchLabels").(object), "app.kubernetes.io/instance")
		}
	}
	for _, path := range [][]string{{"spec", "template", "spec"}, {"spec", "strategy"}, {"spec", "replicas"}} {
		if diff := cmp.Diff(at(config, path...), at(chart, path...)); diff != "" {
			t.Errorf("%v: -config +chart:\n%s", path, diff)
		}
	}

	var policy object
	if err := yaml.Unmarshal([]byte(read(t, "..", "config", "manager", "network_policy.yaml")), &policy); err != nil {
		t.Fatal(err)
	}
	rendered := render(t, "-f", valuesOf("existing-secret"))
	got, err := yaml.Marshal(find(t, rendered, "NetworkPolicy", release)["spec"])
	if err != nil {
		t.Fatal(err)
	}
	want, err := yaml.Marshal(policy["spec"])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), withoutInstance(string(got))); diff != "" {
		t.Errorf("NetworkPolicy: -config +chart:\n%s", diff)
	}
}
