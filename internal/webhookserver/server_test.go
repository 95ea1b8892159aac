// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// serve runs the endpoint as the binary does, on a free port, and returns its base URL.
func serve(t *testing.T, handler http.Handler) (*http.Server, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewHTTPServer(handler)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return server, "http://" + listener.Addr().String()
}

// TestMethods asks with every method, and with a body that is not read.
func TestMethods(t *testing.T) {
	e := newEndpoint(realLimiter(t, redistest.Start(t)), nil, budget("free", 1, 100))
	_, url := serve(t, e)
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"} {
		for _, want := range []int{200, 429} {
			var body io.Reader
			if method == "POST" {
				body = strings.NewReader(strings.Repeat("x", 8<<20))
			}
			request, _ := http.NewRequest(method, url+pathCheck+"?user="+method, body)
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatalf("%s: %v", method, err)
			}
			content, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("%s: %d, want %d", method, response.StatusCode, want)
			}
			if wantBody := want != 200 && method != "HEAD"; (len(content) > 0) != wantBody {
				t.Errorf("%s %d: body %q", method, want, content)
			}
		}
	}
}

func TestOtherPaths(t *testing.T) {
	e := newEndpoint(nil, nil, budget("free", 1, 1))
	for _, path := range []string{"/", "/check/", "//check", "/check/nginx/", "/checks", "/check/../check", "/Check", "/metrics"} {
		if r := e.ask(path); r.Code != http.StatusNotFound || !strings.Contains(r.Body.String(), "/check") {
			t.Errorf("%s: %d %s", path, r.Code, r.Body)
		}
	}
}

func TestOversizedRequest(t *testing.T) {
	_, url := serve(t, newEndpoint(nil, nil, budget("free", 1, 1)))
	response, err := http.Get(url + pathCheck + "?user=" + strings.Repeat("u", 64<<10))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", response.StatusCode)
	}
}

// TestShutdown stops the server while a check is in flight: it is answered, and no other is taken.
func TestShutdown(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	decide := limiterFunc(func(context.Context, limiter.Subject, ...limiter.Limit) (limiter.Decision, error) {
		close(begun)
		<-finish
		return limiter.Decision{Allowed: true, Limit: limiter.Limit{Requests: 5, Window: tier.Minute}, Remaining: 4}, nil
	})
	server, url := serve(t, newEndpoint(decide, nil, budget("free", 5, 100)))
	status := make(chan int)
	go func() {
		response, err := http.Get(url + pathCheck)
		if err != nil {
			t.Error(err)
			status <- 0
			return
		}
		response.Body.Close()
		status <- response.StatusCode
	}()
	<-begun
	stopped := make(chan error)
	go func() { stopped <- server.Shutdown(context.Background()) }()
	for range 100 { // until the listener is closed
		connection, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "http://"), time.Second)
		if err != nil {
			break
		}
		connection.Close()
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := http.Get(url + pathCheck); err == nil {
		t.Error("a new check was taken during the shutdown")
	}
	close(finish)
	if got := <-status; got != http.StatusOK {
		t.Errorf("the check in flight was answered with %d", got)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestAbandoned has the caller leave: that is not a failure of the store.
func TestAbandoned(t *testing.T) {
	begun := make(chan struct{})
	decide := limiterFunc(func(ctx context.Context, _ limiter.Subject, _ ...limiter.Limit) (limiter.Decision, error) {
		close(begun)
		<-ctx.Done()
		return limiter.Decision{}, ctx.Err()
	})
	e := newEndpoint(decide, nil, budget("free", 1, 1))
	_, url := serve(t, e)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	request, _ := http.NewRequestWithContext(ctx, http.MethodGet, url+pathCheck, nil)
	if _, err := http.DefaultClient.Do(request); err == nil {
		t.Fatal("the request was not abandoned")
	}
	waitFor(t, func() bool {
		return value(t, e.registry, "tierlimit_checks_total", "outcome", "abandoned") == 1
	})
	if got := value(t, e.registry, "tierlimit_store_errors_total", "", ""); got != 0 {
		t.Errorf("%v store errors", got)
	}
}

func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	for range 500 {
		if condition() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("it did not happen")
}
