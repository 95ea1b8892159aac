// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest_test

import (
	"context"
	"net/http"
	"os"
	"testing"

	"github.com/go-logr/logr"

	"github.com/tierlimit/tierlimit/internal/otlptest"
	"github.com/tierlimit/tierlimit/internal/proxytest"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/internal/tracing"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
)

// TestNginxPassesTheTraceOn sends a traceparent through nginx, which does nothing about it.
func TestNginxPassesTheTraceOn(t *testing.T) {
	const traceID, parentID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	receiver := otlptest.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.HTTP)
	provider, err := tracing.New(context.Background(), os.Getenv, "v1", logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	check := proxytest.StartCheck(t, func(o *webhookserver.Options) { o.Tracer = provider.Tracer() }, proxytest.Tier("free", 5, tier.Minute))
	application := proxytest.StartApplication(t)
	url := proxytest.StartNginx(t, both(t, proxytest.Nginx{
		Application: application.Address(),
		Routes:      []proxytest.NginxRoute{{Path: "/", AuthURL: "http://" + check.Address() + "/check/nginx?tier=free"}},
	}))
	request, err := http.NewRequest(http.MethodGet, url+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Traceparent", "00-"+traceID+"-"+parentID+"-01")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("status %d, want 200", response.StatusCode)
	}
	provider.Shutdown()
	spans := receiver.Spans(2)
	for _, s := range spans {
		if s.TraceID != traceID {
			t.Errorf("a span of another trace: %+v", s)
		}
		if s.Name == "GET /check/nginx" && s.ParentID != parentID {
			t.Errorf("the check's parent is %q, want the client's %q", s.ParentID, parentID)
		}
	}
}
