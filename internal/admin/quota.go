// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// Bounds of the parameter last.
const (
	defaultLast = 5
	maxLast     = 100
)

// of returns whose budget a request is about, and the tier that applies to it.
func (h *Handler) of(c *call) (limiter.Subject, *tier.Tier, adminapi.Tier, error) {
	s, err := c.subject()
	if err != nil {
		return s, nil, adminapi.Tier{}, err
	}
	name := c.single["tier"]
	if s.Kind == limiter.KindUpstream {
		if name != "" && name != s.User {
			return s, nil, adminapi.Tier{}, refuse(http.StatusBadRequest, "Upstream %q is capped by the tier of its own name: leave the parameter \"tier\" out.", s.User)
		}
		name = s.User
	}
	if seen := h.seenWith(s); name == "" && seen != nil {
		return s, seen.tier, seen.shown, nil
	}
	t, shown, err := h.tier(name)
	if err == nil && s.Kind == limiter.KindUpstream && t.Name != s.User {
		err = refuse(http.StatusBadRequest, "There is no RateLimitTier %.70q to cap an upstream of that name: create it, or correct the parameter \"user\". No default tier stands in for a cap.", s.User)
	}
	return s, t, shown, err
}

// seenTier is the tier that was lately applied to a subject.
type seenTier struct {
	tier  *tier.Tier
	shown adminapi.Tier
}

// seenWith returns the tier that this replica has lately applied to a subject: which one the user has is known
// to the route and to whoever identifies the user, not here. It is nil if there was none, or more than one.
func (h *Handler) seenWith(s limiter.Subject) *seenTier {
	var names []string
	for _, seen := range h.Usage.SeenAs(s.User) {
		if seen.Subject == shown(s) {
			names = append(names, seen.Tier)
		}
	}
	if len(names) != 1 {
		return nil
	}
	t, shown, err := h.tier(names[0])
	if err != nil || t.Name != names[0] { // it is gone
		return nil
	}
	shown.Seen = true
	return &seenTier{t, shown}
}

// tier returns the tier that a check would apply.
func (h *Handler) tier(name string) (*tier.Tier, adminapi.Tier, error) {
	t, shown, err := h.Checks.Tier(name)
	var bad *webhookserver.BadTier
	switch {
	case errors.As(err, &bad):
		err = refuse(http.StatusBadRequest, "%s", sentence(err.Error()))
	case err != nil:
		err = refuse(http.StatusServiceUnavailable, "%s", sentence(err.Error()))
	}
	return t, shown, err
}

// quota says what is left of a budget.
func (h *Handler) quota(ctx context.Context, c *call) (any, error) {
	s, t, shownTier, err := h.of(c)
	if err != nil {
		return nil, err
	}
	last, err := c.number("last", defaultLast, 0, maxLast)
	if err != nil {
		return nil, err
	}
	state, err := h.Limiter.Inspect(ctx, s, int(last), t.Limits...)
	if err != nil {
		return nil, err
	}
	q := adminapi.Quota{Now: state.Now.UTC(), Subject: shown(s), AuditID: AuditID(h.HashKey, s), Tier: shownTier,
		Windows: make([]adminapi.Window, 0, len(state.Windows)), Grant: grantOf(state.Grant)}
	for _, w := range state.Windows {
		q.Windows = append(q.Windows, window(w))
	}
	block(&q)
	q.SeenAs = slices.DeleteFunc(h.Usage.SeenAs(s.User), func(seen adminapi.Seen) bool {
		return seen.Subject == q.Subject && seen.Tier == t.Name
	})
	return q, nil
}

// window is the state of a window in the terms of the API.
func window(w limiter.WindowState) adminapi.Window {
	shown := adminapi.Window{
		Limit:         adminapi.Limit{Window: windowName(w.Limit.Window), Requests: w.Limit.Requests},
		WindowSeconds: int64(w.Limit.Window / time.Second),
		Used:          w.Used,
		Remaining:     max(w.Limit.Requests-w.Used, 0),
		NextSlotAt:    moment(w.NextSlotAt),
		EmptyAt:       moment(w.EmptyAt),
		LastRequests:  make([]time.Time, 0, len(w.Last)),
	}
	for _, at := range w.Last {
		shown.LastRequests = append(shown.LastRequests, at.UTC())
	}
	return shown
}

// moment returns nil for the zero time.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func grantOf(g *limiter.Grant) *adminapi.Grant {
	if g == nil {
		return nil
	}
	return &adminapi.Grant{Requests: g.Requests, Used: g.Used, Remaining: max(g.Requests-g.Used, 0), ExpiresAt: g.ExpiresAt.UTC()}
}

// block says which window rejects, if one does: of several the one that does so longest, so that the two
// fields tell when the next request passes.
func block(q *adminapi.Quota) {
	if q.Tier.KillSwitch != nil || q.Tier.Mode != adminapi.ModeEnforce {
		return
	}
	granted := q.Grant != nil && q.Grant.Remaining > 0
	for _, w := range q.Windows {
		switch {
		case w.Remaining > 0 || granted && w.Requests > 0:
		case w.Requests == 0:
			q.BlockedBy, q.BlockedUntil = w.Window, nil
			return
		case q.BlockedUntil == nil || w.NextSlotAt != nil && w.NextSlotAt.After(*q.BlockedUntil):
			q.BlockedBy, q.BlockedUntil = w.Window, w.NextSlotAt
		}
	}
}

// reset clears logs.
func (h *Handler) reset(ctx context.Context, c *call) (any, error) {
	s, t, _, err := h.of(c)
	if err != nil {
		return nil, err
	}
	name, err := c.oneOf("window", "", adminapi.WindowMinute, adminapi.WindowDay)
	if err != nil {
		return nil, err
	}
	var windows []time.Duration
	for _, l := range t.Limits {
		if name == "" || windowName(l.Window) == name {
			windows = append(windows, l.Window)
		}
	}
	if len(windows) == 0 {
		return nil, refuse(http.StatusBadRequest, "The tier %s has no limit per %s: leave the parameter \"window\" out, or name the tier whose limit is meant.", t.Name, name)
	}
	used, err := h.Limiter.Reset(ctx, s, windows...)
	if err != nil {
		h.undecided(c, ReasonReset, s, t, err)
		return nil, err
	}
	result := adminapi.ResetResult{Subject: shown(s), AuditID: AuditID(h.HashKey, s), Tier: t.Name,
		Windows: make([]adminapi.Cleared, len(windows)), EverywhereAfterMilliseconds: h.DenyMemory.Milliseconds()}
	for i, w := range windows {
		result.Windows[i] = adminapi.Cleared{Window: windowName(w), Used: used[i]}
	}
	h.changed(ctx, c, Event{Tier: t, Reason: ReasonReset, Action: "Reset"}, s, "cleared "+listed(result.Windows), "of")
	return result, nil
}
