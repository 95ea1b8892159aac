// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tierlimit/tierlimit/internal/tier"
	users "github.com/tierlimit/tierlimit/internal/usage" // usage is what --help says
)

// newUsage returns what remembers who makes how many requests, with its metrics registered.
func (o options) newUsage(tiers *tier.Table) *users.Usage {
	u := users.New(users.Options{Tiers: tiers, Disabled: o.disabled, Replica: o.pod, HashKey: []byte(o.identity.hashKey)})
	ctrlmetrics.Registry.MustRegister(u)
	return u
}
