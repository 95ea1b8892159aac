// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of what is read of an answer's body, so that its connection can be used again. A longer one is not waited
// for: an application may stream for minutes.
const (
	maxDrain     = 64 << 10 // bytes
	maxDrainTime = 100 * time.Millisecond
)

// load is what bench sends.
type load struct {
	url                   *url.URL
	method, host          string
	header                http.Header
	body                  []byte
	requests, concurrency int
	duration, timeout     time.Duration
	longest               time.Duration // after which what is not answered is given up
	client                *http.Client
}

// result is one request and its answer.
type result struct {
	sent, answered time.Time
	status         int // 0 without an answer
	header         http.Header
	err            error
}

// run sends the requests and returns the results, in the order in which they were sent. It ends early
// with ctx.
func (l *load) run(ctx context.Context) []result {
	var (
		results = make([]result, l.requests)
		next    atomic.Int64
		workers sync.WaitGroup
		stop    = time.Now().Add(l.duration)
	)
	ctx, cancel := context.WithTimeoutCause(ctx, l.longest, fmt.Errorf("the load ended after %v", l.longest))
	defer cancel()
	for range l.concurrency {
		workers.Go(func() {
			for ctx.Err() == nil && time.Now().Before(stop) {
				i := int(next.Add(1)) - 1
				if i >= len(results) {
					return
				}
				results[i] = l.send(ctx)
			}
		})
	}
	workers.Wait()
	l.client.CloseIdleConnections()
	sent := results[:0]
	for _, r := range results {
		if !r.sent.IsZero() && !errors.Is(r.err, context.Canceled) {
			sent = append(sent, r)
		}
	}
	return sent
}

// send sends one request. Its life ends with the head of the answer: by then it was admitted or not.
func (l *load) send(ctx context.Context) result {
	ctx, stop := context.WithTimeoutCause(ctx, l.timeout, fmt.Errorf("no answer within %v", l.timeout))
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	request, err := http.NewRequestWithContext(once(ctx, cancel), l.method, l.url.String(), bytes.NewReader(l.body))
	if err != nil {
		return result{sent: time.Now(), answered: time.Now(), err: err}
	}
	request.Header = l.header.Clone()
	request.Host = l.host
	r := result{sent: time.Now()}
	response, err := l.client.Do(request)
	r.answered = time.Now()
	if err != nil {
		if r.err = err; ctx.Err() != nil {
			r.err = context.Cause(ctx)
		}
		return r
	}
	r.status, r.header = response.StatusCode, kept(response.Header)
	timer := time.AfterFunc(maxDrainTime, func() { cancel(nil) })
	_, _ = io.CopyN(io.Discard, response.Body, maxDrain) // whatever comes of it, the answer counts
	timer.Stop()
	_ = response.Body.Close()
	return r
}

// body returns what --data stands for. It ends early with ctx: nobody may ever write to a pipe.
func body(ctx context.Context, data string) ([]byte, error) {
	name, ok := strings.CutPrefix(data, "@")
	if !ok {
		return bounded(strings.NewReader(data))
	}
	type read struct {
		content []byte
		err     error
	}
	done := make(chan read, 1)
	go func() {
		file, err := os.Open(name) //nolint:gosec // whoever calls it has named it
		if err != nil {
			done <- read{err: fmt.Errorf("--data: %w", err)}
			return
		}
		defer file.Close() //nolint:errcheck // it was only read
		content, err := bounded(file)
		done <- read{content, err}
	}()
	select {
	case r := <-done:
		return r.content, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("--data: reading %s: %w", quoted(name), context.Cause(ctx))
	}
}

// bounded reads a body of up to 1 MiB.
func bounded(from io.Reader) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(from, maxBody+1))
	if err != nil {
		return nil, fmt.Errorf("--data: %w", err)
	}
	if len(content) > maxBody {
		return nil, usagef("--data is longer than 1 MiB: use less")
	}
	return content, nil
}

// proxied returns the proxy on the way, or "".
func (l *load) proxied() string {
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: l.url})
	if err != nil || proxy == nil {
		return ""
	}
	return proxy.Redacted()
}
