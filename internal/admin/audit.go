// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// Event is a change that the Events of a tier tell of.
type Event struct {
	// Tier is the tier that was named, or the default tier.
	Tier *tier.Tier
	// Reason is ReasonReset, ReasonGranted or ReasonRevoked, and Action the verb of it.
	Reason, Action string
	// Note says who has done what to whom. Example: "alice@example.com granted 100 requests until
	// 2026-12-01T09:00:00Z to user 3f9a21c0d2e4b517".
	Note string
}

// Reasons of Events.
const (
	ReasonReset   = "QuotaReset"
	ReasonGranted = "QuotaGranted"
	ReasonRevoked = "GrantRevoked"
)

// auditLength is how much of the hash of a subject is shown, in bytes.
const auditLength = 8

// AuditID names a subject where its own names are not to appear: 16 hexadecimal digits, the same on every
// replica with the same key.
func AuditID(key []byte, s limiter.Subject) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%q %q %q %q", s.Kind, s.Tenant, s.Route, s.User) // quoted, so that no two subjects are written alike
	return hex.EncodeToString(mac.Sum(nil)[:auditLength])
}

// changed tells of a change, in the log and in an Event. What is the past of the verb and its object, and to
// what comes between it and the subject.
func (h *Handler) changed(ctx context.Context, c *call, e Event, s limiter.Subject, what, to string) {
	kind := string(s.Kind)
	if s.Kind == limiter.KindUser {
		kind = "user"
	}
	id := AuditID(h.HashKey, s)
	h.Log.Info(e.Reason, "by", c.who, "did", what, "kind", kind, "auditID", id, "tier", e.Tier.Name)
	e.Note = fmt.Sprintf("%s %s %s %s %s", c.who, what, to, kind, id)
	h.Event(ctx, e)
}

// undecided logs a change that may have been made: Redis was asked for it and did not say.
func (h *Handler) undecided(c *call, reason string, s limiter.Subject, t *tier.Tier, err error) {
	if errors.Is(err, limiter.ErrCircuitOpen) { // it was not even asked
		return
	}
	h.Log.Info(reason+" is not certain: Redis did not say whether it was done", "by", c.who, "auditID", AuditID(h.HashKey, s), "tier", t.Name)
}

// maxWho is the longest name of a caller that is logged, in bytes.
const maxWho = 253

// printable makes a name fit for a line.
func printable(who string) string {
	who = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, who)
	if len(who) > maxWho {
		who = strings.ToValidUTF8(who[:maxWho], "") + "..."
	}
	return who
}
