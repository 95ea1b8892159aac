// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
)

// maxHead is the longest head of an answer that is read, in bytes; a longer one is a failure.
const maxHead = 128 << 10

// newBenchClient returns a client that keeps a connection for each request at a time, all of one family of
// addresses: by its other address a client might have a second budget.
func newBenchClient(concurrency int, insecure, noKeepalive bool) *http.Client {
	dialer := new(oneFamily)
	return &http.Client{
		CheckRedirect: notFollowed,
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            dialer.dial,
			TLSClientConfig:        &tls.Config{InsecureSkipVerify: insecure}, //nolint:gosec // asked for by --insecure
			ForceAttemptHTTP2:      true,
			MaxIdleConnsPerHost:    concurrency,
			MaxConnsPerHost:        concurrency,
			MaxResponseHeaderBytes: maxHead,
			DisableKeepAlives:      noKeepalive,
			DisableCompression:     true,
		},
	}
}

// errClosed is why a request was not answered that net/http would have sent once more.
var errClosed = errors.New("the server closed the connection")

// once lets a request be sent once. net/http repeats one without a body on its own when a connection that was used
// before is closed, although the server may have received it: each may cost money and uses the budget up.
// Over HTTP/2 it does so only when the server says that it has not looked at it.
func once(ctx context.Context, cancel context.CancelCauseFunc) context.Context {
	var written atomic.Bool
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders: func() { written.Store(true) },
		GotConn: func(got httptrace.GotConnInfo) {
			if !written.Load() || isHTTP2(got.Conn) {
				return
			}
			cancel(errClosed)
			_ = got.Conn.Close() // the end of ctx alone is noticed after the request was written
		},
	})
}

func isHTTP2(connection net.Conn) bool {
	secure, ok := connection.(*tls.Conn)
	return ok && secure.ConnectionState().NegotiatedProtocol == "h2"
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
