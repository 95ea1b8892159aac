// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

const (
	// filledPoll is how often the table is looked at until it has been filled.
	filledPoll = 50 * time.Millisecond
	// maxTiersLogged bounds the line that says what is in force.
	maxTiersLogged = 20
)

// logInForce writes the one line that says what checks are answered by, as soon as the tiers have been
// loaded. Later changes of tiers have lines of their own.
func logInForce(ctx context.Context, o options, tiers *tier.Table, log logr.Logger) {
	if err := wait.PollUntilContextCancel(ctx, filledPoll, true, func(context.Context) (bool, error) {
		return tiers.Ready(), nil
	}); err != nil {
		return // the process ends
	}
	log.Info("in force", o.inForce(tiers, time.Now())...)
}

// inForce describes what checks are answered by at a moment, as names and values for the log. None of
// them is a secret.
func (o options) inForce(tiers *tier.Table, now time.Time) []any {
	all := tiers.All()
	defaultTier := o.defaultTier
	if tiers.Lookup(defaultTier) == nil {
		defaultTier += " (MISSING: checks without a tier of their own are answered with 503)"
	}
	described := make([]string, 0, maxTiersLogged+1)
	var engaged []string
	for i, t := range all {
		if i < maxTiersLogged {
			described = append(described, t.Name+": "+t.String())
		}
		if t.KillSwitch.EngagedAt(now) {
			engaged = append(engaged, t.Name)
		}
	}
	auth := "none"
	if u, err := url.Parse(o.identity.auth.URL); err == nil && u.Host != "" {
		auth = u.Scheme + "://" + u.Host
	}
	return []any{
		"version", version(),
		"tiersFrom", cmp.Or(o.tiersDir, "the cluster"),
		"tiers", andMore(described, len(all)),
		"defaultTier", defaultTier,
		"store", o.store(),
		"identity", o.identity.sources,
		"auth", auth,
		"killSwitch", o.engaged(engaged),
	}
}

// store describes where the log of requests is kept.
func (o options) store() string {
	if o.redisURL == "" {
		return "embedded: the memory of this process"
	}
	return "Redis " + limiter.Addresses(o.redisURL)
}

// engaged describes the kill switches, given the tiers whose own is engaged.
func (o options) engaged(names []string) string {
	switch {
	case o.disabled:
		return "ENGAGED FOR EVERY TIER by " + envDisabled + ": every request passes"
	case len(names) > 0:
		shown := names[:min(len(names), maxTiersLogged)]
		return "ENGAGED for " + strings.Join(andMore(shown, len(names)), ", ")
	}
	return "off"
}

// andMore adds how many of all are not shown.
func andMore(shown []string, all int) []string {
	if hidden := all - len(shown); hidden > 0 {
		return append(shown[:len(shown):len(shown)], fmt.Sprintf("and %d more", hidden))
	}
	return shown
}
