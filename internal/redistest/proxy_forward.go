// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"context"
	"math"
	"net"
	"sync"
	"time"
)

const never = math.MaxInt

// forwarding is one connection through a Proxy. Redis replies in the order of the requests, so
// that both are numbered and a reply is known by its number.
type forwarding struct {
	proxy            *Proxy
	client, upstream net.Conn
	ctx              context.Context
	cancel           context.CancelFunc // ends both connections
	replies          chan reply

	mu     sync.Mutex
	lost   int  // replies from this number on are lost
	endCut int  // the connection ends when there have been this many replies
	reset  bool // by a reset
}

// reply is a piece of replies on its way to the client.
type reply struct {
	data []byte
	due  time.Time
	end  bool // the connection ends after it
}

func (f *forwarding) run() {
	var err error
	if f.upstream, err = (&net.Dialer{}).DialContext(f.ctx, "tcp", f.proxy.server); err != nil {
		return
	}
	defer f.upstream.Close()
	stop := context.AfterFunc(f.ctx, func() {
		_ = f.client.Close()
		_ = f.upstream.Close()
	})
	defer stop()
	var wait sync.WaitGroup
	wait.Go(f.requests)
	wait.Go(f.receive)
	wait.Go(f.deliver)
	wait.Wait()
}

// requests forwards what the client sends, up to the end of a write whose replies are to be lost.
func (f *forwarding) requests() {
	var stream frames
	sent, cut := 0, false
	buffer := make([]byte, 64<<10)
	for {
		n, err := f.client.Read(buffer)
		if !f.proxy.pass(f.ctx) {
			return
		}
		if err != nil {
			f.cancel()
			return
		}
		before := sent
		for rest := buffer[:n]; len(rest) > 0; {
			size, ended := stream.next(rest)
			rest = rest[size:]
			if ended {
				sent++
			}
		}
		// Before the server has the last byte: its reply must find the decision.
		if !cut {
			cut = f.decide(buffer[:n], before)
		}
		ends := cut && !stream.begun()
		if ends {
			f.mu.Lock()
			f.endCut = sent
			f.mu.Unlock()
		}
		if _, err := f.upstream.Write(buffer[:n]); err != nil {
			f.cancel()
			return
		}
		if ends {
			return // receive ends the connection
		}
	}
}

// decide reports whether the replies to this data are to be lost.
func (f *forwarding) decide(data []byte, before int) bool {
	cut, reset := f.proxy.takeCut(data)
	if cut {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.lost, f.reset = before, reset
	}
	return cut
}

// receive reads replies until the server ends the connection or the last one of a cut was seen.
func (f *forwarding) receive() {
	var stream frames
	seen := 0
	for {
		buffer := make([]byte, 64<<10)
		n, err := f.upstream.Read(buffer)
		r := reply{due: time.Now().Add(f.proxy.currentDelay()), end: err != nil}
		for rest := buffer[:n]; len(rest) > 0; {
			size, ended := stream.next(rest)
			f.mu.Lock()
			if seen < f.lost {
				r.data = append(r.data, rest[:size]...)
			}
			if ended {
				seen++
			}
			r.end = r.end || seen >= f.endCut
			f.mu.Unlock()
			rest = rest[size:]
		}
		select {
		case f.replies <- r:
		case <-f.ctx.Done():
			return
		}
		if r.end {
			return
		}
	}
}

// deliver gives the client its replies when they are due. The delay of one does not hold up the
// reading of the next.
func (f *forwarding) deliver() {
	defer f.cancel()
	for {
		var r reply
		select {
		case r = <-f.replies:
		case <-f.ctx.Done():
			return
		}
		select {
		case <-time.After(time.Until(r.due)):
		case <-f.ctx.Done():
			return
		}
		if !f.proxy.pass(f.ctx) {
			return
		}
		if _, err := f.client.Write(r.data); err != nil {
			return
		}
		if r.end {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.reset {
				_ = f.client.(*net.TCPConn).SetLinger(0)
			}
			return
		}
	}
}
