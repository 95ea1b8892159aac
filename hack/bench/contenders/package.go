// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package contenders

import (
	"context"
	"time"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// packaged is pkg/limiter as a program would use it.
type packaged struct {
	checks *limiter.SlidingWindow
}

func newPackage(_ context.Context, config Config) (Engine, error) {
	return newPackaged(config, limiter.Options{})
}

// newRemembering remembers rejections for as long as the binary does by default.
func newRemembering(_ context.Context, config Config) (Engine, error) {
	return newPackaged(config, limiter.Options{DenyMemory: 250 * time.Millisecond})
}

func newPackaged(config Config, options limiter.Options) (Engine, error) {
	client, err := limiter.NewClient(config.RedisURL)
	if err != nil {
		return nil, err
	}
	checks, err := limiter.NewSlidingWindow(client, options)
	return packaged{checks}, err
}

// Check is CheckAll for a user.
func (p packaged) Check(ctx context.Context, user string, limits []limiter.Limit) (Verdict, error) {
	d, err := p.checks.CheckAll(ctx, limiter.Subject{User: user}, limits...)
	return Verdict{Allowed: d.Allowed, Remaining: d.Remaining, RetryAfter: d.RetryAfter}, err
}
