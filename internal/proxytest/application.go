// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Application is what the proxies protect. It answers every request with 200 and how many bytes of
// body it was sent, but
//   - a path that ends in /forbidden with a 403 of its own, and
//   - a request to upgrade to "websocket" with 101, and then echoes what it is sent.
//
// With ?own=1 it sets an X-RateLimit-Limit of its own, "own".
type Application struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
}

// ForbiddenBody is the body of the application's own 403.
const ForbiddenBody = "the application forbids this"

// StartApplication runs an application until the test ends.
func StartApplication(t testing.TB) *Application {
	t.Helper()
	a := new(Application)
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

// Address is the host:port of the application.
func (a *Application) Address() string { return a.Listener.Addr().String() }

// Requests returns the requests that have reached the application, and forgets them.
func (a *Application) Requests() []*http.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	requests := a.requests
	a.requests = nil
	return requests
}

// ServeHTTP answers one request.
func (a *Application) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.requests = append(a.requests, r)
	a.mu.Unlock()
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		echo(w, r.Header.Get("Sec-WebSocket-Key"))
		return
	}
	size, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.URL.Query().Get("own") != "" {
		w.Header().Set("X-RateLimit-Limit", "own")
	}
	if strings.HasSuffix(r.URL.Path, "/forbidden") {
		http.Error(w, ForbiddenBody, http.StatusForbidden)
		return
	}
	fmt.Fprintf(w, "the application got %d bytes", size)
}

// echo takes the connection over, answers a client's key as RFC 6455, section 4.2.2, says, and sends
// back each line.
func echo(w http.ResponseWriter, key string) {
	connection, both, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer connection.Close()
	accept := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	fmt.Fprintf(connection, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(accept[:]))
	for lines := bufio.NewScanner(both.Reader); lines.Scan(); {
		fmt.Fprintln(connection, lines.Text())
	}
}
