// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// shortest is a limit to ask about for whoever only wants to know of a grant.
var shortest = limiter.Limit{Requests: 1, Window: tier.Minute}

// Bounds of the parameter limit.
const (
	defaultTop = 20
	maxTop     = 1000
)

const (
	// simulateWithin is the longest that a simulation may take: it reads the logs of up to every user.
	simulateWithin = 5 * time.Minute
	// sendWithin is for sending what it has found.
	sendWithin = 30 * time.Second
)

// top says who are the heaviest users.
func (h *Handler) top(_ context.Context, c *call) (any, error) {
	by, err := c.oneOf("by", "used", "rejected")
	if err != nil {
		return nil, err
	}
	limit, err := c.number("limit", defaultTop, 1, maxTop)
	if err != nil {
		return nil, err
	}
	name := c.single["tier"]
	if name != "" {
		if _, err := h.existing(name); err != nil {
			return nil, err
		}
	}
	found := h.Usage.Top(by, name, int(limit))
	found.Replicas, found.Users = list(found.Replicas), list(found.Users)
	return found, nil
}

// list returns an empty list for one that is nil, which JSON would write as null.
func list[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}

// decisions says what was decided.
func (h *Handler) decisions(context.Context, *call) (any, error) {
	found := h.Usage.Decisions()
	found.Replicas, found.Tiers = list(found.Replicas), list(found.Tiers)
	for i := range found.Tiers {
		t := &found.Tiers[i]
		t.Users = list(t.Users)
		if t.Outcomes == nil {
			t.Outcomes = map[string]int64{}
		}
	}
	return found, nil
}

// existing returns a tier by its name. Nothing stands in for one that does not exist: nobody has been seen
// with it.
func (h *Handler) existing(name string) (*tier.Tier, error) {
	t, shown, err := h.tier(name)
	if err == nil && shown.Asked != "" {
		err = refuse(http.StatusBadRequest, "There is no RateLimitTier %q: correct the parameter \"tier\". %s", name, h.inForce())
	}
	return t, err
}

// inForce says which tiers there are, or some of many.
func (h *Handler) inForce() string {
	const enough = 10
	var names []string
	for _, t := range h.Usage.Decisions().Tiers {
		if t.Mode != "" {
			names = append(names, t.Tier)
		}
	}
	switch {
	case len(names) == 0:
		return "There are no tiers."
	case len(names) > enough:
		return fmt.Sprintf("There are %d, such as %s.", len(names), strings.Join(names[:enough], ", "))
	}
	return "There are " + strings.Join(names, ", ") + "."
}

// simulate says what other limits would have done.
func (h *Handler) simulate(ctx context.Context, c *call) (any, error) {
	t, err := h.existing(c.single["tier"])
	if err != nil {
		return nil, err
	}
	limits, err := triedOut(c, t)
	if err != nil {
		return nil, err
	}
	select {
	case h.simulating <- struct{}{}:
		defer func() { <-h.simulating }()
	default:
		return nil, refuse(http.StatusServiceUnavailable, "This replica is busy with another simulation: try again when that is done, after %v at the most.", simulateWithin)
	}
	// Longer than other answers may take.
	_ = http.NewResponseController(c.writer).SetWriteDeadline(time.Now().Add(simulateWithin + sendWithin))
	ctx, cancel := context.WithTimeout(ctx, simulateWithin)
	defer cancel()
	stop := context.AfterFunc(h.Ending, cancel)
	defer stop()
	result, err := h.Usage.Simulate(ctx, h.Limiter, t, limits)
	switch {
	case err == nil:
		result.Replicas, result.Users = list(result.Replicas), list(result.Users)
		result.Tier.Limits, result.Limits = list(result.Tier.Limits), list(result.Limits)
		return result, nil
	case h.Ending.Err() != nil:
		return nil, refuse(http.StatusServiceUnavailable, "This replica is about to end: ask another.")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, refuse(http.StatusServiceUnavailable, "The simulation took longer than %v and was given up: Redis is slow, or too many users were seen.", simulateWithin)
	}
	return nil, err
}

// triedOut returns the limits of a tier with those that are asked for in place of its own.
func triedOut(c *call, t *tier.Tier) ([]limiter.Limit, error) {
	limits := slices.Clone(t.Limits)
	given := false
	for _, w := range []struct {
		parameter string
		window    time.Duration
	}{{"per-minute", tier.Minute}, {"per-day", tier.Day}} {
		if c.single[w.parameter] == "" {
			continue
		}
		given = true
		requests, err := c.number(w.parameter, 0, 0, limiter.MaxRequests)
		if err != nil {
			return nil, err
		}
		limits = slices.DeleteFunc(limits, func(l limiter.Limit) bool { return l.Window == w.window })
		limits = append(limits, limiter.Limit{Requests: requests, Window: w.window})
	}
	if !given {
		return nil, refuse(http.StatusBadRequest, `Give "per-minute", "per-day" or both: the limits to try out. One that is left out stays as it is.`)
	}
	slices.SortFunc(limits, func(a, b limiter.Limit) int { return cmp.Compare(a.Window, b.Window) })
	for i := 1; i < len(limits); i++ {
		if limits[i].Requests < limits[i-1].Requests {
			return nil, refuse(http.StatusBadRequest, "%d requests per %s are fewer than %d per %s, which could then never be used up: raise the one or lower the other.",
				limits[i].Requests, windowName(limits[i].Window), limits[i-1].Requests, windowName(limits[i-1].Window))
		}
	}
	return limits, nil
}
