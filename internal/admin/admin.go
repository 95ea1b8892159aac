// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admin answers the admin API, internal/adminapi: what is left of a user's budget and why, and the few
// changes that an operator may make to it. Who asks has been authenticated and authorized before.
package admin

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// Limiter keeps the budgets. limiter.SlidingWindow documents the methods.
type Limiter interface {
	Logs
	Reset(ctx context.Context, subject limiter.Subject, windows ...time.Duration) ([]int64, error)
	Grant(ctx context.Context, subject limiter.Subject, requests int64, lasts time.Duration) (limiter.Grant, *limiter.Grant, error)
	Revoke(ctx context.Context, subject limiter.Subject) (*limiter.Grant, error)
}

// Logs is the part of a Limiter that only reads.
type Logs interface {
	Inspect(ctx context.Context, subject limiter.Subject, last int, limits ...limiter.Limit) (limiter.State, error)
	Times(ctx context.Context, subject limiter.Subject, window time.Duration) ([]time.Time, error)
}

// Checks is what answers checks. webhookserver.Handler documents the methods.
type Checks interface {
	Explain(ctx context.Context, asked webhookserver.Asked) adminapi.Explanation
	Tier(name string) (*tier.Tier, adminapi.Tier, error)
}

// Usage is what this replica has seen of its users.
type Usage interface {
	// Top returns the heaviest users by used or rejected, of one tier or, for "", of all.
	Top(by, tier string, limit int) adminapi.Top
	// Decisions returns what was decided by each tier.
	Decisions() adminapi.Decisions
	// SeenAs returns what a user has been seen as lately.
	SeenAs(user string) []adminapi.Seen
	// Simulate returns what limits would have done to the users of a tier. It may take minutes.
	Simulate(ctx context.Context, logs Logs, t *tier.Tier, limits []limiter.Limit) (adminapi.Simulation, error)
}

// Options configures a Handler.
type Options struct {
	// Limiter keeps the budgets, and Checks answers checks on them.
	Limiter Limiter
	Checks  Checks
	// Usage is what this replica has seen.
	Usage Usage
	// HashKey keys the hashes that stand for users in Events and logs; it may be empty.
	HashKey []byte
	// DenyMemory is for how long other replicas may still reject from memory after a change.
	DenyMemory time.Duration
	// OpenAPI is the document that describes this API, in YAML.
	OpenAPI []byte
	// Who returns who has sent a request.
	Who func(*http.Request) string
	// Event tells the tier's Events of a change. Nil tells nobody.
	Event func(ctx context.Context, e Event)
	// Ending ends when the process is about to: nothing that takes long is begun or gone on with then.
	Ending context.Context //nolint:containedctx // it is that of the process, not of a request
	// Log has a line for each change.
	Log logr.Logger
}

// Handler answers the admin API.
type Handler struct {
	Options
	routes     []route
	simulating chan struct{} // has room for one
}

// route is what answers one method of one path.
type route struct {
	method, path string
	parameters   []string
	answer       func(ctx context.Context, c *call) (any, error)
}

// call is one request.
type call struct {
	parameters
	who    string
	writer http.ResponseWriter
}

// NewHandler returns a handler.
func NewHandler(options Options) *Handler {
	if options.Event == nil {
		options.Event = func(context.Context, Event) {}
	}
	h := &Handler{Options: options, simulating: make(chan struct{}, 1)}
	subject := []string{"user", "kind", "tenant", "route", "tier"}
	with := func(more ...string) []string { return slices.Concat(subject, more) }
	h.routes = []route{
		{http.MethodGet, adminapi.PathQuota, with("last"), h.quota},
		{http.MethodDelete, adminapi.PathQuota, with("window"), h.reset},
		{http.MethodGet, adminapi.PathExplain, with("upstream", "upstream-per", "methods", "exempt", "auth", "header", "peer"), h.explain},
		{http.MethodPut, adminapi.PathGrant, with("requests", "for"), h.grant},
		{http.MethodDelete, adminapi.PathGrant, subject, h.revoke},
		{http.MethodGet, adminapi.PathTop, []string{"by", "tier", "limit"}, h.top},
		{http.MethodGet, adminapi.PathDecisions, nil, h.decisions},
		{http.MethodGet, adminapi.PathSimulate, []string{"tier", "per-minute", "per-day"}, h.simulate},
		{http.MethodGet, adminapi.PathOpenAPI, nil, h.openAPI},
	}
	return h
}

// ServeHTTP answers one request. The body is not read.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	webhookserver.HurryBody(w, r)
	var allowed []string
	path := r.URL.EscapedPath() // what was authorized is the path as it is written, and no other
	for _, route := range h.routes {
		if route.path != path {
			continue
		}
		if route.method == r.Method {
			h.answer(w, r, route)
			return
		}
		allowed = append(allowed, route.method)
	}
	if len(allowed) == 0 {
		WriteProblem(w, http.StatusNotFound, "There is nothing at this path: GET "+adminapi.PathOpenAPI+" describes what there is.")
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	WriteProblem(w, http.StatusMethodNotAllowed, "This path takes the methods "+strings.Join(allowed, " and ")+" only.")
}

func (h *Handler) answer(w http.ResponseWriter, r *http.Request, route route) {
	p, err := parse(r.URL.RawQuery, route.parameters)
	if err != nil {
		WriteProblem(w, http.StatusBadRequest, sentence(err.Error()))
		return
	}
	ctx := r.Context()
	if route.method != http.MethodGet {
		ctx = context.WithoutCancel(ctx) // whoever has hung up has asked for the change all the same
	}
	body, err := route.answer(ctx, &call{parameters: p, who: printable(h.Who(r)), writer: w})
	if err != nil {
		h.fail(w, r, err)
		return
	}
	write(w, http.StatusOK, body)
}

// openAPI answers with the document as it is.
func (h *Handler) openAPI(context.Context, *call) (any, error) { return document(h.OpenAPI), nil }
