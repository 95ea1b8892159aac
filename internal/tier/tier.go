// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tier holds the tiers that are in force in this process: the meeting point of the write
// side, which publishes them, and the read side, which looks one up for every check.
package tier

import (
	"fmt"
	"strings"
	"time"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// The windows that a tier can limit.
const (
	Minute = time.Minute
	Day    = 24 * time.Hour
)

// Tier is one tier as the check endpoint needs it. It is immutable once published.
type Tier struct {
	// Name is the name of the RateLimitTier. Example: "free".
	Name string
	// UID and Generation are those of the RateLimitTier; "" and 0 if it comes from a file. What they
	// say is not what a tier does, so that another generation alone is no change.
	UID        string
	Generation int64
	// Limits are the limits of each user, at least one, the shortest window first.
	Limits []limiter.Limit
	// DryRun lets requests over the limits pass; they are only reported.
	DryRun bool
	// FailurePolicy is what a check answers when Redis cannot be asked.
	FailurePolicy FailurePolicy
	// KillSwitch stops all limiting of this tier.
	KillSwitch KillSwitch
}

// FailurePolicy says what a check answers when Redis cannot be asked. Of two the stricter is the
// smaller number.
type FailurePolicy int

const (
	// FailClosed answers 503.
	FailClosed FailurePolicy = iota
	// FailLocal enforces this replica's share of the budget in memory.
	FailLocal
	// FailOpen lets the request pass uncounted.
	FailOpen
)

// KillSwitch stops all limiting of a tier while it is engaged.
type KillSwitch struct {
	// Engaged is true when the switch has been engaged, expired or not.
	Engaged bool
	// ExpiresAt is when limiting comes back by itself; the zero time is never.
	ExpiresAt time.Time
}

// EngagedAt returns whether the switch stops limiting at a moment.
func (k KillSwitch) EngagedAt(now time.Time) bool {
	return k.Engaged && (k.ExpiresAt.IsZero() || now.Before(k.ExpiresAt))
}

// NextExpiry returns when a switch that is engaged now will expire, or the zero time if it is not or
// never will.
func (k KillSwitch) NextExpiry(now time.Time) time.Time {
	if !k.EngagedAt(now) {
		return time.Time{}
	}
	return k.ExpiresAt
}

// String describes the tier as it is in force now: "5 per 1m0s, 100 per 24h0m0s, dry run".
func (t *Tier) String() string { return t.describe(time.Now()) }

func (t *Tier) describe(now time.Time) string {
	var words []string
	for _, l := range t.Limits {
		words = append(words, fmt.Sprintf("%d per %v", l.Requests, l.Window))
	}
	if t.DryRun {
		words = append(words, "dry run")
	}
	switch t.FailurePolicy {
	case FailClosed: // the default
	case FailLocal:
		words = append(words, "fail local")
	case FailOpen:
		words = append(words, "fail open")
	}
	expiry := t.KillSwitch.ExpiresAt.UTC().Format(time.RFC3339)
	switch {
	case !t.KillSwitch.Engaged:
	case !t.KillSwitch.EngagedAt(now):
		words = append(words, "kill switch expired at "+expiry)
	case t.KillSwitch.ExpiresAt.IsZero():
		words = append(words, "KILL SWITCH ENGAGED: every request passes")
	default:
		words = append(words, "KILL SWITCH ENGAGED: every request passes until "+expiry)
	}
	return strings.Join(words, ", ")
}
