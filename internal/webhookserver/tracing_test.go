// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/metadata"

	"github.com/tierlimit/tierlimit/internal/otlptest"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/tracing"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

const (
	traceID  = "4bf92f3577b34da6a3ce929d0e0e4736"
	parentID = "00f067aa0ba902b7"
	// sampled is what an ingress sends.
	sampled = "00-" + traceID + "-" + parentID + "-01"
)

// tracer returns a tracer that exports to a receiver, and what flushes it.
func tracer(t testing.TB, receiver *otlptest.Receiver, variables ...string) (tracer trace.Tracer, flush func()) {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.HTTP)
	for i := 0; i+1 < len(variables); i += 2 {
		t.Setenv(variables[i], variables[i+1])
	}
	provider, err := tracing.New(context.Background(), os.Getenv, "v1", logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	return provider.Tracer(), provider.Shutdown
}

// split tells the span of a check from those of its calls of the store.
func splitSpans(t *testing.T, spans []otlptest.Span) (check otlptest.Span, store []otlptest.Span) {
	t.Helper()
	for _, s := range spans {
		if s.Kind == tracev1.Span_SPAN_KIND_SERVER {
			if check.SpanID != "" {
				t.Errorf("two spans of one check: %+v", spans)
			}
			check = s
		} else {
			store = append(store, s)
		}
	}
	return check, store
}

// TestTraceJoinsTheIngress asks in every form, and looks at what an OTLP receiver gets.
func TestTraceJoinsTheIngress(t *testing.T) {
	receiver := otlptest.Start(t)
	spans, flush := tracer(t, receiver)
	e := newEndpoint(realLimiter(t, redistest.Start(t)), func(o *Options) { o.Tracer = spans }, budget("free", 1, 9))
	id := func(n int) string { return fmt.Sprintf("%s%02d", traceID[:30], n) }
	header := func(n int) string { return strings.Replace(sampled, traceID, id(n), 1) }
	for n, target := range []string{pathCheck + "?user=secret-0", pathNginx + "?user=secret-1", pathExtAuthz + ";user=secret-2/secret/path?q=1"} {
		e.ask(target, "Traceparent", header(n), "Tracestate", "vendor=secret", "Baggage", "user=secret")
	}
	grpcCheck := func(ctx context.Context, n int, http *authv3.AttributeContext_HttpRequest) {
		_, _ = extAuthz{handler: e.Handler}.Check(ctx, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
			ContextExtensions: map[string]string{"user": fmt.Sprintf("secret-%d", n)},
			Request:           &authv3.AttributeContext_Request{Http: http},
		}})
	}
	grpcCheck(context.Background(), 3, &authv3.AttributeContext_HttpRequest{Headers: map[string]string{"traceparent": header(3)}})
	grpcCheck(context.Background(), 4, &authv3.AttributeContext_HttpRequest{HeaderMap: &corev3.HeaderMap{
		Headers: []*corev3.HeaderValue{{Key: "traceparent", RawValue: []byte(header(4))}}}})
	grpcCheck(metadata.NewIncomingContext(context.Background(), metadata.Pairs("traceparent", header(5))), 5,
		&authv3.AttributeContext_HttpRequest{Headers: map[string]string{"traceparent": header(99)}})
	flush()
	all := receiver.Spans(12)
	for n, form := range []string{"check", "nginx", "ext-authz", "grpc", "grpc", "grpc"} {
		check, store := splitSpans(t, otlptest.Of(id(n), all))
		if check.ParentID != parentID || check.Attributes["tierlimit.form"] != form || check.Attributes["tierlimit.tier"] != "free" ||
			check.Attributes["tierlimit.outcome"] != "admitted" || check.Attributes["tierlimit.window"] != "minute" {
			t.Errorf("trace %d: the check is %+v", n, check)
		}
		if len(store) != 1 || store[0].ParentID != check.SpanID || store[0].Kind != tracev1.Span_SPAN_KIND_CLIENT ||
			store[0].Attributes["db.system.name"] != "redis" || store[0].Start < check.Start || store[0].End > check.End {
			t.Errorf("trace %d: the calls of Redis are %+v, in %+v", n, store, check)
		}
	}
	if text := fmt.Sprint(all); strings.Contains(text, "secret") {
		t.Errorf("a span has what only the client knows: %s", text)
	}
	if len(all) != 12 {
		t.Errorf("%d spans, want 12", len(all))
	}
}

// TestTraceSaysWhatHappened looks at rejections, failures and what a client makes up.
func TestTraceSaysWhatHappened(t *testing.T) {
	server := redistest.Start(t)
	client, err := limiter.NewClient(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	window, err := limiter.NewSlidingWindow(client, limiter.Options{Timeout: time.Second, DenyMemory: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	receiver := otlptest.Start(t)
	spans, flush := tracer(t, receiver)
	e := newEndpoint(window, func(o *Options) { o.Tracer = spans }, budget("free", 1, 9), budget("none", 0, 9))
	id := func(n int) string { return fmt.Sprintf("%s%02d", traceID[:30], n) }
	ask := func(n int, method, target string) {
		request := httptest.NewRequest(method, target, nil)
		request.Header.Set("Traceparent", strings.Replace(sampled, traceID, id(n), 1))
		e.ServeHTTP(httptest.NewRecorder(), request)
	}
	ask(0, "GET", pathCheck+"?user=a")
	ask(1, "GET", pathCheck+"?user=a")
	ask(2, "GET", pathNginx+"?user=a")
	ask(3, "GET", pathCheck+"?tier=none&user=a")
	ask(4, "MADEUP", pathExtAuthz+";nonsense=1/")
	server.Stop()
	ask(5, "GET", pathCheck+"?user=b")
	flush()
	all := receiver.Spans(9)
	for n, want := range []struct {
		reason, name, outcome, code, memory string
		calls                               int
		failed                              tracev1.Status_StatusCode
		storeError                          string
	}{
		{"Redis was asked", "GET /check", "admitted", "200", "", 1, tracev1.Status_STATUS_CODE_UNSET, ""},
		{"Redis was asked again", "GET /check", "rejected", "429", "", 1, tracev1.Status_STATUS_CODE_UNSET, ""},
		{"from memory, and nginx gets its 403", "GET /check/nginx", "rejected", "403", "true", 0, tracev1.Status_STATUS_CODE_UNSET, ""},
		{"a limit of 0 needs no Redis", "GET /check", "rejected", "429", "", 0, tracev1.Status_STATUS_CODE_UNSET, ""},
		{"a method that a client made up is not named", "_OTHER /check/ext-authz", "invalid", "400", "", 0, tracev1.Status_STATUS_CODE_UNSET, ""},
		{"Redis is away", "GET /check", "failed_closed", "503", "", 1, tracev1.Status_STATUS_CODE_ERROR, "error"},
	} {
		check, store := splitSpans(t, otlptest.Of(id(n), all))
		if check.Name != want.name || check.Attributes["tierlimit.outcome"] != want.outcome || check.Status != want.failed ||
			!strings.Contains(check.Attributes["http.response.status_code"], want.code) || !strings.Contains(check.Attributes["tierlimit.remembered"], want.memory) {
			t.Errorf("%d, %s: the check is %+v", n, want.reason, check)
		}
		if len(store) != want.calls || want.calls == 1 && (store[0].Status != want.failed || store[0].Attributes["error.type"] != want.storeError) {
			t.Errorf("%d, %s: the calls of Redis are %+v, want %d", n, want.reason, store, want.calls)
		}
	}
}

// TestTraceWithoutAParent begins one, unless what was sent is no parent.
func TestTraceWithoutAParent(t *testing.T) {
	receiver := otlptest.Start(t)
	spans, flush := tracer(t, receiver, "OTEL_TRACES_SAMPLER", "parentbased_always_on")
	decide := limiterFunc(func(context.Context, limiter.Subject, ...limiter.Limit) (limiter.Decision, error) {
		return limiter.Decision{Allowed: true}, nil
	})
	e := newEndpoint(decide, func(o *Options) { o.Tracer = spans }, budget("free", 1, 9))
	e.ask(pathCheck)
	e.ask(pathCheck, "Traceparent", "nonsense")
	e.ask(pathCheck, "Traceparent", sampled, "Traceparent", sampled) // which of two?
	e.ask(pathCheck, "Traceparent", strings.TrimSuffix(sampled, "1")+"0")
	flush()
	all := receiver.Spans(6)
	for _, s := range all {
		if s.TraceID == traceID || s.ParentID != "" && s.Kind == tracev1.Span_SPAN_KIND_SERVER {
			t.Errorf("a span of a parent that is none, or does not want it: %+v", s)
		}
	}
	if len(all) != 6 { // three checks, each with a call
		t.Errorf("%d spans, want 6: %+v", len(all), all)
	}
}

// TestNoTracerCostsNothing counts what tracing leaves to the garbage collector when it is off.
func TestNoTracerCostsNothing(t *testing.T) {
	e := newEndpoint(nil, nil, budget("free", 1, 9))
	request := httptest.NewRequest("GET", pathCheck, nil)
	request.Header.Set("Traceparent", sampled)
	a, d := &answer{}, &limiter.Decision{}
	if n := testing.AllocsPerRun(1000, func() {
		ctx, span := e.traceHTTP(request, plainForm)
		e.traceStore(ctx, time.Time{}, time.Time{}, d, nil)
		endSpan(span, a, 200)
		_, span = e.traceGRPC(ctx, nil)
		endSpan(span, a, 0)
	}); n != 0 {
		t.Errorf("%v allocations a check, want none", n)
	}
}
