// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhookserver answers checks over HTTP: may this user go on? A check is any request to
// one explicit path per form of answer; which proxy is asking is never guessed.
package webhookserver

import (
	"context"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"

	"github.com/tierlimit/tierlimit/internal/identity"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/internal/trouble"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// Limiter decides on one request, by one budget or several together. It returns before the deadline it has for Redis; an
// error that wraps limiter.ErrReply means that Redis did answer, but not with a decision.
type Limiter interface {
	CheckBudgets(ctx context.Context, budgets ...limiter.Budget) (limiter.Decision, error)
	// LookBudgets says what CheckBudgets would, and charges nothing.
	LookBudgets(ctx context.Context, budgets ...limiter.Budget) (limiter.Decision, error)
}

// Options configures a Handler.
type Options struct {
	// Tiers are the tiers in force.
	Tiers *tier.Table
	// Limiter decides.
	Limiter Limiter
	// Timeout is the longest that the limiter may take for one check that has to ask it twice. 0 is
	// what it takes for each.
	Timeout time.Duration
	// Local decides by this replica's share for tiers with FailLocal while Limiter does not. Nil is a
	// limiter.Local of the default size.
	Local Limiter
	// Replicas returns how many replicas share a budget then; less than 1 counts as 1. Nil is 1.
	Replicas func() int64
	// Identity finds out who is calling when no parameter says it. Nil is identity.Default.
	Identity *identity.Sources
	// Auth is another auth service that is asked first. Nil is none.
	Auth *identity.Service
	// Headers are the sets of headers that tell a client about its budget. The zero value is all.
	Headers HeaderSets
	// DefaultTier is the name of the tier for a check that names none, or one that does not exist.
	DefaultTier string
	// Disabled is the global kill switch: every check is allowed, and the limiter is not asked.
	Disabled bool
	// Metrics count checks.
	Metrics *Metrics
	// Recorder is told of every check. Nil is nobody.
	Recorder Recorder
	// Tracer makes a span of each check, and of each call of the limiter in it. Nil makes none.
	Tracer trace.Tracer
	// Log is told when the limiter begins to fail and when it works again.
	Log logr.Logger
	// Draining returns whether the server is about to stop: every answer then asks the caller to
	// use another connection, so that none is closed under a request on its way. Nil is never.
	Draining func() bool
}

// Handler answers checks.
type Handler struct {
	Options
	outage       *trouble.Trouble // the limiter fails
	full         *trouble.Trouble // Local fails
	missing      *trouble.Trouble // there is no tier to apply
	unidentified *trouble.Trouble // callers cannot be identified
	rejections   *rejectionLog
	now          func() time.Time
}

// NewHandler returns a handler.
func NewHandler(options Options) *Handler {
	if options.Identity == nil {
		options.Identity, _ = identity.Parse(identity.Default, identity.Config{})
	}
	if options.Headers == (HeaderSets{}) {
		options.Headers = AllHeaders
	}
	if options.Local == nil {
		options.Local, _ = limiter.NewLocal(limiter.LocalOptions{})
	}
	if options.Replicas == nil {
		options.Replicas = func() int64 { return 1 }
	}
	return &Handler{
		Options: options,
		outage:  checkTrouble(options.Log, "Redis does not decide; each tier's failurePolicy does", "Redis decides again"),
		full: checkTrouble(options.Log, "checks of tiers with failurePolicy FailLocal are answered with 503",
			"checks of tiers with failurePolicy FailLocal are decided in memory again"),
		missing:      checkTrouble(options.Log, "there is no tier to apply; checks are answered with 503", "there is a tier to apply again"),
		unidentified: checkTrouble(options.Log, "callers cannot be identified; their checks are answered with 503", "callers are identified again"),
		rejections:   newRejectionLog(options.Log),
		now:          time.Now,
	}
}

// checkTrouble is trouble that each check may meet. A store that fails now and then is one outage.
func checkTrouble(log logr.Logger, begins, ends string) *trouble.Trouble {
	return &trouble.Trouble{Log: log, Begins: begins, Ends: ends, Counts: "failedChecks", Reminder: 30 * time.Second, Over: 5 * time.Second}
}

// ServeHTTP answers one check. The body is not read.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.Draining != nil && h.Draining() {
		w.Header().Set("Connection", "close")
	}
	f, params, found, err := parametersOf(r)
	if !found {
		http.Error(w, "not found: a check is a request to "+pathCheck+", "+pathNginx+" or "+pathExtAuthz, http.StatusNotFound)
		return
	}
	start := h.now()
	ctx, span := h.traceHTTP(r, f)
	var a answer
	if err != nil {
		a = invalid(err)
	} else {
		a = h.check(ctx, question{
			parameters: params,
			method:     f.method(r),
			request:    identity.Request{Header: f.headers(r), Peer: r.RemoteAddr},
		})
	}
	HurryBody(w, r)
	code := h.write(w, &a, f)
	h.answered(&a, start)
	endSpan(span, &a, code)
}

// write sends an answer and returns the status that it was sent with.
func (h *Handler) write(w http.ResponseWriter, a *answer, f form) int {
	a.headers(w.Header(), h.Headers)
	body := a.body()
	code := f.send(w.Header(), a)
	w.WriteHeader(code)
	if len(body) > 0 {
		_, _ = w.Write(body) // an error means that the caller has left
	}
	return code
}

// question is one check, whatever form it came in.
type question struct {
	parameters
	method  string // of the request that is checked; "" if it is not known
	request identity.Request
	look    bool         // charge nothing
	kind    limiter.Kind // of the parameter user
	trail   *trail       // of a check that is explained; else nil
}

// check decides on one request.
func (h *Handler) check(ctx context.Context, q question) answer {
	// Not with the request's own context: that ends when the caller stops sending, which may still
	// be waiting for the answer. Whatever is asked has its own deadline.
	ctx = context.WithoutCancel(ctx)
	auth, err := h.authorize(ctx, &q)
	if err != nil {
		return h.unavailable(err)
	}
	if auth != nil && !auth.Allows() {
		return relayed(auth)
	}
	var a answer
	if q.counts(q.method) {
		a = h.charge(ctx, q, auth)
	} else {
		a = exempted()
	}
	a.auth = auth
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
