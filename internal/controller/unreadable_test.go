// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"time"
)

const readerRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: slices, namespace: default}
rules:
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: slices, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: slices}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: reader}
`

// TestReplicasUnknown takes the right to read EndpointSlices away and gives it back. Checks are answered
// by new tiers meanwhile, and Ready does not say more than is known.
func TestReplicasUnknown(t *testing.T) {
	kubeconfig := cluster.Kubeconfig(t, "admin", "system:masters")
	f, c := newFleet(t), newClient(t)
	f.patience, f.config.Impersonate.UserName = time.Second, "reader"
	a, b := f.start("a", false), f.start("b", false)
	f.endpoints(a, b)

	create(t, c, object("free"))
	eventually(t, "nobody knows which replicas there are", f.stands("free", "ReplicasUnknown -1/-1"))
	if got := readyMessage(t, c, "free"); !strings.Contains(got, "EndpointSlices of Service default/fleet cannot be read") || !strings.Contains(got, "config/rbac") {
		t.Errorf("the message does not say what to do: %s", got)
	}
	eventually(t, "both replicas answer by it", inTables([]*replica{{table: a.table}, {table: b.table}}, "free", "5 per 1m0s"))
	f.quiet()

	cluster.MustKubectl(t, kubeconfig, readerRole, "apply", "-f", "-")
	t.Cleanup(func() { cluster.MustKubectl(t, kubeconfig, readerRole, "delete", "--ignore-not-found", "-f", "-") })
	eventually(t, "they can be read", f.stands("free", "InForce 2/2"))
	f.quiet()
}

// TestAskingNeedsAPort has replicas without a port for probes.
func TestAskingNeedsAPort(t *testing.T) {
	f, c := newFleet(t), newClient(t)
	f.port = ""
	a, b := f.start("a", false), f.start("b", false)
	f.endpoints(a)
	create(t, c, object("free"))
	eventually(t, "one alone need not ask", f.stands("free", "InForce 1/1"))
	f.endpoints(a, b)
	eventually(t, "of two it is not known", f.stands("free", "ReplicaUnreachable 1/2"))
	if got := readyMessage(t, c, "free"); !strings.Contains(got, "b cannot be asked: set --health-probe-bind-address") {
		t.Errorf("the message does not say what to do: %s", got)
	}
}
