// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy forwards connections to a server and makes a bad network of them. All methods may be
// called at any time, by any goroutine.
type Proxy struct {
	addr, server string
	ctx          context.Context
	cancel       context.CancelFunc // ends the proxy

	mu      sync.Mutex
	cuts    int
	marker  []byte
	reset   bool
	delay   time.Duration
	hole    chan struct{} // not nil during a black hole, closed by its end
	forward map[*forwarding]struct{}
}

// StartProxy runs a proxy in front of a server's host:port until the test ends.
func StartProxy(t testing.TB, server string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{addr: listener.Addr().String(), server: server, forward: map[*forwarding]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	var wait sync.WaitGroup
	t.Cleanup(func() {
		p.cancel()
		_ = listener.Close()
		wait.Wait()
	})
	wait.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			wait.Go(func() { p.serve(client.(*net.TCPConn)) })
		}
	})
	return p
}

// Addr is the proxy's host:port.
func (p *Proxy) Addr() string { return p.addr }

// URL is the URL of the server behind the proxy, without a password.
func (p *Proxy) URL() string { return "redis://" + p.addr }

// Cut loses the replies to the next n writes that have the marker in them, such as "evalsha" in
// lower or upper case. A write is what a client sends in one piece: one request, or all those of a
// pipeline. The server has executed them all when the connection is closed. Earlier replies on the
// connection arrive.
//
// A write in more than one piece counts as the first piece with the marker, and a write with TLS
// has no marker.
func (p *Proxy) Cut(n int, marker string) { p.setCuts(n, marker, false) }

// Reset is Cut with a connection that is reset (RST), not closed.
func (p *Proxy) Reset(n int, marker string) { p.setCuts(n, marker, true) }

func (p *Proxy) setCuts(n int, marker string, reset bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts, p.marker, p.reset = n, bytes.ToLower([]byte(marker)), reset
}

// takeCut reports whether the reply to this data is to be lost, and whether by a reset.
func (p *Proxy) takeCut(data []byte) (cut, reset bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cuts <= 0 || !bytes.Contains(bytes.ToLower(data), p.marker) {
		return false, false
	}
	p.cuts--
	return true, p.reset
}

// Delay makes every reply arrive so much later. Zero ends that.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

func (p *Proxy) currentDelay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay
}

// BlackHole lets nothing through any more, in no direction, on old and new connections, and closes
// none: neither side learns anything. New connections are accepted, as by a server's kernel.
func (p *Proxy) BlackHole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hole == nil {
		p.hole = make(chan struct{})
	}
}

// Heal ends a black hole. What was sent meanwhile arrives now, as it does when a network comes
// back: also requests that their client has given up. Disconnect before Heal drops it.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hole != nil {
		close(p.hole)
		p.hole = nil
	}
}

// Disconnect closes all connections, with what has not arrived.
func (p *Proxy) Disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for f := range p.forward {
		f.cancel()
	}
}

// pass waits for the end of a black hole and reports whether the connection is still wanted.
func (p *Proxy) pass(ctx context.Context) bool {
	for ctx.Err() == nil {
		p.mu.Lock()
		hole := p.hole
		p.mu.Unlock()
		if hole == nil {
			return true
		}
		select {
		case <-hole:
		case <-ctx.Done():
		}
	}
	return false
}

func (p *Proxy) serve(client *net.TCPConn) {
	defer client.Close()
	f := &forwarding{proxy: p, client: client, replies: make(chan reply, 1024), endCut: never, lost: never}
	f.ctx, f.cancel = context.WithCancel(p.ctx)
	defer f.cancel()
	p.mu.Lock()
	p.forward[f] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.forward, f)
	}()
	if p.pass(f.ctx) {
		f.run()
	}
}
