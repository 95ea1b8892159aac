// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// maxDrain is how much of an answer is read so that its connection can be used again, in bytes. The
// rest of a longer one is not waited for.
const maxDrain = 256 << 10

// load is what bench sends.
type load struct {
	url                   *url.URL
	method, host          string
	header                http.Header
	body                  []byte
	requests, concurrency int
	duration, timeout     time.Duration
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
		stop    time.Time
	)
	if l.duration > 0 {
		stop = time.Now().Add(l.duration)
	}
	for range l.concurrency {
		workers.Go(func() {
			for ctx.Err() == nil && (stop.IsZero() || time.Now().Before(stop)) {
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
	ctx, cancel := context.WithTimeoutCause(ctx, l.timeout, fmt.Errorf("no answer within %v", l.timeout))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, l.method, l.url.String(), bytes.NewReader(l.body))
	if err != nil {
		return result{sent: time.Now(), answered: time.Now(), err: err}
	}
	request.Header = l.header.Clone()
	request.Host = l.host
	r := result{sent: time.Now()}
	response, err := l.client.Do(request)
	r.answered = time.Now()
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = context.Cause(ctx)
		}
		r.err = err
		return r
	}
	r.status, r.header = response.StatusCode, response.Header
	_, _ = io.CopyN(io.Discard, response.Body, maxDrain) // whatever comes of it, the answer counts
	_ = response.Body.Close()
	return r
}

// proxied returns the proxy on the way, or "".
func (l *load) proxied() string {
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: l.url})
	if err != nil || proxy == nil {
		return ""
	}
	return proxy.Redacted()
}

// oneFamily dials with IPv4 or with IPv6, whichever the first connection has.
type oneFamily struct {
	mu      sync.Mutex
	network string
	dialer  net.Dialer
}

func (o *oneFamily) dial(ctx context.Context, network, address string) (net.Conn, error) {
	o.mu.Lock()
	if o.network != "" {
		network = o.network
		o.mu.Unlock()
		return o.dialer.DialContext(ctx, network, address)
	}
	defer o.mu.Unlock() // the others wait for the first
	connection, err := o.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	o.network = "tcp6"
	if remote, ok := connection.RemoteAddr().(*net.TCPAddr); ok && remote.IP.To4() != nil {
		o.network = "tcp4"
	}
	return connection, nil
}

// maxWait is the longest Retry-After that is waited for.
const maxWait = 2 * time.Minute

// waited is what came of waiting for Retry-After.
type waited struct {
	// RetryAfterSeconds is what the rejection said.
	RetryAfterSeconds int64 `json:"retryAfterSeconds"`
	// Status is that of the request after the wait; 0 if there was none.
	Status int `json:"status"`
	// Wrong is true if that was rejected by the same window again.
	Wrong bool `json:"wrong,omitempty"`
	// Note says what was found.
	Note string `json:"note"`
}

// wait has one more request rejected, waits for as long as that says and sends another. It sends them
// alone, so that no request of its own takes the room.
func (l *load) wait(ctx context.Context, d *desk, report *report) *waited {
	if report.Rejected == 0 {
		return &waited{Note: "Nothing was rejected, so there was no Retry-After to wait for."}
	}
	first := l.send(ctx)
	seconds, ok := retryAfter(first.header)
	switch {
	case first.status != http.StatusTooManyRequests:
		return &waited{Status: first.status, Note: "A request after the load was not rejected, so there was no Retry-After to wait for."}
	case !ok:
		return &waited{Status: first.status, Note: "The rejection has no Retry-After to wait for."}
	case time.Duration(seconds)*time.Second > maxWait:
		return &waited{RetryAfterSeconds: seconds, Status: first.status, Note: fmt.Sprintf("Retry-After is %v, longer than the %v that are waited for.", time.Duration(seconds)*time.Second, maxWait)}
	}
	fmt.Fprintf(d.Streams.ErrOut, "Waiting for %d seconds, as Retry-After says ...\n", seconds)
	if err := pause(ctx, time.Until(first.answered.Add(time.Duration(seconds)*time.Second))); err != nil {
		return &waited{RetryAfterSeconds: seconds, Note: "The wait was interrupted."}
	}
	second := l.send(ctx)
	l.client.CloseIdleConnections()
	w := &waited{RetryAfterSeconds: seconds, Status: second.status}
	switch {
	case second.status == http.StatusTooManyRequests && second.header.Get(headerWindow) != first.header.Get(headerWindow):
		w.Note = "The window had room again; then a longer one rejected the request, which is right."
	case second.status == http.StatusTooManyRequests:
		w.Wrong, w.Note = true, "The request after the wait was rejected once more: Retry-After was too short, or somebody else spends the same budget."
	case second.status == 0:
		w.Note = fmt.Sprintf("The request after the wait was not answered: %v.", second.err)
	default:
		w.Note = "The request after the wait passed: Retry-After was right."
	}
	return w
}
