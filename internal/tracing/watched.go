// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// reminder is how often a receiver that goes on failing is logged again. Every batch of spans fails
// then, which is one in a few seconds.
const reminder = 5 * time.Minute

// watched is an exporter whose failures are a few lines in the log: one when they begin, one now and
// then, and one when spans are exported again.
type watched struct {
	sdktrace.SpanExporter
	log logr.Logger
	now func() time.Time

	mu     sync.Mutex
	failed int       // batches since the last one that was exported
	logged time.Time // when a failure was logged last
}

// ExportSpans exports a batch. It returns no error, since it has logged it.
func (w *watched) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	w.observe(w.SpanExporter.ExportSpans(ctx, spans))
	return nil
}

// observe takes note of how one batch went.
func (w *watched) observe(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		if w.failed > 0 {
			w.log.Info("traces are exported again", "failedBatches", w.failed)
		}
		w.failed = 0
		return
	}
	w.failed++
	if now := w.now(); w.failed == 1 || now.Sub(w.logged) >= reminder {
		w.log.Error(errors.New(shortened(withoutURL(err).Error())), "traces cannot be exported; checks go on as before", "failedBatches", w.failed)
		w.logged = now
	}
}

// withoutURL takes away the URL that an HTTP client puts before an error: a receiver's path may hold a
// token.
func withoutURL(err error) error {
	if inURL := new(url.Error); errors.As(err, &inURL) {
		return inURL.Err
	}
	return err
}

// shortened bounds what a receiver's error message takes in the log.
func shortened(message string) string {
	const most = 300
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most], "") + "..."
}
