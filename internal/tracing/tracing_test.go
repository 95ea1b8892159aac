// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel/trace"

	"github.com/tierlimit/tierlimit/internal/otlptest"
)

// set gives this process variables, without those of whoever runs the tests.
func set(t *testing.T, variables map[string]string) {
	t.Helper()
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range variables {
		t.Setenv(name, value)
	}
}

func TestOffIsNoProvider(t *testing.T) {
	endpoint := "http://127.0.0.1:4318"
	for name, tc := range map[string]struct {
		reason    string
		variables map[string]string
	}{
		"Unset":    {"nothing is asked for", nil},
		"Sampler":  {"a sampler alone exports nothing", map[string]string{envSampler: "always_on"}},
		"Disabled": {"OpenTelemetry's own switch", map[string]string{envEndpoint: endpoint, envDisabled: "TRUE"}},
		"None":     {"the other one", map[string]string{envTracesEndpoint: endpoint, envExporter: "none"}},
	} {
		t.Run(name, func(t *testing.T) {
			set(t, tc.variables)
			p, err := New(t.Context(), os.Getenv, "v1", logr.Discard())
			if err != nil || p != nil || p.Tracer() != nil {
				t.Errorf("provider %v, error %v: %s", p, err, tc.reason)
			}
			p.Shutdown()
		})
	}
}

func TestWrongVariables(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason    string
		variables map[string]string
		want      string
	}{
		"NoScheme":    {"host:port is not a URL", map[string]string{envEndpoint: "collector:4318"}, "OTEL_EXPORTER_OTLP_ENDPOINT is not a URL"},
		"NoHost":      {"nobody to send to", map[string]string{envTracesEndpoint: "http://"}, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is not a URL"},
		"Scheme":      {"no other protocol", map[string]string{envEndpoint: "ftp://secret@x"}, "OTEL_EXPORTER_OTLP_ENDPOINT is not a URL"},
		"Password":    {"it would be dropped in silence", map[string]string{envEndpoint: "http://me:secret@x:4318"}, "use OTEL_EXPORTER_OTLP_HEADERS"},
		"Port":        {"there is no such port", map[string]string{envEndpoint: "http://127.0.0.1:99999"}, "OTEL_EXPORTER_OTLP_ENDPOINT has a port"},
		"Query":       {"it would be dropped in silence", map[string]string{envEndpoint: "http://x:4318/?token=secret"}, "OTEL_EXPORTER_OTLP_ENDPOINT has a query"},
		"HugeQueue":   {"it takes its memory at the start", map[string]string{envEndpoint: "http://127.0.0.1:4318", "OTEL_BSP_MAX_QUEUE_SIZE": "99999999999999"}, `OTEL_BSP_MAX_QUEUE_SIZE is "99999999999999": use a whole number from 1 to 65536`},
		"Protocol":    {"JSON is not tested here", map[string]string{envProtocol: "http/json"}, `OTEL_EXPORTER_OTLP_PROTOCOL is "http/json": use http/protobuf or grpc`},
		"Sampler":     {"a misspelt name would sample everything", map[string]string{envSampler: "ratio"}, "OTEL_TRACES_SAMPLER is not"},
		"Ratio":       {"10 is not 10 %", map[string]string{envSampler: "traceidratio", envSamplerArg: "10"}, `OTEL_TRACES_SAMPLER_ARG is "10": use a number from 0 to 1`},
		"NaN":         {"it is neither above nor below", map[string]string{envSamplerArg: "NaN"}, "OTEL_TRACES_SAMPLER_ARG"},
		"Switch":      {"neither on nor off", map[string]string{envDisabled: "yes"}, `OTEL_SDK_DISABLED is "yes"`},
		"Exporter":    {"only OTLP is built in", map[string]string{envExporter: "zipkin"}, `OTEL_TRACES_EXPORTER is "zipkin"`},
		"Timeout":     {"milliseconds have no unit", map[string]string{"OTEL_EXPORTER_OTLP_TIMEOUT": "5s"}, `OTEL_EXPORTER_OTLP_TIMEOUT is "5s"`},
		"Queue":       {"no queue is no traces", map[string]string{"OTEL_BSP_MAX_QUEUE_SIZE": "0"}, "OTEL_BSP_MAX_QUEUE_SIZE"},
		"Compression": {"the exporter knows one", map[string]string{"OTEL_EXPORTER_OTLP_COMPRESSION": "zstd"}, "OTEL_EXPORTER_OTLP_COMPRESSION"},
		"Headers":     {"they may be secret", map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": "secret"}, "parse headers: missing '="},
		"Certificate": {"a file without one", map[string]string{"OTEL_EXPORTER_OTLP_CERTIFICATE": file}, "create tls cert pool"},
		"Resource":    {"an attribute needs a value", map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "cluster"}, "OTEL_RESOURCE_ATTRIBUTES"},
	} {
		t.Run(name, func(t *testing.T) {
			variables := map[string]string{envEndpoint: "http://127.0.0.1:4318"}
			maps.Copy(variables, tc.variables)
			set(t, variables)
			p, err := New(t.Context(), os.Getenv, "v1", logr.Discard())
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v, want one with %q: %s", err, tc.want, tc.reason)
			}
			p.Shutdown()
		})
	}
}

// TestSamplers says how many of a thousand traces are exported, and whether those are that the caller
// has decided on already.
func TestSamplers(t *testing.T) {
	with := func(flags trace.TraceFlags) context.Context {
		return trace.ContextWithRemoteSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{8: 0xff, 15: 1}, SpanID: trace.SpanID{1}, TraceFlags: flags, Remote: true}))
	}
	for name, tc := range map[string]struct {
		reason, sampler, arg string
		least, most          int // of a thousand without a parent
		sampled, unsampled   bool
	}{
		"Default":   {"one in a hundred, and what the ingress has decided", "", "", 1, 40, true, false},
		"Ratio":     {"the default with another ratio", "", "0.5", 400, 600, true, false},
		"Parent":    {"nothing of its own", "parentbased_always_off", "", 0, 0, true, false},
		"Unbound":   {"whatever the caller says", "traceidratio", "0.5", 400, 600, false, false},
		"Off":       {"nothing", "always_off", "", 0, 0, false, false},
		"On":        {"all", "always_on", "", 1000, 1000, true, true},
		"NoArg":     {"OpenTelemetry's default is all", "parentbased_traceidratio", "", 1000, 1000, true, false},
		"ParentsOn": {"all but what the caller does not want", "parentbased_always_on", "", 1000, 1000, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			set(t, map[string]string{envEndpoint: "http://127.0.0.1:9", envSampler: tc.sampler, envSamplerArg: tc.arg,
				"OTEL_BSP_SCHEDULE_DELAY": "3600000", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "2048"})
			p, err := New(t.Context(), os.Getenv, "v1", logr.Discard())
			if err != nil {
				t.Fatal(err)
			}
			records := func(ctx context.Context) bool {
				_, span := p.Tracer().Start(ctx, "x")
				return span.IsRecording()
			}
			n := 0
			for range 1000 {
				if records(context.Background()) {
					n++
				}
			}
			if n < tc.least || n > tc.most {
				t.Errorf("%d of 1000 traces, want %d to %d: %s", n, tc.least, tc.most, tc.reason)
			}
			if s, u := records(with(trace.FlagsSampled)), records(with(0)); s != tc.sampled || u != tc.unsampled {
				t.Errorf("with a parent that is sampled %v, with one that is not %v; want %v, %v: %s", s, u, tc.sampled, tc.unsampled, tc.reason)
			}
		})
	}
}

// TestExport exports over both protocols, to a receiver that fails at first.
func TestExport(t *testing.T) {
	for _, protocol := range []string{protocolHTTP, protocolGRPC} {
		t.Run(strings.ReplaceAll(protocol, "/", "-"), func(t *testing.T) {
			receiver := otlptest.Start(t)
			endpoint := receiver.HTTP
			if protocol == protocolGRPC {
				endpoint = receiver.GRPC
			}
			set(t, map[string]string{envEndpoint: endpoint, envProtocol: protocol, envSampler: "always_on",
				"OTEL_RESOURCE_ATTRIBUTES": "k8s.namespace.name=tierlimit-system,service.name=limits"})
			p, err := New(t.Context(), os.Getenv, "v1.2.3", logr.Discard())
			if err != nil {
				t.Fatal(err)
			}
			_, span := p.Tracer().Start(t.Context(), "x")
			span.End()
			p.Shutdown() // flushes
			got := receiver.Spans(1)[0]
			if got.Name != "x" || got.Resource["service.name"] != "limits" || got.Resource["service.version"] != "v1.2.3" ||
				got.Resource["k8s.namespace.name"] != "tierlimit-system" {
				t.Errorf("received %+v", got)
			}
		})
	}
}

// TestFailuresAreAFewLines has a receiver refuse many batches.
func TestFailuresAreAFewLines(t *testing.T) {
	receiver := otlptest.Start(t)
	receiver.Break(true)
	set(t, map[string]string{envEndpoint: receiver.HTTP, envSampler: "always_on", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1"})
	var (
		mu    sync.Mutex
		lines []string
	)
	p, err := New(t.Context(), os.Getenv, "v1", funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, args)
	}, funcr.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		_, span := p.Tracer().Start(t.Context(), "x")
		span.End()
	}
	if err := p.provider.ForceFlush(t.Context()); err != nil {
		t.Error(err)
	}
	receiver.Break(false)
	_, span := p.Tracer().Start(t.Context(), "y")
	span.End()
	p.Shutdown()
	mu.Lock()
	defer mu.Unlock()
	wants := []string{"traces are exported", "traces cannot be exported", "traces are exported again"}
	for i, line := range lines {
		if i >= len(wants) || !strings.Contains(line, wants[i]) {
			t.Errorf("line %d: %s", i, line)
		}
	}
	if len(lines) != len(wants) {
		t.Errorf("%d lines, want %d:\n%s", len(lines), len(wants), strings.Join(lines, "\n"))
	}
}

func TestLastingFailureIsRepeatedNowAndThen(t *testing.T) {
	logged, now := 0, time.Now()
	w := newWatched(nil, funcr.New(func(string, string) { logged++ }, funcr.Options{}))
	w.batches.Now = func() time.Time { return now }
	for range 61 { // for five minutes
		w.observe(os.ErrDeadlineExceeded)
		now = now.Add(5 * time.Second)
	}
	if logged != 2 {
		t.Errorf("%d lines in five minutes, want 2", logged)
	}
}

// TestShutdownDoesNotWaitForAReceiverThatIsAway has spans left that nobody takes.
func TestShutdownDoesNotWaitForAReceiverThatIsAway(t *testing.T) {
	set(t, map[string]string{envEndpoint: "http://127.0.0.1:9", envSampler: "always_on"})
	p, err := New(t.Context(), os.Getenv, "v1", logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	_, span := p.Tracer().Start(t.Context(), "x")
	span.End()
	start := time.Now()
	p.Shutdown()
	if took := time.Since(start); took > FlushTime+20*time.Second { // a slow machine is no failure; a minute of repeats is
		t.Errorf("it took %v", took)
	}
}
