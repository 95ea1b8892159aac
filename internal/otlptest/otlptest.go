// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package otlptest runs a receiver of OpenTelemetry's protocol for tests. Nothing in it is compiled
// into Tierlimit.
package otlptest

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// patience bounds how long a span may take to arrive.
const patience = 30 * time.Second

// Receiver receives spans over HTTP and over gRPC.
type Receiver struct {
	collectorv1.UnimplementedTraceServiceServer

	// HTTP and GRPC are the endpoints: "http://127.0.0.1:4318".
	HTTP, GRPC string

	t      testing.TB
	mu     sync.Mutex
	broken bool
	spans  []Span
}

// Span is a span as it was received. Attributes of the span and of its resource are texts.
type Span struct {
	Name, TraceID, SpanID, ParentID, TraceState string
	Kind                                        tracev1.Span_SpanKind
	Status                                      tracev1.Status_StatusCode
	Start, End                                  uint64
	Attributes, Resource                        map[string]string
}

// Start runs a receiver until the test ends.
func Start(t testing.TB) *Receiver {
	t.Helper()
	r := &Receiver{t: t}
	server := httptest.NewServer(http.HandlerFunc(r.serveHTTP))
	t.Cleanup(server.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	service := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(service, r)
	go func() { _ = service.Serve(listener) }()
	t.Cleanup(service.Stop)
	r.HTTP, r.GRPC = server.URL, "http://"+listener.Addr().String()
	return r
}

// Break has the receiver answer with errors, or no more.
func (r *Receiver) Break(broken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = broken
}

func (r *Receiver) serveHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	var export collectorv1.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &export)
	}
	if err != nil || request.URL.Path != "/v1/traces" || request.Header.Get("Content-Type") != "application/x-protobuf" {
		r.t.Errorf("otlptest: %s with %s: %v", request.URL, request.Header.Get("Content-Type"), err)
		return
	}
	if !r.receive(&export) {
		http.Error(w, "the receiver is broken", http.StatusBadRequest)
	}
}

// Export implements the service of the protocol.
func (r *Receiver) Export(_ context.Context, request *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	r.receive(request)
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// receive takes note of spans unless the receiver is broken.
func (r *Receiver) receive(request *collectorv1.ExportTraceServiceRequest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken {
		return false
	}
	for _, resource := range request.GetResourceSpans() {
		about := texts(resource.GetResource().GetAttributes())
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				r.spans = append(r.spans, Span{
					Name: s.GetName(), Kind: s.GetKind(), Status: s.GetStatus().GetCode(), TraceState: s.GetTraceState(),
					TraceID: hex.EncodeToString(s.GetTraceId()), SpanID: hex.EncodeToString(s.GetSpanId()), ParentID: hex.EncodeToString(s.GetParentSpanId()),
					Start: s.GetStartTimeUnixNano(), End: s.GetEndTimeUnixNano(),
					Attributes: texts(s.GetAttributes()), Resource: about,
				})
			}
		}
	}
	return true
}

func texts(attributes []*commonv1.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range attributes {
		switch value := a.GetValue().GetValue().(type) {
		case *commonv1.AnyValue_StringValue:
			all[a.GetKey()] = value.StringValue
		default:
			all[a.GetKey()] = a.GetValue().String()
		}
	}
	return all
}

// Spans returns what was received, once it is at least n spans.
func (r *Receiver) Spans(n int) []Span {
	r.t.Helper()
	var all []Span
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		r.mu.Lock()
		all = append([]Span(nil), r.spans...)
		r.mu.Unlock()
		if len(all) >= n {
			return all
		}
	}
	r.t.Fatalf("otlptest: %d spans were received, want %d: %+v", len(all), n, all)
	return nil
}

// Of returns the spans of one trace.
func Of(traceID string, spans []Span) []Span {
	var all []Span
	for _, s := range spans {
		if s.TraceID == traceID {
			all = append(all, s)
		}
	}
	return all
}
