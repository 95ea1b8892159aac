// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tracing exports traces to an OTLP receiver, as OpenTelemetry's own environment variables
// ask. It knows nothing of checks.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/tierlimit/tierlimit/internal/trouble"
)

// FlushTime bounds how long Shutdown waits for the receiver. A receiver that is away must not hold up
// the end of a process.
const FlushTime = 2 * time.Second

// Provider makes spans and exports them in the background. A nil Provider makes none.
type Provider struct {
	provider *sdktrace.TracerProvider
	log      logr.Logger
}

// New returns a provider as the environment asks, or nil if there is no endpoint or traces are
// disabled. It does not wait for the receiver. An error says which variable is wrong. Version is that
// of the program: "v0.1.0".
func New(ctx context.Context, getenv func(string) string, version string, log logr.Logger) (*Provider, error) {
	c, err := parse(getenv)
	if err != nil || c.protocol == "" {
		return nil, err
	}
	about, err := about(ctx, version)
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w: use NAME=VALUE,NAME=VALUE", err)
	}
	var complaints complaints
	otel.SetLogger(logr.New(&complaints))
	exporter, err := newExporter(ctx, c.protocol)
	if err = errors.Join(err, complaints.all()); err != nil {
		return nil, fmt.Errorf("the variables OTEL_EXPORTER_OTLP_...: %w", err)
	}
	watched := newWatched(exporter, log)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(watched.observe)) // what goes wrong outside the exporter
	otel.SetLogger(log)
	log.Info("traces are exported", "receiver", c.receiver, "protocol", c.protocol, "sampler", c.sampler.Description())
	return &Provider{log: log, provider: sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(watched), sdktrace.WithSampler(c.sampler), sdktrace.WithResource(about),
	)}, nil
}

func newExporter(ctx context.Context, protocol string) (*otlptrace.Exporter, error) {
	if protocol == protocolGRPC {
		return otlptracegrpc.New(ctx)
	}
	return otlptracehttp.New(ctx)
}

// about describes this process. What the environment says goes first.
func about(ctx context.Context, version string) (*resource.Resource, error) {
	attributes := []attribute.KeyValue{attribute.String("service.name", "tierlimit"), attribute.String("service.version", version)}
	if host, err := os.Hostname(); err == nil { // the name of the Pod
		attributes = append(attributes, attribute.String("service.instance.id", host))
	}
	return resource.New(ctx, resource.WithAttributes(attributes...), resource.WithTelemetrySDK(), resource.WithFromEnv())
}

// Tracer returns what makes spans, or nil if there are to be none.
func (p *Provider) Tracer() trace.Tracer {
	if p == nil {
		return nil
	}
	return p.provider.Tracer("github.com/tierlimit/tierlimit")
}

// Shutdown exports what is left, for FlushTime at the most.
func (p *Provider) Shutdown() {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), FlushTime)
	defer cancel()
	if err := p.provider.Shutdown(ctx); err != nil {
		p.log.Error(trouble.Shortened(err), "the last traces may not have been exported")
	}
}

// complaints collects what the exporters print about their variables, without the values, which may
// be secret.
type complaints struct {
	mu   sync.Mutex
	errs []error
}

// Error implements logr.LogSink.
func (c *complaints) Error(err error, message string, _ ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, fmt.Errorf("%s: %w", message, err))
}

func (c *complaints) all() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.errs...)
}

// Init implements logr.LogSink.
func (c *complaints) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (c *complaints) Enabled(int) bool { return false }

// Info implements logr.LogSink.
func (c *complaints) Info(int, string, ...any) {}

// WithValues implements logr.LogSink.
func (c *complaints) WithValues(...any) logr.LogSink { return c }

// WithName implements logr.LogSink.
func (c *complaints) WithName(string) logr.LogSink { return c }
