// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package adminapi holds what the admin API and its clients say to each other: paths, parameters and
// the JSON of the answers. docs/openapi.yaml documents the same for everybody else.
package adminapi

import "time"

// Paths. Each with its method is a verb of its own to the API server's authorization.
const (
	// PathQuota is GET for what is left of a user's budget and DELETE to clear it.
	PathQuota = "/admin/v1/quota"
	// PathExplain is GET for what a check would answer now, and why.
	PathExplain = "/admin/v1/explain"
	// PathGrant is PUT for a temporary allowance and DELETE to take it back.
	PathGrant = "/admin/v1/grant"
	// PathTop is GET for the heaviest users that this replica has seen.
	PathTop = "/admin/v1/top"
	// PathDecisions is GET for what this replica has decided since it started.
	PathDecisions = "/admin/v1/decisions"
	// PathSimulate is GET for what other limits would have done to the users that this replica has seen.
	PathSimulate = "/admin/v1/simulate"
	// PathOpenAPI is GET for the OpenAPI document.
	PathOpenAPI = "/admin/v1/openapi.yaml"
)

// Names of windows.
const (
	WindowMinute = "minute"
	WindowDay    = "day"
)

// Modes of a tier.
const (
	ModeEnforce = "Enforce"
	ModeDryRun  = "DryRun"
)

// Subject is whose budget is meant.
type Subject struct {
	// User is the caller's id. Example: "user_8421".
	User string `json:"user"`
	// Kind is what User is: "" for a user's id, "ip", "key", "anonymous" or "upstream".
	Kind string `json:"kind,omitempty"`
	// Tenant and Route are those of the check; "" is none.
	Tenant string `json:"tenant,omitempty"`
	Route  string `json:"route,omitempty"`
}

// Tier is a tier as it is applied.
type Tier struct {
	// Name is the tier's name.
	Name string `json:"name"`
	// Asked is the tier that was asked for, if the default tier stands in for it.
	Asked string `json:"asked,omitempty"`
	// Default is true when no tier was asked for and this is the default tier.
	Default bool `json:"default,omitempty"`
	// Seen is true when no tier was asked for and this is the one that the replica has lately applied to the
	// subject.
	Seen bool `json:"seen,omitempty"`
	// Limits are the tier's limits, the shortest window first.
	Limits []Limit `json:"limits"`
	// Mode is Enforce or DryRun.
	Mode string `json:"mode"`
	// FailurePolicy is FailClosed, FailLocal or FailOpen.
	FailurePolicy string `json:"failurePolicy"`
	// KillSwitch is set while a kill switch is engaged.
	KillSwitch *KillSwitch `json:"killSwitch,omitempty"`
}

// Limit is so many requests in a window.
type Limit struct {
	// Window is minute or day.
	Window string `json:"window"`
	// Requests is the number of requests admitted in the window.
	Requests int64 `json:"requests"`
}

// KillSwitch is one that is engaged.
type KillSwitch struct {
	// Global is true for RATE_LIMIT_DISABLED, which is no tier's own.
	Global bool `json:"global,omitempty"`
	// ExpiresAt is when limiting comes back by itself.
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
}

// Grant is a temporary allowance on top of a tier.
type Grant struct {
	// Requests is how many requests were granted, Used how many of them have been made.
	Requests int64 `json:"requests"`
	Used     int64 `json:"used"`
	// Remaining is Requests less Used.
	Remaining int64 `json:"remaining"`
	// ExpiresAt is when what is left of it lapses.
	ExpiresAt time.Time `json:"expiresAt"`
}

// Window is the state of one window of a subject.
type Window struct {
	Limit
	// WindowSeconds is the length of the window.
	WindowSeconds int64 `json:"windowSeconds"`
	// Used is how many requests count now; it is more than the limit after that was lowered.
	Used int64 `json:"used"`
	// Remaining is how many more the window admits now, without a grant.
	Remaining int64 `json:"remaining"`
	// NextSlotAt is when the window admits one more than now: for a full one when it has room again,
	// else when its oldest entry leaves. Absent for an empty window and for a limit of 0.
	NextSlotAt *time.Time `json:"nextSlotAt,omitempty"`
	// EmptyAt is when the newest entry leaves, if there are no more requests. Absent for an empty one.
	EmptyAt *time.Time `json:"emptyAt,omitempty"`
	// LastRequests are the times of the last requests that were charged to it, newest first.
	LastRequests []time.Time `json:"lastRequests"`
}

// Quota is what is left of a subject's budget.
type Quota struct {
	// Now is the time of Redis, which all times in it are to be compared with.
	Now time.Time `json:"now"`
	Subject
	// AuditID names the subject in Events and logs, where its own names do not appear.
	AuditID string `json:"auditID"`
	// Tier is the tier whose limits are shown.
	Tier Tier `json:"tier"`
	// Windows are the windows of the tier, the shortest first.
	Windows []Window `json:"windows"`
	// Grant is set if there is one.
	Grant *Grant `json:"grant,omitempty"`
	// BlockedBy is the window that rejects a request now, and BlockedUntil until when; absent if none
	// does. BlockedUntil is absent too when no wait would help.
	BlockedBy    string     `json:"blockedBy,omitempty"`
	BlockedUntil *time.Time `json:"blockedUntil,omitempty"`
	// SeenAs are the subjects and tiers that this replica has lately seen this user as, this one not
	// included: where else the same user may have used up a budget, or by which other tier the same one.
	SeenAs []Seen `json:"seenAs,omitempty"`
}

// Seen is a subject and the tier that was applied to it.
type Seen struct {
	Subject
	Tier string `json:"tier"`
}

// Explanation is what a check would answer now.
type Explanation struct {
	// Now is when it was asked for.
	Now time.Time `json:"now"`
	// Status is the status of the answer: 200, 400, 401, 403, 429 or 503.
	Status int `json:"status"`
	// Outcome is what the check would be counted as in tierlimit_checks_total.
	Outcome string `json:"outcome"`
	// Reasons say why, a sentence each, in the order in which they are decided.
	Reasons []string `json:"reasons"`
	// Identity is who would be charged, and how that was found; absent if it cannot be found.
	Identity *Identity `json:"identity,omitempty"`
	// Tier is the user's tier; absent if there is none to apply. Upstream is the cap of an upstream.
	Tier     *Tier `json:"tier,omitempty"`
	Upstream *Tier `json:"upstream,omitempty"`
	// Window, Limit and Remaining are what the answer's X-RateLimit headers would say.
	Window    string `json:"window,omitempty"`
	Limit     int64  `json:"limit"`
	Remaining int64  `json:"remaining"`
	// RetryAfterSeconds is the answer's Retry-After; 0 if it would have none.
	RetryAfterSeconds int64 `json:"retryAfterSeconds,omitempty"`
	// RetryAt is the end of the wait to the microsecond.
	RetryAt *time.Time `json:"retryAt,omitempty"`
	// Enforcement is the answer's X-Tierlimit-Enforcement; "" for a budget that is enforced.
	Enforcement string `json:"enforcement,omitempty"`
	// Grant is the grant that would admit the request, or admits more requests after it.
	Grant *Grant `json:"grant,omitempty"`
	// Headers are all headers of the answer.
	Headers map[string]string `json:"headers"`
}

// Identity is who would be charged.
type Identity struct {
	Subject
	// Source is how the caller was found: "parameter", "auth", or an identity source such as
	// "header:X-User", "authorization" or "address".
	Source string `json:"source"`
}

// ResetResult says what a reset has done.
type ResetResult struct {
	Subject
	AuditID string `json:"auditID"`
	// Tier is the tier that the Event is about.
	Tier string `json:"tier"`
	// Windows are the windows that were cleared, and how many requests each had counted.
	Windows []Cleared `json:"windows"`
	// EverywhereAfterMilliseconds is how long other replicas may still reject from memory.
	EverywhereAfterMilliseconds int64 `json:"everywhereAfterMilliseconds"`
}

// Cleared is a window that was cleared.
type Cleared struct {
	Window string `json:"window"`
	Used   int64  `json:"used"`
}

// GrantResult says what a grant, or taking it back, has done.
type GrantResult struct {
	Subject
	AuditID string `json:"auditID"`
	// Tier is the tier that the Event is about.
	Tier string `json:"tier"`
	// Grant is the grant now; absent after it was taken back.
	Grant *Grant `json:"grant,omitempty"`
	// Before is the grant that it replaced, or that was taken back, if there was one.
	Before *Grant `json:"before,omitempty"`
	// EverywhereAfterMilliseconds is how long other replicas may still reject from memory.
	EverywhereAfterMilliseconds int64 `json:"everywhereAfterMilliseconds"`
}

// Top is the heaviest users of one replica, or of several when merged.
type Top struct {
	// Replicas are the Pods that this is about.
	Replicas []string `json:"replicas"`
	// By is used or rejected.
	By string `json:"by"`
	// WindowSeconds is the time that it looks back over.
	WindowSeconds int64 `json:"windowSeconds"`
	// Users are the heaviest first.
	Users []TopUser `json:"users"`
}

// TopUser is one of the heaviest users.
type TopUser struct {
	Subject
	// Tier is the tier that was applied. A user of two tiers is there twice.
	Tier string `json:"tier"`
	// Used and Rejected are requests within the time. Each may be too high by its error at the most.
	Used          int64 `json:"used"`
	UsedError     int64 `json:"usedError,omitempty"`
	Rejected      int64 `json:"rejected"`
	RejectedError int64 `json:"rejectedError,omitempty"`
}

// Decisions is what one replica has decided since it started, or several when merged.
type Decisions struct {
	Replicas []string `json:"replicas"`
	// Now is the replica's time, StartedAt when it began to count.
	Now       time.Time `json:"now"`
	StartedAt time.Time `json:"startedAt"`
	// Tiers are the tiers in force, by name, and those that were applied since and are gone.
	Tiers []TierDecisions `json:"tiers"`
}

// TierDecisions is what was decided by one tier.
type TierDecisions struct {
	Tier string `json:"tier"`
	// Mode is Enforce or DryRun, "" for a tier that is gone.
	Mode string `json:"mode,omitempty"`
	// KillSwitch is set while a kill switch is engaged.
	KillSwitch *KillSwitch `json:"killSwitch,omitempty"`
	// Outcomes counts checks by the outcome of tierlimit_checks_total, since StartedAt.
	Outcomes map[string]int64 `json:"outcomes"`
	// Users are the tier's heaviest users in the last minute, most rejected first, then most used.
	Users []TopUser `json:"users"`
}

// Simulation is what other limits would have done to the users that one replica has seen in the last
// day, or several replicas when merged.
type Simulation struct {
	Replicas []string `json:"replicas"`
	// Tier is the tier, with its limits as they are.
	Tier Tier `json:"tier"`
	// Limits are those that are tried out: of the tier where no other was asked for.
	Limits []Limit `json:"limits"`
	// Now is when the logs were read; Since the start of what is known: a day ago, or when the replica
	// started; of several replicas the latest.
	Now   time.Time `json:"now"`
	Since time.Time `json:"since"`
	// KnownSeconds is how far back the logs reach: the longest window of the tier.
	KnownSeconds int64 `json:"knownSeconds"`
	// SampledOneIn is 1 when every user was looked at, else one in so many, evenly chosen.
	SampledOneIn int64 `json:"sampledOneIn"`
	// Users has one row for each user that was looked at.
	Users []SimulatedUser `json:"users"`
	// TooLong is how many users were left out because their logs are too long to be replayed.
	TooLong int64 `json:"tooLong,omitempty"`
}

// SimulatedUser is what other limits would have done to one user.
type SimulatedUser struct {
	// ID is a hash that is the same on every replica.
	ID string `json:"id"`
	// Requests is how many requests were replayed, Rejected how many of them would have been rejected.
	Requests int64 `json:"requests"`
	Rejected int64 `json:"rejected"`
	// RejectedNow is true when the user's next request would be rejected.
	RejectedNow bool `json:"rejectedNow,omitempty"`
}

// Problem is the answer to a request that failed (RFC 9457).
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says what failed, for which input, and what to do.
	Detail string `json:"detail"`
}
