// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"strings"
	"testing"
)

// notes returns what Helm prints for people.
func notes(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, err := helm(t, "", append([]string{"install", "--dry-run=client", release, chart, "-n", namespace, "-f", valuesOf("existing-secret")}, args...)...)
	if err != nil {
		t.Fatalf("helm install %v: %v\n%s", args, err, stderr)
	}
	_, text, found := strings.Cut(stdout, "\nNOTES:\n")
	if !found {
		t.Fatalf("no notes in\n%s", stdout)
	}
	return text
}

func TestNotes(t *testing.T) {
	const warning = "WARNING: "
	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   []string
		not    []string
	}{
		"Defaults": {
			reason: "what to do next, with the names of this release",
			want: []string{
				"nginx.ingress.kubernetes.io/auth-url: http://tierlimit.tierlimit-system.svc.cluster.local/check/nginx?tier=free",
				"kubectl -n tierlimit-system rollout status deployment/tierlimit",
				"kubectl wait rlt/free --for=condition=Ready",
				"kubectl get rlt",
				"reach Redis on port 6379",
				"gets a bare 403 without headers until the ConfigMap of ingress-nginx has been patched",
			},
			not: []string{warning, "IS NOT AMONG", "500"},
		},
		"OtherNames": {
			reason: "the host, the port and the tier of the annotation are those of the release",
			args:   []string{"--set", "fullnameOverride=limiter,service.port=8000,defaultTier=pro"},
			want:   []string{"http://limiter.tierlimit-system.svc.cluster.local:8000/check/nginx?tier=pro", "deployment/limiter"},
		},
		"KillSwitch": {
			reason: "nobody may overlook that nothing is limited",
			args:   []string{"--set", "killSwitch.engaged=true,killSwitch.reason=Redis migration"},
			want:   []string{"WARNING: THE KILL SWITCH IS ENGAGED. EVERY REQUEST OF EVERY TIER PASSES AND NOTHING IS COUNTED.\nReason: Redis migration\n", "\n  helm upgrade tierlimit charts/tierlimit -n tierlimit-system --reuse-values --set killSwitch.engaged=false\n"},
		},
		"KillSwitchOfATier": {
			reason: "the same for one tier",
			args:   []string{"--set", "tiers.pro.killSwitch.engaged=true,tiers.pro.killSwitch.reason=a campaign"},
			want:   []string{"WARNING: THE KILL SWITCH OF pro IS ENGAGED"},
		},
		"Released": {
			reason: "a reason that is left over is no kill switch",
			args:   []string{"--set", "killSwitch.reason=Redis migration,tiers.pro.killSwitch.engaged=false"},
			not:    []string{warning},
		},
		"Trial": {
			reason: "that Redis forgets",
			args:   []string{"--set", "redis.trial.enabled=true,redis.existingSecret.name="},
			want:   []string{"WARNING: THE REDIS OF THIS RELEASE IS FOR TRYING OUT ONLY."},
			not:    []string{"reach Redis on port"},
		},
		"NoDefaultTier": {
			reason: "checks would be answered with 503; it says so where it offers the tier",
			args:   []string{"--set", "tiers.free=null"},
			want:   []string{"here for the tier free:\nTHE DEFAULT TIER free IS NOT AMONG THE TIERS OF THIS RELEASE."},
			not:    []string{"rlt/free"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := notes(t, tc.args...)
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("%s: %q is not in\n%s", tc.reason, want, got)
				}
			}
			for _, not := range tc.not {
				if strings.Contains(got, not) {
					t.Errorf("%s: %q is in\n%s", tc.reason, not, got)
				}
			}
		})
	}
}
