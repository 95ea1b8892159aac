// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// TestTerminationAnswersChecksInFlight sends SIGTERM while a check waits for a frozen Redis.
func TestTerminationAnswersChecksInFlight(t *testing.T) {
	server := redistest.Start(t)
	p := start(t, []string{"REDIS_URL=" + server.URL()}, "--tiers", "config/samples", "--redis-timeout", "20s")
	p.ask("user=u")
	server.Freeze()
	answered := make(chan int, 1)
	go func() { answered <- status(p.check + "/check?user=u") }()
	time.Sleep(200 * time.Millisecond)
	ended := make(chan error, 1)
	go func() { ended <- p.stop() }()
	eventually(t, "no new connection is taken", func() bool {
		connection, err := net.Dial("tcp", strings.TrimPrefix(p.check, "http://"))
		if err == nil {
			connection.Close()
		}
		return err != nil
	})
	server.Thaw()
	if got := <-answered; got != 200 {
		t.Errorf("the check in flight was answered with %d", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}

// TestTerminationUnderLoad sends SIGTERM to a process that busy clients keep connections to. A
// client that opens a new one when it is asked to loses no check.
func TestTerminationUnderLoad(t *testing.T) {
	p := start(t, nil, "--tiers", "config/samples")
	var answered, lost atomic.Int64
	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			for {
				connection, err := net.Dial("tcp", strings.TrimPrefix(p.check, "http://"))
				if err != nil {
					return // no new connection is taken: the process has ended
				}
				n, err := askUntilClosed(connection)
				answered.Add(n)
				if n == 0 && errors.Is(err, syscall.ECONNRESET) {
					return // the kernel had taken the connection, the process never did
				}
				if err != nil {
					lost.Add(1)
					t.Error(err)
				}
			}
		})
	}
	eventually(t, "the clients are busy", func() bool {
		return strings.Contains(p.get("http://"+p.metrics+"/metrics").body, `outcome="rejected"`)
	})
	if err := p.stop(); err != nil {
		t.Errorf("ended with %v", err)
	}
	clients.Wait()
	if lost.Load() > 0 {
		t.Errorf("%d of %d checks were lost", lost.Load(), answered.Load()+lost.Load())
	}
}

// askUntilClosed makes checks over one connection until the server asks to close it, and returns
// how many were answered. The error says that one was not.
func askUntilClosed(connection net.Conn) (int64, error) {
	defer connection.Close()
	reader := bufio.NewReader(connection)
	for n := int64(0); ; n++ {
		if _, err := fmt.Fprint(connection, "GET /check?user=busy HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return n, err
		}
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return n, err
		}
		if _, err := reader.Discard(int(max(response.ContentLength, 0))); err != nil {
			return n, err
		}
		if response.Close {
			return n + 1, nil
		}
	}
}
