// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// Attributes of spans. Those that OpenTelemetry has names for have them; none has a value that a client
// can choose.
const (
	attributeTier       = attribute.Key("tierlimit.tier")
	attributeOutcome    = attribute.Key("tierlimit.outcome")
	attributeWindow     = attribute.Key("tierlimit.window")
	attributeForm       = attribute.Key("tierlimit.form")
	attributeRemembered = attribute.Key("tierlimit.remembered") // the rejection came from memory

	attributeStatus    = attribute.Key("http.response.status_code")
	attributeMethod    = attribute.Key("http.request.method")
	attributeRoute     = attribute.Key("http.route")
	attributeRPCSystem = attribute.Key("rpc.system.name")
	attributeRPCMethod = attribute.Key("rpc.method")
	attributeErrorType = attribute.Key("error.type")
	attributeDBSystem  = attribute.Key("db.system.name")
	attributeDBCommand = attribute.Key("db.operation.name")
)

// rpcMethod is the name of a check over gRPC.
const rpcMethod = "envoy.service.auth.v3.Authorization/Check"

// traceContext reads the traceparent header (W3C Trace Context). The headers tracestate and baggage are left
// alone: they would put text of the client's choice into spans.
var traceContext propagation.TraceContext

// parent is what a proxy says of the span that a check belongs to.
type parent string

// Get implements propagation.TextMapCarrier.
func (p parent) Get(key string) string {
	if key == "traceparent" {
		return string(p)
	}
	return ""
}

// Set implements propagation.TextMapCarrier.
func (parent) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (parent) Keys() []string { return []string{"traceparent"} }

// parentIn returns the parent in headers, "" if it is missing or given twice.
func parentIn(values []string) parent {
	if len(values) != 1 {
		return ""
	}
	return parent(values[0])
}

// methods are those that a span names; a client can make up others.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
	http.MethodDelete, http.MethodOptions, http.MethodConnect, http.MethodTrace}

// traceHTTP begins the span of a check over HTTP. Without a Tracer there is none, and it costs nothing.
func (h *Handler) traceHTTP(r *http.Request, f form) (context.Context, trace.Span) {
	ctx := r.Context()
	if h.Tracer == nil {
		return ctx, nil
	}
	method := r.Method
	if !slices.Contains(methods, method) {
		method = "_OTHER"
	}
	name, route := f.names()
	return h.traced(ctx, parentIn(r.Header["Traceparent"]), method+" "+route,
		attributeForm.String(name), attributeMethod.String(method), attributeRoute.String(route))
}

// names returns the form's name and its path.
func (f form) names() (name, route string) {
	switch f {
	case nginxForm:
		return "nginx", pathNginx
	case extAuthzForm:
		return "ext-authz", pathExtAuthz
	case plainForm:
	}
	return "check", pathCheck
}

func (h *Handler) traced(ctx context.Context, p parent, name string, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	return h.Tracer.Start(traceContext.Extract(ctx, p), name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
}

// endSpan ends the span of a check with its answer. Code is the status that the proxy gets, 0 over gRPC.
func endSpan(span trace.Span, a *answer, code int) {
	if span == nil {
		return
	}
	if span.IsRecording() {
		span.SetAttributes(attributeTier.String(a.tier), attributeOutcome.String(string(a.outcome)), attributeWindow.String(a.quota.name()))
		if code != 0 {
			span.SetAttributes(attributeStatus.Int(code))
		}
		if a.status >= http.StatusInternalServerError && a.relay == nil {
			span.SetAttributes(attributeErrorType.String(string(a.outcome)))
			span.SetStatus(codes.Error, string(a.outcome))
		}
	}
	span.End()
}

// traceStore makes the span of a call of the store that has ended, a child of the check's. A rejection
// from memory, or by a limit of 0, has asked no store: there is nothing to show.
func (h *Handler) traceStore(ctx context.Context, start, end time.Time, d *limiter.Decision, err error) {
	if h.Tracer == nil {
		return
	}
	check := trace.SpanFromContext(ctx)
	if !check.IsRecording() {
		return
	}
	if d.Remembered {
		check.SetAttributes(attributeRemembered.Bool(true))
		return
	}
	if err == nil && !d.Allowed && d.Limit.Requests == 0 {
		return
	}
	_, span := h.Tracer.Start(ctx, "EVALSHA", trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(start),
		trace.WithAttributes(attributeDBSystem.String("redis"), attributeDBCommand.String("EVALSHA")))
	if err != nil {
		reason := reasonOf(err) // the message may hold whatever Redis says
		span.SetAttributes(attributeErrorType.String(reason))
		span.SetStatus(codes.Error, reason)
	}
	span.End(trace.WithTimestamp(end))
}

// traceGRPC is traceHTTP for a check over gRPC. Envoy sends a traceparent of its own with the call when it traces;
// else that of the request that is checked counts.
func (h *Handler) traceGRPC(ctx context.Context, request *authv3.AttributeContext_HttpRequest) (context.Context, trace.Span) {
	if h.Tracer == nil {
		return ctx, nil
	}
	p := parentIn(metadata.ValueFromIncomingContext(ctx, "traceparent"))
	if p == "" {
		p = parent(request.GetHeaders()["traceparent"])
		for _, header := range request.GetHeaderMap().GetHeaders() {
			if header.GetKey() == "traceparent" {
				p = parent(cmp.Or(header.GetValue(), string(header.GetRawValue())))
			}
		}
	}
	return h.traced(ctx, p, rpcMethod, attributeForm.String("grpc"), attributeRPCSystem.String("grpc"), attributeRPCMethod.String(rpcMethod))
}
