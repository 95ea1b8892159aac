// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// loadOf is what the command line sends to a server.
func loadOf(t *testing.T, address string, flags benchFlags) *load {
	t.Helper()
	flags.timeout = 30 * time.Second
	if flags.concurrency == 0 {
		flags.concurrency = 1
	}
	l, err := flags.load(t.Context(), address, true, "")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(server.Close)
	return server.URL
}

// TestBenchSendsOnce: a server that closes each connection on its second request receives as many requests as are
// reported.
func TestBenchSendsOnce(t *testing.T) {
	for name, flags := range map[string]benchFlags{
		"GET":      {},
		"POST":     {method: http.MethodPost, headers: []string{"Idempotency-Key: a"}},
		"with one": {data: "{}", headers: []string{"Idempotency-Key: a"}},
	} {
		t.Run(name, func(t *testing.T) {
			var received, odd atomic.Int64
			type key struct{}
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				received.Add(1)
				if r.Context().Value(key{}).(*atomic.Int64).Add(1) < 2 {
					return
				}
				odd.Add(1)
				connection, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_ = connection.Close()
			}))
			server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
				return context.WithValue(ctx, key{}, new(atomic.Int64))
			}
			server.Start()
			t.Cleanup(server.Close)
			flags.requests, flags.concurrency = 40, 4
			report := judge(loadOf(t, server.URL, flags).run(t.Context()), nil)
			if report.Sent != 40 || received.Load() != 40 || odd.Load() == 0 || int64(report.Answered) != 40-odd.Load() {
				t.Errorf("%d received, %d of them closed: %+v", received.Load(), odd.Load(), report)
			}
			for failure := range report.Errors {
				if failure != "no answer: "+errClosed.Error() && failure != "no answer: EOF" && !strings.Contains(failure, "connection reset") {
					t.Errorf("it is called %q", failure)
				}
			}
		})
	}
}

// TestBenchLeavesBodies does not wait for the end of a body, but uses a connection again after a short one.
func TestBenchLeavesBodies(t *testing.T) {
	var connections atomic.Int64
	for name, tc := range map[string]struct {
		reason string
		write  func(w io.Writer, r *http.Request)
	}{
		"endless": {"it is long", func(w io.Writer, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 4096))
			}
		}},
		"streamed": {"it takes long", func(w io.Writer, r *http.Request) {
			_, _ = w.Write([]byte("data: "))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			address := serve(t, func(w http.ResponseWriter, r *http.Request) { tc.write(w, r) })
			results := loadOf(t, address, benchFlags{requests: 3}).run(t.Context())
			if r := judge(results, nil); r.Admitted != 3 || results[2].sent.Sub(results[0].sent) > 20*time.Second { // of a --timeout of 30s
				t.Errorf("%s: %+v", tc.reason, r)
			}
		})
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 4096)) }))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	if r := judge(loadOf(t, server.URL, benchFlags{requests: 20}).run(t.Context()), nil); r.Admitted != 20 || connections.Load() > 10 { // a busy machine may not drain one in time
		t.Errorf("%d connections: %+v", connections.Load(), r)
	}
}

// TestBenchBounds a load in time, and the heads of answers.
func TestBenchBounds(t *testing.T) {
	address := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	l := loadOf(t, address, benchFlags{requests: 100, concurrency: 2})
	if l.duration != maxDuration || l.longest != maxDuration {
		t.Errorf("a load takes up to %v and %v", l.duration, l.longest)
	}
	l.duration, l.longest = 50*time.Millisecond, 100*time.Millisecond
	if r := judge(l.run(t.Context()), nil); r.Sent != 2 || r.Errors["no answer: the load ended after 100ms"] != 2 {
		t.Errorf("%+v", r)
	}
	address = serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("A", strings.Repeat("a", 2*maxHead)) })
	if r := judge(loadOf(t, address, benchFlags{requests: 1}).run(t.Context()), nil); r.Answered != 0 {
		t.Errorf("a head of %d bytes: %+v", 2*maxHead, r)
	}
}

// TestBenchReadsBody up to its bound, and waits for a pipe until it is interrupted.
func TestBenchReadsBody(t *testing.T) {
	var usage usageError
	if _, err := body(t.Context(), "@/dev/zero"); !errors.As(err, &usage) || !strings.Contains(err.Error(), "1 MiB") {
		t.Errorf("a file without end: %v", err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("interrupted"))
	defer cancel()
	if _, err := body(ctx, "@"+pipe); err == nil || !strings.HasSuffix(err.Error(), ": interrupted") {
		t.Errorf("a pipe that nobody writes to: %v", err)
	}
	writer, err := os.OpenFile(pipe, os.O_RDWR, 0) // lets the reader end
	if err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	if content, err := body(t.Context(), "{}"); string(content) != "{}" || err != nil {
		t.Errorf("got %s and %v", content, err)
	}
	if _, err := body(t.Context(), "@"+filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
