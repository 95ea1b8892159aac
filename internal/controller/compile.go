// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"time"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// Compile turns the spec of a RateLimitTier into the tier that checks are answered by. The API
// server's validation has refused bad specs already; the error is for one that was stored before a
// rule existed.
func Compile(object *v1alpha1.RateLimitTier) (*tier.Tier, error) {
	spec := object.Spec
	limits, err := compileLimits(spec.Requests)
	if err != nil {
		return nil, err
	}
	compiled := &tier.Tier{Name: object.Name, UID: string(object.UID), Generation: object.Generation, Limits: limits}
	switch spec.Mode {
	case v1alpha1.ModeEnforce, "":
	case v1alpha1.ModeDryRun:
		compiled.DryRun = true
	default:
		return nil, fmt.Errorf("spec.mode is %q: use %s or %s", spec.Mode, v1alpha1.ModeEnforce, v1alpha1.ModeDryRun)
	}
	switch spec.FailurePolicy {
	case v1alpha1.FailClosed, "":
	case v1alpha1.FailOpen:
		compiled.FailurePolicy = tier.FailOpen
	case v1alpha1.FailLocal:
		compiled.FailurePolicy = tier.FailLocal
	default:
		return nil, fmt.Errorf("spec.failurePolicy is %q: use %s, %s or %s",
			spec.FailurePolicy, v1alpha1.FailClosed, v1alpha1.FailLocal, v1alpha1.FailOpen)
	}
	if k := spec.KillSwitch; k != nil && k.Engaged != nil {
		compiled.KillSwitch.Engaged = *k.Engaged
		if k.ExpiresAt != nil {
			compiled.KillSwitch.ExpiresAt = k.ExpiresAt.Time
		}
	}
	return compiled, nil
}

func compileLimits(budget v1alpha1.RequestBudget) ([]limiter.Limit, error) {
	var limits []limiter.Limit
	for _, window := range []struct {
		field    string
		requests *int32
		length   time.Duration
	}{
		{"perMinute", budget.PerMinute, tier.Minute},
		{"perDay", budget.PerDay, tier.Day},
	} {
		if window.requests == nil {
			continue
		}
		if *window.requests < 0 {
			return nil, fmt.Errorf("spec.requests.%s is %d: use 0 or more", window.field, *window.requests)
		}
		limits = append(limits, limiter.Limit{Requests: int64(*window.requests), Window: window.length})
	}
	if len(limits) == 0 {
		return nil, errors.New("spec.requests is empty: set perMinute, perDay or both")
	}
	return limits, nil
}
