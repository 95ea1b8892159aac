// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"net/http"
	"slices"

	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// quota is one window of a budget, as answers and metrics name it.
type quota struct {
	limiter.Limit
	upstream bool // of the cap of an upstream, not of the user
}

// name is the value of X-RateLimit-Window and of the metrics' label, "" for no window.
func (q quota) name() string {
	switch {
	case q.Window == tier.Minute && q.upstream:
		return "upstream-minute"
	case q.Window == tier.Day && q.upstream:
		return "upstream-day"
	case q.upstream && q.Window != 0:
		return "upstream-" + q.Window.String()
	}
	return q.unit()
}

// unit is what the limit is per, for people.
func (q quota) unit() string {
	switch q.Window {
	case tier.Minute:
		return "minute"
	case tier.Day:
		return "day"
	case 0:
		return ""
	}
	return q.Window.String()
}

// usage is what is left of a quota.
type usage struct {
	quota
	remaining int64
}

// quotas returns the windows of tiers.
func quotas(of []applied) []quota {
	all := make([]quota, 0, 4)
	for _, a := range of {
		for _, l := range a.limits {
			all = append(all, quota{Limit: l, upstream: a.upstream})
		}
	}
	return all
}

// untouched returns the same with all of each left.
func untouched(of []applied) []usage {
	var all []usage
	for _, q := range quotas(of) {
		all = append(all, usage{quota: q, remaining: q.Requests})
	}
	return all
}

// report adds to an admission what a tier that is only tried out said about the same request.
func (a *answer) report(tried answer) {
	switch tried.outcome { //nolint:exhaustive // of a failure there is nothing to report
	case outcomeDryRun:
		a.outcome, a.enforcement = tried.outcome, tried.enforcement
		a.quota, a.remaining = tried.quota, tried.remaining
	case outcomeAdmitted, outcomeGranted:
		if tried.remaining < a.remaining || tried.remaining == a.remaining && !tried.quota.upstream {
			a.quota, a.remaining = tried.quota, tried.remaining
		}
	}
	a.policy = append(a.policy, tried.policy...)
	a.usage = append(a.usage, tried.usage...)
}

// complete adds to an answer the tiers that had no say in it, because of a kill switch or as they are
// only tried out, and names the tier of the user. The user's windows go first.
func (a *answer) complete(all, inForce []applied) {
	for _, other := range all {
		if slices.ContainsFunc(a.policy, func(q quota) bool { return q.upstream == other.upstream }) || len(a.policy) == 0 {
			continue
		}
		a.policy = append(a.policy, quotas([]applied{other})...)
		off := !slices.ContainsFunc(inForce, func(b applied) bool { return b.upstream == other.upstream })
		if off && a.status == http.StatusOK && len(a.usage) > 0 {
			a.usage = append(a.usage, untouched([]applied{other})...)
		}
	}
	if len(inForce) < len(all) && a.status == http.StatusOK && a.enforcement == enforced {
		a.enforcement = disabled
	}
	a.tier = all[0].tier.Name
	slices.SortStableFunc(a.policy, func(x, y quota) int { return order(x.upstream, y.upstream) })
	slices.SortStableFunc(a.usage, func(x, y usage) int { return order(x.upstream, y.upstream) })
}

// order puts the user's windows before those of an upstream.
func order(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return 1
	}
	return -1
}
