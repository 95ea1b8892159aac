// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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
	for _, path := range []string{"/", "/check/", "//check", "/check/nginx/", "/checks", "/check/../check", "/Check", "/metrics", "/check%2Fnginx", "/%63heck"} {
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

// TestHalfClosed has the caller stop sending while it waits for the answer.
func TestHalfClosed(t *testing.T) {
	decide := limiterFunc(func(ctx context.Context, _ limiter.Subject, _ ...limiter.Limit) (limiter.Decision, error) {
		select {
		case <-ctx.Done():
			return limiter.Decision{}, ctx.Err()
		case <-time.After(200 * time.Millisecond):
			return limiter.Decision{Allowed: true, Limit: limiter.Limit{Requests: 5, Window: tier.Minute}, Remaining: 4}, nil
		}
	})
	e := newEndpoint(decide, nil, budget("free", 5, 100))
	_, url := serve(t, e)
	connection := dial(t, url)
	fmt.Fprintf(connection, "GET /check HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if answer, _ := io.ReadAll(connection); !strings.HasPrefix(string(answer), "HTTP/1.1 200 OK") {
		t.Errorf("answered: %s", answer)
	}
	if got := value(t, e.registry, "tierlimit_store_errors_total", "", ""); got != 0 {
		t.Errorf("%v store errors", got)
	}
}

// TestBodyThatDoesNotCome announces a body and does not send it: the answer does not wait.
func TestBodyThatDoesNotCome(t *testing.T) {
	decide := limiterFunc(func(context.Context, limiter.Subject, ...limiter.Limit) (limiter.Decision, error) {
		return limiter.Decision{Allowed: true, Limit: limiter.Limit{Requests: 5, Window: tier.Minute}, Remaining: 4}, nil
	})
	_, url := serve(t, newEndpoint(decide, nil, budget("free", 5, 100)))
	for name, body := range map[string]string{
		"Length":  "Content-Length: 5\r\n\r\n",
		"Part":    "Content-Length: 100000\r\n\r\nab",
		"Chunked": "Transfer-Encoding: chunked\r\n\r\n5\r\nab",
	} {
		t.Run(name, func(t *testing.T) {
			connection := dial(t, url)
			fmt.Fprintf(connection, "POST /check HTTP/1.1\r\nHost: x\r\n%s", body)
			// Well before the server's read timeout, which would end the connection.
			if err := connection.SetReadDeadline(time.Now().Add(readTimeout / 2)); err != nil {
				t.Fatal(err)
			}
			status := make([]byte, len("HTTP/1.1 200"))
			if _, err := io.ReadFull(connection, status); err != nil || string(status) != "HTTP/1.1 200" {
				t.Errorf("answered %q, %v", status, err)
			}
		})
	}
}

// TestKeepAliveWithBodies makes many checks with bodies over one connection, which come whole, late
// or in pieces.
func TestKeepAliveWithBodies(t *testing.T) {
	decide := limiterFunc(func(context.Context, limiter.Subject, ...limiter.Limit) (limiter.Decision, error) {
		return limiter.Decision{Allowed: true, Limit: limiter.Limit{Requests: 5, Window: tier.Minute}, Remaining: 4}, nil
	})
	_, url := serve(t, newEndpoint(decide, nil, budget("free", 5, 100)))
	connection := dial(t, url)
	reader := bufio.NewReader(connection)
	for i := range 60 {
		body := strings.Repeat("x", 1+i*1000)
		fmt.Fprintf(connection, "POST /check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:len(body)/2])
		if i%3 == 0 {
			time.Sleep(bodyTimeout / 10)
		}
		fmt.Fprint(connection, body[len(body)/2:])
		if i%2 == 0 {
			fmt.Fprint(connection, "GET /check HTTP/1.1\r\nHost: x\r\n\r\n")
		}
		for range 1 + (i+1)%2 {
			response, err := http.ReadResponse(reader, nil)
			if err != nil || response.StatusCode != 200 || response.Close {
				t.Fatalf("request %d: %v, %v", i, response, err)
			}
		}
	}
}

// TestDraining asks callers to use another connection.
func TestDraining(t *testing.T) {
	draining := false
	e := newEndpoint(limiterFunc(func(context.Context, limiter.Subject, ...limiter.Limit) (limiter.Decision, error) {
		return limiter.Decision{Allowed: true}, nil
	}), func(o *Options) { o.Draining = func() bool { return draining } }, budget("free", 5, 100))
	for _, draining = range []bool{false, true} {
		if got := e.ask(pathCheck).Header().Get("Connection") == "close"; got != draining {
			t.Errorf("draining %v: asks for another connection: %v", draining, got)
		}
	}
}

func dial(t *testing.T, url string) net.Conn {
	t.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// net/http would answer it with 200 by itself.
func TestOptionsOfTheServerAreNotAdmitted(t *testing.T) {
	e := newEndpoint(new(recorder), nil, budget("free", 5, 100))
	for name, tc := range map[string]struct {
		handler http.Handler
		want    string
	}{
		"Check":        {e, "404"},
		"ErrorBackend": {errorBackendOf(t, e, ""), "403"},
	} {
		server := httptest.NewUnstartedServer(tc.handler)
		server.Config = NewHTTPServer(tc.handler)
		server.Start()
		defer server.Close()
		connection, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		fmt.Fprint(connection, "OPTIONS * HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 203.0.113.7\r\nConnection: close\r\n\r\n")
		if line, err := bufio.NewReader(connection).ReadString('\n'); err != nil || !strings.Contains(line, tc.want) {
			t.Errorf("%s: %q, %v, want %s", name, line, err, tc.want)
		}
	}
}
