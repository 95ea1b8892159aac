// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Types of the conditions in the status of a RateLimitTier.
const (
	// ConditionReady is True when every ready replica answers checks by the spec of
	// observedGeneration.
	ConditionReady = "Ready"
	// ConditionEnforcing is True when requests over the budget are rejected.
	ConditionEnforcing = "Enforcing"
)

// Reasons of the condition Ready.
const (
	// ReasonInForce (True): every replica answers checks by this spec.
	ReasonInForce = "InForce"
	// ReasonRollingOut (False): some replicas do not have this spec yet.
	ReasonRollingOut = "RollingOut"
	// ReasonReplicaUnreachable (False): a replica does not say whether it has this spec.
	ReasonReplicaUnreachable = "ReplicaUnreachable"
	// ReasonReplicasUnknown (Unknown): EndpointSlices cannot be read, so that nobody knows which
	// replicas there are.
	ReasonReplicasUnknown = "ReplicasUnknown"
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
	// ReasonGloballyDisabled (False): RATE_LIMIT_DISABLED lets every request of every tier pass, on
	// every replica or on some.
	ReasonGloballyDisabled = "GloballyDisabled"
	// ReasonNotInForce (False): the spec cannot be used and no earlier one is known, so checks
	// for this tier fall back to the default tier.
	ReasonNotInForce = "NotInForce"
)
