// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/tierlimit/tierlimit/internal/trouble"
)

// reminder is how often a receiver that goes on failing is logged again. Every batch of spans fails
// then, which is one in a few seconds.
const reminder = 5 * time.Minute

// watched is an exporter whose failures are a few lines in the log: one when they begin, one now and
// then, and one when spans are exported again.
type watched struct {
	sdktrace.SpanExporter
	batches trouble.Trouble
}

func newWatched(exporter sdktrace.SpanExporter, log logr.Logger) *watched {
	return &watched{SpanExporter: exporter, batches: trouble.Trouble{
		Log:      log,
		Begins:   "traces cannot be exported; checks go on as before",
		Ends:     "traces are exported again",
		Counts:   "failedBatches",
		Reminder: reminder,
	}}
}

// ExportSpans exports a batch. It returns no error, since it has logged it.
func (w *watched) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	w.observe(w.SpanExporter.ExportSpans(ctx, spans))
	return nil
}

// observe takes note of how one batch went.
func (w *watched) observe(err error) { w.batches.Observe(withoutURL(err)) }

// withoutURL takes away the URL that an HTTP client puts before an error: a receiver's path may hold a
// token.
func withoutURL(err error) error {
	if inURL := new(url.Error); errors.As(err, &inURL) {
		return inURL.Err
	}
	return err
}
