// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tierlimit/tierlimit/internal/admin"
	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/tier"
	users "github.com/tierlimit/tierlimit/internal/usage" // usage is what --help says
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// newUsage returns what remembers who makes how many requests, with its metrics registered.
func (o options) newUsage(tiers *tier.Table) *users.Usage {
	u := users.New(users.Options{Tiers: tiers, Disabled: o.disabled, Replica: o.pod, HashKey: []byte(o.identity.hashKey)})
	ctrlmetrics.Registry.MustRegister(u)
	return u
}

// adminUsage is what the admin API asks.
type adminUsage struct{ *users.Usage }

// Simulate implements admin.Usage.
func (u adminUsage) Simulate(ctx context.Context, logs admin.Logs, t *tier.Tier, limits []limiter.Limit) (adminapi.Simulation, error) {
	return u.Usage.Simulate(ctx, logs, t, limits)
}
