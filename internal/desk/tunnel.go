// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// forwarder returns what opens a port-forward to a Pod, as kubectl does: through a WebSocket, or with
// SPDY where the API server or a proxy in between does not do that.
func forwarder(config *rest.Config, address *url.URL) (httpstream.Dialer, error) {
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	overSPDY := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, address)
	overWebSocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(address, config)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialerForStreaming(overWebSocket, overSPDY, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// tunnel is a port-forward to one Pod, which carries any number of connections. It is opened by the
// first and again after it broke. Nothing listens on this machine.
type tunnel struct {
	dialer httpstream.Dialer
	port   int

	closed atomic.Bool

	mu   sync.Mutex
	open httpstream.Connection
	next int // number of the next connection
}

// forwardError is a port-forward that the API server or the kubelet did not make.
type forwardError struct{ cause error }

func (e *forwardError) Error() string { return "no port-forward: " + e.cause.Error() }
func (e *forwardError) Unwrap() error { return e.cause }

// close ends the tunnel. It does not wait for one that is being opened, which may hang: that ends itself.
func (t *tunnel) close() {
	t.closed.Store(true)
	if !t.mu.TryLock() {
		return
	}
	defer t.mu.Unlock()
	t.end()
}

// end closes what is open. It is called with mu.
func (t *tunnel) end() {
	if t.open != nil {
		_ = t.open.Close()
		t.open = nil
	}
}

// dial makes a connection to the port of the Pod. Whether something listens there shows with the first
// Read. It ends with ctx, although opening the tunnel itself may go on until the API server answers.
func (t *tunnel) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	type result struct {
		connection net.Conn
		err        error
	}
	done := make(chan result, 1)
	go func() {
		connection, err := t.connect()
		done <- result{connection, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, &forwardError{r.err}
		}
		return r.connection, nil
	case <-ctx.Done():
		go func() {
			if r := <-done; r.connection != nil {
				_ = r.connection.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

func (t *tunnel) connect() (net.Conn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open != nil {
		select {
		case <-t.open.CloseChan():
			t.open = nil
		default:
		}
	}
	if t.open == nil {
		open, protocol, err := t.dialer.Dial(portforward.PortForwardProtocolV1Name)
		if err != nil {
			return nil, err
		}
		if protocol != portforward.PortForwardProtocolV1Name {
			_ = open.Close()
			return nil, fmt.Errorf("the API server speaks %q instead of %q", protocol, portforward.PortForwardProtocolV1Name)
		}
		t.open = open
	}
	t.next++
	connection, err := forward(t.open, t.port, t.next)
	if err == nil && t.closed.Load() {
		err = net.ErrClosed
	}
	if err != nil {
		t.end()
		return nil, err
	}
	return connection, nil
}

// forward makes the two streams of a connection: one for what goes wrong and one for the data.
func forward(open httpstream.Connection, port, id int) (net.Conn, error) {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, strconv.Itoa(id))
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	failure, err := open.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	_ = failure.Close() // for writing
	c := &forwarded{open: open, failure: failure, failed: make(chan struct{})}
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	if c.Stream, err = open.CreateStream(headers); err != nil {
		open.RemoveStreams(failure)
		return nil, err
	}
	go c.listen()
	return c, nil
}

// forwarded is one connection through a tunnel.
type forwarded struct {
	httpstream.Stream
	open    httpstream.Connection
	failure httpstream.Stream
	failed  chan struct{} // closed when the stream of failures has ended
	why     error         // set before that; nil for none
	end     sync.Once
}

// listen waits for what the kubelet says went wrong, and ends the connection with it.
func (c *forwarded) listen() {
	const enough = 4096
	message, err := io.ReadAll(io.LimitReader(c.failure, enough))
	if text := strings.TrimSpace(string(message)); text != "" {
		c.why = &forwardError{errors.New(text)}
	} else if err != nil && !errors.Is(err, io.EOF) {
		c.why = err
	}
	close(c.failed)
	if c.why != nil {
		_ = c.Reset()
	}
}

// Read returns what the kubelet said went wrong in place of the end that follows from it.
func (c *forwarded) Read(p []byte) (int, error) {
	n, err := c.Stream.Read(p)
	if err == nil {
		return n, nil
	}
	const late = 2 * time.Second // the message may come after the end
	select {
	case <-c.failed:
		if c.why != nil {
			return n, c.why
		}
	case <-time.After(late):
	}
	return n, err
}

// Close ends the connection; the tunnel stays.
func (c *forwarded) Close() error {
	c.end.Do(func() {
		_ = c.Reset()
		_ = c.failure.Reset()
		c.open.RemoveStreams(c.Stream, c.failure)
	})
	return nil
}

// The addresses of a connection mean nothing, and it has no deadlines: requests are bounded by their contexts,
// whose end closes it.

type forwardedAddress struct{}

// Network implements net.Addr.
func (forwardedAddress) Network() string { return "port-forward" }

func (forwardedAddress) String() string { return "port-forward" }

// LocalAddr implements net.Conn.
func (c *forwarded) LocalAddr() net.Addr { return forwardedAddress{} }

// RemoteAddr implements net.Conn.
func (c *forwarded) RemoteAddr() net.Addr { return forwardedAddress{} }

// SetDeadline implements net.Conn.
func (c *forwarded) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (c *forwarded) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (c *forwarded) SetWriteDeadline(time.Time) error { return nil }
