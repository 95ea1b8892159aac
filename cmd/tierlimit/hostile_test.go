// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/conntest"
	"github.com/tierlimit/tierlimit/internal/proxytest"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
)

// What internal/webhookserver/bounds.go promises.
const (
	headersWithin   = 5 * time.Second
	requestWithin   = 10 * time.Second
	errorBodyWithin = 30 * time.Second
)

// dialer opens a connection to a server under test.
type dialer func(t *testing.T) net.Conn

func plainly(address string) dialer {
	return func(t *testing.T) net.Conn {
		t.Helper()
		connection, err := net.DialTimeout("tcp", address, 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		return connection
	}
}

func secretly(address string) dialer {
	return func(t *testing.T) net.Conn {
		return tls.Client(plainly(address)(t), &tls.Config{InsecureSkipVerify: true}) // the server signs for itself
	}
}

// trickle sends a piece again and again until the connection breaks.
func trickle(connection net.Conn, piece string, every, atMost time.Duration) {
	for end := time.Now().Add(atMost); time.Now().Before(end); time.Sleep(every) {
		if _, err := io.WriteString(connection, piece); err != nil {
			return
		}
	}
}

// oversized are requests that end with an answer, whoever reads them.
var oversized = map[string]struct{ reason, request, want string }{
	"Header":         {"the bound is 32 KiB, and 4 KiB to spare", "GET /check HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("a", 40<<10) + "\r\n\r\n", "431"},
	"ManyHeaders":    {"the same, in small pieces", "GET /check HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", 10000) + "\r\n", "431"},
	"RequestLine":    {"it counts too", "GET /check?user=" + strings.Repeat("u", 64<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n", "431"},
	"EndlessLine":    {"a line that does not end is not waited for", strings.Repeat("G", 1<<20), "431"},
	"TwoLengths":     {"who is right could be used to smuggle a request", "POST /check HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "400"},
	"Encoding":       {"an encoding that is not known has no end", "POST /check HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", "501"},
	"Preface":        {"HTTP/2 is not spoken here: it is a method and a path that nobody has", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "4"},
	"NoHost":         {"not HTTP/1.1", "GET /check HTTP/1.1\r\n\r\n", "400"},
	"ControlInValue": {"not HTTP", "GET /check HTTP/1.1\r\nHost: x\r\nX-A: a\x00b\r\n\r\n", "400"},
}

// checkHostile asks a server in every way that it must not put up with.
func checkHostile(t *testing.T, dial dialer, readsBodies time.Duration) {
	for name, tc := range oversized {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connection := dial(t)
			go func() { _, _ = io.WriteString(connection, tc.request) }() // it may break before all is sent
			if answer := conntest.UntilClosed(t, connection, requestWithin); !strings.HasPrefix(answer, "HTTP/1.1 "+tc.want) && answer != "" {
				t.Errorf("answered %.100q, want %s: %s", answer, tc.want, tc.reason)
			}
		})
	}
	for name, tc := range map[string]struct {
		reason, first, piece string
		bound                time.Duration
	}{
		"Silence":     {"a connection without a request holds memory", "", "", headersWithin},
		"SlowHeaders": {"slowloris", "GET /check HTTP/1.1\r\n", "A: b\r\n", headersWithin},
		"SlowLine":    {"slowloris", "GET /che", "c", headersWithin},
		"SlowBody":    {"the same with the body", "POST /check HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n", "a", readsBodies},
		"SlowChunks":  {"the same with a body of no known length", "POST /check HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\na\r\n", readsBodies},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connection := dial(t)
			go func() {
				if tc.first == "" {
					return
				}
				_, _ = io.WriteString(connection, tc.first)
				trickle(connection, tc.piece, 100*time.Millisecond, 4*tc.bound)
			}()
			conntest.UntilClosed(t, connection, tc.bound)
		})
	}
}

// TestHostileRequests makes oversized and slow requests of each server of the real program.
func TestHostileRequests(t *testing.T) {
	backend := proxytest.FreeAddress(t)
	p := start(t, nil, "--tiers", "config/samples", "--error-backend", backend+"?tier=free", "--pprof")
	for name, tc := range map[string]struct {
		address     string
		readsBodies time.Duration
	}{
		"Check":        {strings.TrimPrefix(p.check, "http://"), requestWithin},
		"Health":       {strings.TrimPrefix(p.health, "http://"), requestWithin},
		"Metrics":      {p.metrics, requestWithin},
		"Admin":        {p.Admin, requestWithin},
		"ErrorBackend": {backend, errorBodyWithin},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkHostile(t, plainly(tc.address), tc.readsBodies)
		})
	}
}

// TestClusterHostileRequests does the same to the metrics and the admin API in a cluster, which are
// behind TLS, and has no token.
func TestClusterHostileRequests(t *testing.T) {
	p := start(t, installed(t, redistest.Start(t)), "--pprof")
	for name, address := range map[string]string{"Metrics": p.metrics, "Admin": p.Admin} {
		t.Run(name+"BeforeTLS", func(t *testing.T) {
			t.Parallel()
			conntest.UntilClosed(t, plainly(address)(t), headersWithin)
		})
		t.Run(name+"WithinTLS", func(t *testing.T) {
			t.Parallel()
			checkHostile(t, secretly(address), requestWithin)
		})
	}
}

// TestEndlessBody sends a body for as long as it is taken: little of it is.
func TestEndlessBody(t *testing.T) {
	p := start(t, nil, "--tiers", "config/samples")
	connection := plainly(strings.TrimPrefix(p.check, "http://"))(t)
	fmt.Fprint(connection, "POST /check?user=endless HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
	chunk := "10000\r\n" + strings.Repeat("x", 0x10000) + "\r\n"
	const most = 1 << 30 / 0x10000
	if err := connection.SetWriteDeadline(time.Now().Add(4 * requestWithin)); err != nil {
		t.Fatal(err)
	}
	for sent := range most {
		if _, err := io.WriteString(connection, chunk); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("not closed after %d chunks of 64 KiB", sent)
			}
			return
		}
	}
	t.Error("it has taken a body of 1 GiB")
}

// TestPipelining sends many requests without waiting for answers: each gets its own, in order.
func TestPipelining(t *testing.T) {
	p := start(t, nil, "--tiers", "config/samples")
	connection := plainly(strings.TrimPrefix(p.check, "http://"))(t)
	const requests = 500
	go func() {
		for i := range requests {
			ending := ""
			if i == requests-1 {
				ending = "Connection: close\r\n"
			}
			fmt.Fprintf(connection, "GET /check?tier=enterprise&user=u%d HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n%s\r\n", i, ending)
		}
	}()
	answers := conntest.UntilClosed(t, connection, requestWithin)
	if got := strings.Count(answers, "HTTP/1.1 200 OK\r\n"); got != requests || strings.Contains(answers, "HTTP/1.1 101") {
		t.Errorf("%d of %d requests are answered with 200", got, requests)
	}
}

// TestManyConnections opens as many connections as are taken, and one more: that waits until
// another ends, and the process has memory left.
func TestManyConnections(t *testing.T) {
	p := start(t, nil, "--tiers", "config/samples")
	dial := plainly(strings.TrimPrefix(p.check, "http://"))
	ask := func(connection net.Conn, user int) bool {
		fmt.Fprintf(connection, "GET /check?tier=enterprise&user=u%d HTTP/1.1\r\nHost: x\r\n\r\n", user)
		_ = connection.SetReadDeadline(time.Now().Add(30 * time.Second))
		status := make([]byte, len("HTTP/1.1 200"))
		_, err := io.ReadFull(connection, status)
		return err == nil && string(status) == "HTTP/1.1 200"
	}
	var open []net.Conn
	for i := range webhookserver.MaxConnections {
		connection := dial(t)
		open = append(open, connection)
		if !ask(connection, i) { // so that it is idle, and not closed for its silence
			t.Fatalf("connection %d is not answered", i)
		}
	}
	oneMore := dial(t) // the kernel takes it
	fmt.Fprint(oneMore, "GET /check?tier=enterprise&user=u HTTP/1.1\r\nHost: x\r\n\r\n")
	_ = oneMore.SetReadDeadline(time.Now().Add(time.Second))
	if _, err := oneMore.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one connection more is answered: %v", err)
	}
	open[0].Close()
	_ = oneMore.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := oneMore.Read(make([]byte, 1)); err != nil {
		t.Errorf("after another has ended: %v", err)
	}
}
