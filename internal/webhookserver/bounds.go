// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"net/http"
	"time"

	"github.com/tierlimit/tierlimit/internal/identity"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// Every size and time limit of the check server. The deadline of a check itself is the limiter's.
const (
	// maxHeaderBytes bounds the request line and headers, in bytes; more is answered with 431. A
	// proxy passes on the client's own headers, and by default accepts up to 32 KiB of them.
	maxHeaderBytes = 32 << 10

	// readHeaderTimeout bounds how long a request line and its headers may take to arrive. The peer
	// is a proxy in the same cluster, so anything slower is an attack or a fault.
	readHeaderTimeout = 5 * time.Second

	// readTimeout bounds the whole request.
	readTimeout = 10 * time.Second

	// bodyTimeout bounds how long the answer waits for the rest of a body. Bodies are not looked
	// at, but the connection can only be used again behind one. If it does not come, the answer
	// goes out and the connection is closed.
	bodyTimeout = 100 * time.Millisecond

	// errorBodyTimeout bounds how long the error backend takes in a body, which nginx has received
	// in full before it sends it.
	errorBodyTimeout = 30 * time.Second

	// maxMessageBytes bounds a check over gRPC, in bytes. Envoy can be told to add the beginning of
	// the body, which is of no use here.
	maxMessageBytes = 1 << 20

	// maxConnectionIdle is when an idle gRPC connection is closed; Envoy opens another.
	maxConnectionIdle = 15 * time.Minute

	// maxStreams is how many checks at a time one gRPC connection may carry; Envoy opens another for
	// more.
	maxStreams = 1024

	// minPingInterval is how often at the most Envoy may ask whether a gRPC connection is alive.
	minPingInterval = 5 * time.Second

	// writeTimeout bounds an answer from the end of the request's headers on, and a check over gRPC:
	// the longest that a check can be made to wait for whoever identifies the caller and for Redis,
	// and time to send a few hundred bytes.
	writeTimeout = identity.MaxTimeout + limiter.MaxTimeout + 5*time.Second

	// idleTimeout is longer than the 60 seconds for which proxies usually keep an idle connection,
	// so that it is the proxy that closes it and no request meets a closing connection.
	idleTimeout = 2 * time.Minute

	// MaxConnections is how many connections each server takes at a time. An idle one takes about
	// 24 KiB, and one with unfinished headers no more, so that these fit into the memory limit of the
	// Deployment. Proxies keep hundreds.
	MaxConnections = 4096

	// DrainTime is how long checks go on being answered after a signal to stop, while callers are
	// asked to use another connection.
	DrainTime = time.Second

	// LastRequestsTime is how long requests are then still waited for on connections that were
	// taken, while no new ones are.
	LastRequestsTime = 250 * time.Millisecond

	// ShutdownMargin is what checks in flight may then take beyond their own deadline.
	ShutdownMargin = 5 * time.Second
)

// NewHTTPServer returns a server with these limits for a handler.
func NewHTTPServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: withoutTunnels(handler),
		// "OPTIONS *" is answered like any other request, not with 200 by net/http itself.
		DisableGeneralOptionsHandler: true,
		MaxHeaderBytes:               maxHeaderBytes,
		ReadHeaderTimeout:            readHeaderTimeout,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
	}
}

// HurryBody is called before an answer by a handler that does not read bodies. net/http reads what is left of
// one before it sends the answer, so that the connection can be used again.
func HurryBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		// An error means that there is no connection to wait for.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	}
}

// withoutTunnels closes the connection after a CONNECT: what follows may be meant for a tunnel, and is no
// request then.
func withoutTunnels(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, r)
	})
}
