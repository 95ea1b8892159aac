// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RateLimitTier is a named budget of requests. An Ingress refers to it
// by name (`/check?tier=free`), and every user of the tier has the whole
// budget to themselves. The platform team owns tiers, as it owns
// PriorityClasses: they are cluster-scoped, and a change holds for every
// replica within about a second, without touching anybody's usage.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=rlt
// +kubebuilder:printcolumn:name="Per Minute",type=integer,JSONPath=`.spec.requests.perMinute`
// +kubebuilder:printcolumn:name="Per Day",type=integer,JSONPath=`.spec.requests.perDay`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Kill Switch",type=boolean,JSONPath=`.spec.killSwitch.engaged`
// +kubebuilder:printcolumn:name="Enforcing",type=string,JSONPath=`.status.conditions[?(@.type=="Enforcing")].reason`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Up To Date",type=integer,JSONPath=`.status.updatedReplicas`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!has(self.metadata.name) || self.metadata.name.size() <= 63",message="a tier's name may have at most 63 characters, because it is a label of every metric: choose a shorter metadata.name"
type RateLimitTier struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata. metadata.name is what the
	// `tier` parameter of a check names; at most 63 characters.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the budget of each user of this tier and how it is applied.
	// +required
	Spec RateLimitTierSpec `json:"spec,omitzero"`

	// status says what is in force. It is written by the controller.
	// +optional
	Status RateLimitTierStatus `json:"status,omitzero"` //nolint:kubeapilinter // it is written through the subresource, a new object has none
}

// RateLimitTierSpec is the budget of each user of a tier and how it is
// applied.
type RateLimitTierSpec struct {
	// requests is how many requests one user may make. At least one of
	// perMinute and perDay is needed; with both, a request must fit into
	// both.
	// +required
	Requests RequestBudget `json:"requests,omitzero"`

	// mode says what happens to a request over the budget. Enforce rejects
	// it with status 429. DryRun lets it pass and only counts it in metrics
	// and marks the answer, so that a budget can be tried out on live
	// traffic. Absent means Enforce.
	// +default="Enforce"
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// failurePolicy says what a check answers when Redis cannot be asked.
	// FailClosed answers 503 (never 429), because unlimited spending is
	// worse than an outage. FailLocal has each replica enforce its share of
	// the budget in memory: each limit divided by the replicas it knows of,
	// rounded up. FailOpen lets the request pass uncounted. Absent means
	// FailClosed.
	// +default="FailClosed"
	// +optional
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`

	// killSwitch stops all limiting of this tier while it is engaged: every
	// check is allowed and Redis is not asked. Absent means not engaged.
	// +optional
	KillSwitch *KillSwitch `json:"killSwitch,omitempty"`
}

// RequestBudget is the number of requests that one user may make in each
// window. Windows slide: perMinute 5 means that no 60 seconds, wherever
// they begin, hold more than 5 admitted requests.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="has(self.perMinute) || has(self.perDay)",message="a tier needs a budget: set perMinute, perDay or both"
// +kubebuilder:validation:XValidation:rule="!has(self.perMinute) || !has(self.perDay) || self.perDay >= self.perMinute",message="perDay is below perMinute, so perMinute could never be used up: raise perDay or lower perMinute"
type RequestBudget struct {
	// perMinute is the number of requests in any 60 seconds, 0 to 1,000,000.
	// 0 admits nobody. Absent means that this window is not limited.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	PerMinute *int32 `json:"perMinute,omitempty"`

	// perDay is the number of requests in any 86,400 seconds (24 hours), 0
	// to 10,000,000 and not below perMinute. 0 admits nobody. Absent means
	// that this window is not limited. Redis keeps up to about 104 bytes for
	// each request of the last day.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000000
	// +optional
	PerDay *int32 `json:"perDay,omitempty"`
}

// Mode says what happens to a request over the budget.
//
// +kubebuilder:validation:Enum=Enforce;DryRun
type Mode string

const (
	// ModeEnforce rejects a request over the budget with status 429.
	ModeEnforce Mode = "Enforce"
	// ModeDryRun counts and reports a request over the budget, and lets it
	// pass.
	ModeDryRun Mode = "DryRun"
)

// FailurePolicy says what a check answers when Redis cannot be asked.
//
// +kubebuilder:validation:Enum=FailClosed;FailLocal;FailOpen
type FailurePolicy string

const (
	// FailClosed answers 503 while Redis cannot be asked.
	FailClosed FailurePolicy = "FailClosed"
	// FailLocal has each replica enforce its share of the budget in memory
	// while Redis cannot be asked.
	FailLocal FailurePolicy = "FailLocal"
	// FailOpen lets requests pass uncounted while Redis cannot be asked.
	FailOpen FailurePolicy = "FailOpen"
)

// KillSwitch stops all limiting of a tier while it is engaged.
//
// +kubebuilder:validation:XValidation:rule="!self.engaged || (has(self.reason) && self.reason.matches('\\\\S'))",message="an engaged kill switch needs a reason: say in killSwitch.reason why limiting is off"
type KillSwitch struct {
	// engaged is true to stop limiting now, false to limit again.
	// +required
	Engaged *bool `json:"engaged,omitempty"`

	// reason tells others why limiting is off, up to 256 characters. It is
	// required while engaged and shows in the Enforcing condition and in an
	// Event.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Reason string `json:"reason,omitempty"`

	// expiresAt is when limiting comes back by itself, to the second, as an
	// RFC 3339 time such as "2030-01-31T06:00:00Z". A switch whose time has
	// passed does nothing, engaged or not. Absent means that limiting stays
	// off until the switch is removed or engaged is set to false.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[2-9][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\\\\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$') && !format.datetime().validate(self).hasValue()",message="expiresAt is not an RFC 3339 time of this millennium: write it like \"2030-01-31T06:00:00Z\""
	// +optional
	// ---
	// Not format date-time: it lets values pass that no client can decode, such as one with a
	// lower-case t, and one such tier would keep every replica from reading all the others. Nor
	// the first years: clients cannot tell 0001-01-01T00:00:00Z from an absent time, which is never.
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
}

// RateLimitTierStatus says what is in force.
//
// +kubebuilder:validation:MinProperties=1
type RateLimitTierStatus struct {
	// conditions are Ready (every replica answers checks by the spec) and
	// Enforcing (requests over the budget are rejected; False, with the
	// reason, while they are not).
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the metadata.generation that the conditions
	// speak of.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ObservedGeneration *int64 `json:"observedGeneration,omitempty"`

	// replicas is the number of replicas of Tierlimit that are ready, 1 or
	// more. It follows a change of that number alone within some seconds.
	// Absent means that it is not known.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// updatedReplicas is how many of them answer checks by the spec of
	// observedGeneration, 0 to replicas. Absent means that it is not known.
	// +kubebuilder:validation:Minimum=0
	// +optional
	UpdatedReplicas *int32 `json:"updatedReplicas,omitempty"`
}

// RateLimitTierList is a list of RateLimitTiers.
//
// +kubebuilder:object:root=true
type RateLimitTierList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RateLimitTier `json:"items"`
}
