// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/internal/webhookserver"
)

// ending is how far a process has come that was asked to end. An http.Server that shuts down does
// not answer a request that arrives on a connection it has already taken, so two stages go before:
// callers are asked to close their connections, and then no new ones are taken.
type ending struct {
	asked   context.Context // ends with the signal: answers ask to close the connection
	refused context.Context // ends when no new connection is to be taken
}

// endInStages returns a context that ends when the servers are to shut down, and the stages before,
// which begin when asked ends.
func endInStages(asked context.Context) (context.Context, ending) {
	refused := delayed(asked, webhookserver.DrainTime)
	return delayed(refused, webhookserver.LastRequestsTime), ending{asked: asked, refused: refused}
}

// delayed returns a context that ends some time after ctx.
func delayed(ctx context.Context, by time.Duration) context.Context {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(by, cancel) })
	return later
}

// refusingListener is a listener that can stop taking connections before its server shuts down.
type refusingListener struct {
	net.Listener
	refused context.Context
	closed  chan struct{}
	once    sync.Once
}

func newRefusingListener(listener net.Listener, refused context.Context) *refusingListener {
	l := &refusingListener{Listener: listener, refused: refused, closed: make(chan struct{})}
	context.AfterFunc(refused, func() { _ = listener.Close() })
	return l
}

// Accept waits for the next connection or, when none is taken any more, for Close.
func (l *refusingListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err != nil && l.refused.Err() != nil {
		<-l.closed
	}
	return connection, err
}

// Close implements net.Listener.
func (l *refusingListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	if l.refused.Err() != nil {
		return nil // it is closed already
	}
	return l.Listener.Close()
}
