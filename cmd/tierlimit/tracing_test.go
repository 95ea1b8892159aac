// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/internal/otlptest"
	"github.com/tierlimit/tierlimit/internal/redistest"
)

// TestTracesAreExportedAtTheEnd has the program answer one check of a trace and end, over both protocols.
func TestTracesAreExportedAtTheEnd(t *testing.T) {
	const traceID, parentID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	redis := redistest.Start(t)
	receiver := otlptest.Start(t)
	for protocol, endpoint := range map[string]string{"http/protobuf": receiver.HTTP, "grpc": receiver.GRPC} {
		p := start(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=" + protocol,
			"OTEL_BSP_SCHEDULE_DELAY=3600000"}, // so that only the end exports
			"--tiers", "config/samples", "--redis-url", redis.URL())
		request, err := http.NewRequest(http.MethodGet, p.check+"/check?user=alice", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Traceparent", "00-"+traceID+"-"+parentID+"-01")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if err := p.stop(); err != nil {
			t.Errorf("%s: it ended with %v", protocol, err)
		}
	}
	servers, children := map[string]bool{}, 0
	spans := receiver.Spans(4)
	for _, s := range spans {
		if s.TraceID != traceID || s.Resource["service.name"] != "tierlimit" || s.Resource["service.version"] != "v0.0.0-test" {
			t.Errorf("a span of something else: %+v", s)
		}
		if s.ParentID == parentID {
			servers[s.SpanID] = true
		}
	}
	for _, s := range spans {
		if servers[s.ParentID] && s.Attributes["db.system.name"] == "redis" {
			children++
		}
	}
	if len(servers) != 2 || children != 2 {
		t.Errorf("%d checks under the ingress and %d calls of Redis under them, want 2 and 2: %+v", len(servers), children, spans)
	}
}

// TestWrongTraceVariableEndsTheProgram is told at the start, not by missing traces.
func TestWrongTraceVariableEndsTheProgram(t *testing.T) {
	p := launch(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4318"}, "--tiers", "config/samples")
	err := p.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(p.log.String(), "tierlimit: OTEL_EXPORTER_OTLP_ENDPOINT is not a URL") {
		t.Errorf("it ended with %v and printed:\n%s", err, p.log)
	}
}
