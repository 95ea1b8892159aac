// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhookserver answers checks over HTTP: may this user go on? A check is any request to
// one explicit path per form of answer; which proxy is asking is never guessed.
package webhookserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-logr/logr"

	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// The paths of a check.
const (
	// pathCheck answers 200, 400, 429 or 503.
	pathCheck = "/check"
	// pathNginx answers 200 or 403, because nginx's auth_request turns every other status but 401
	// into a 500. The true status is in X-Tierlimit-Status.
	pathNginx = "/check/nginx"
)

// Limiter decides on one request of a subject. It returns before the deadline it has for Redis; an
// error that wraps limiter.ErrReply means that Redis did answer, but not with a decision.
type Limiter interface {
	CheckAll(ctx context.Context, subject limiter.Subject, limits ...limiter.Limit) (limiter.Decision, error)
}

// Options configures a Handler.
type Options struct {
	// Tiers are the tiers in force.
	Tiers *tier.Table
	// Limiter decides.
	Limiter Limiter
	// DefaultTier is the name of the tier for a check that names none, or one that does not exist.
	DefaultTier string
	// Disabled is the global kill switch: every check is allowed, and the limiter is not asked.
	Disabled bool
	// Metrics count checks.
	Metrics *Metrics
	// Log is told when the limiter begins to fail and when it works again.
	Log logr.Logger
	// Draining returns whether the server is about to stop: every answer then asks the caller to
	// use another connection, so that none is closed under a request on its way. Nil is never.
	Draining func() bool
}

// Handler answers checks.
type Handler struct {
	Options
	outage  trouble // the limiter fails
	missing trouble // there is no tier to apply
	now     func() time.Time
}

// NewHandler returns a handler.
func NewHandler(options Options) *Handler {
	return &Handler{
		Options: options,
		outage: trouble{log: options.Log, now: time.Now,
			begins: "Redis does not decide; each tier's failurePolicy does",
			ends:   "Redis decides again"},
		missing: trouble{log: options.Log, now: time.Now,
			begins: "there is no tier to apply; checks are answered with 503",
			ends:   "there is a tier to apply again"},
		now: time.Now,
	}
}

// ServeHTTP answers one check. The method does not matter and the body is not read.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.Draining != nil && h.Draining() {
		w.Header().Set("Connection", "close")
	}
	path := r.URL.Path
	if r.URL.RawPath != "" { // "/check%2Fnginx" is not "/check/nginx"
		path = r.URL.RawPath
	}
	switch path {
	case pathCheck:
		h.serve(w, r, plainForm)
	case pathNginx:
		h.serve(w, r, nginxForm)
	default:
		http.Error(w, "not found: a check is a request to "+pathCheck+" or "+pathNginx, http.StatusNotFound)
	}
}

// form is how the answers of one path are sent: it adds the headers that only they have, and
// returns the status to send.
type form func(http.Header, answer) int

func plainForm(_ http.Header, a answer) int { return a.status }

func nginxForm(header http.Header, a answer) int {
	header[headerStatus] = []string{strconv.Itoa(a.status)}
	if a.status == http.StatusOK {
		return http.StatusOK
	}
	return http.StatusForbidden
}

// serve answers one check in a form.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, send form) {
	start := h.now()
	a := h.check(r)
	a.headers(w.Header())
	status := send(w.Header(), a)
	if r.ContentLength != 0 {
		// net/http reads what is left of a body before it sends the answer, so that the connection
		// can be used again. An error means that there is no connection to wait for.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	}
	if a.status == http.StatusOK {
		w.WriteHeader(status)
	} else {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_, _ = w.Write(a.body()) //nolint:gosec // G705: the body is JSON and says so; an error means that the caller has left
	}
	h.Metrics.checked(a, h.now().Sub(start))
}

// check decides on one request.
func (h *Handler) check(r *http.Request) answer {
	params, err := parseParameters(r.URL.RawQuery)
	if err != nil {
		return invalid(err)
	}
	t, unknown := h.lookup(params.tier)
	if unknown { // of names that exist the API server has said that they are valid
		if err := validateTierName(params.tier); err != nil {
			return invalid(err)
		}
	}
	a := h.apply(r, params, t)
	if unknown && t != nil {
		a.unknownTier = params.tier
		h.Metrics.unknownTier()
	}
	return a
}

// lookup returns the tier to apply, and whether it stands in for one that does not exist. Without
// a default tier it returns nil.
func (h *Handler) lookup(name string) (t *tier.Tier, unknown bool) {
	if name == "" {
		return h.Tiers.Lookup(h.DefaultTier), false
	}
	if t = h.Tiers.Lookup(name); t != nil {
		return t, false
	}
	return h.Tiers.Lookup(h.DefaultTier), true
}

// apply applies a tier to a request.
func (h *Handler) apply(r *http.Request, params parameters, t *tier.Tier) answer {
	switch {
	case h.Disabled:
		return unlimited(t)
	case t == nil:
		err := h.noTier(params.tier)
		h.missing.observe(err)
		return noTier(err)
	case t.KillSwitch.EngagedAt(h.now()):
		return unlimited(t)
	}
	h.missing.observe(nil)
	subject, err := identify(r, params)
	if err != nil {
		return invalid(err)
	}
	start := h.now()
	// Not with the request's own context: that ends when the caller stops sending, which may still
	// be waiting for the answer. The limiter has its deadline.
	decision, err := h.Limiter.CheckAll(context.WithoutCancel(r.Context()), subject, t.Limits...)
	h.Metrics.asked(h.now().Sub(start), err)
	h.outage.observe(err)
	switch {
	case errors.Is(err, limiter.ErrReply):
		return passed(t)
	case err != nil:
		return failure(t)
	}
	return answerTo(t, decision)
}

// noTier says which tier to create.
func (h *Handler) noTier(asked string) error {
	switch {
	case !h.Tiers.Ready():
		return errors.New("the tiers have not been loaded yet; retry later")
	case asked == "" || asked == h.DefaultTier:
		return fmt.Errorf("there is no RateLimitTier %q, which is the default tier: create it", h.DefaultTier)
	}
	return fmt.Errorf("there is neither a RateLimitTier %q nor the default tier %q: create one of the two", asked, h.DefaultTier)
}
