// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/tierlimit/tierlimit/internal/admin"
	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// newUsage returns what this replica has seen of its users.
func (o options) newUsage(replica) admin.Usage { return noUsage{pod: o.pod, since: time.Now()} }

// noUsage has seen nobody.
type noUsage struct {
	pod   string
	since time.Time
}

func (u noUsage) Top(by, _ string, _ int) adminapi.Top {
	return adminapi.Top{Replicas: []string{u.pod}, By: by}
}

func (u noUsage) Decisions() adminapi.Decisions {
	return adminapi.Decisions{Replicas: []string{u.pod}, Now: time.Now(), StartedAt: u.since}
}

func (noUsage) SeenAs(string, limiter.Kind) []adminapi.Seen { return nil }

func (u noUsage) Simulate(_ context.Context, _ admin.Logs, t *tier.Tier, _ []limiter.Limit) (adminapi.Simulation, error) {
	return adminapi.Simulation{Replicas: []string{u.pod}, Tier: adminapi.Tier{Name: t.Name, Mode: adminapi.ModeEnforce, FailurePolicy: "FailClosed"}, Now: time.Now(), Since: u.since, SampledOneIn: 1}, nil
}
