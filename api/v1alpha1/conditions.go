// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Types of the conditions in the status of a RateLimitTier.
const (
	// ConditionReady is True when the spec of observedGeneration is in force.
	ConditionReady = "Ready"
	// ConditionEnforcing is True when requests over the budget are rejected.
	ConditionEnforcing = "Enforcing"
)

// Reasons of the condition Ready.
const (
	// ReasonInForce (True): checks are answered by this spec.
	ReasonInForce = "InForce"
	// ReasonInvalid (False): the spec cannot be used; the last good one stays in force.
	ReasonInvalid = "Invalid"
)

// Reasons of the condition Enforcing.
const (
	// ReasonEnforcing (True): requests over the budget are rejected.
	ReasonEnforcing = "Enforcing"
	// ReasonKillSwitchExpired (True): the kill switch is engaged but has expired, so requests over
	// the budget are rejected.
	ReasonKillSwitchExpired = "KillSwitchExpired"
	// ReasonDryRun (False): mode is DryRun, requests over the budget are only counted.
	ReasonDryRun = "DryRun"
	// ReasonKillSwitchEngaged (False): this tier's kill switch lets every request pass.
	ReasonKillSwitchEngaged = "KillSwitchEngaged"
	// ReasonGloballyDisabled (False): RATE_LIMIT_DISABLED lets every request of every tier pass.
	ReasonGloballyDisabled = "GloballyDisabled"
	// ReasonNotInForce (False): the spec cannot be used and no earlier one is known, so checks
	// for this tier fall back to the default tier.
	ReasonNotInForce = "NotInForce"
)
