// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestCutLosesRepliesOfWhatWasExecuted(t *testing.T) {
	const ping, incr = "*1\r\n$4\r\nPING\r\n", "*2\r\n$4\r\nInCr\r\n$1\r\nn\r\n"
	cases := map[string]struct {
		reason string
		cut    func(p *Proxy)
		writes []string
		want   string // what arrives
		err    error
		n      string
	}{
		"Single":      {"One request.", func(p *Proxy) { p.Cut(1, "incr") }, []string{incr}, "", io.EOF, "1"},
		"Reset":       {"The same with a reset.", func(p *Proxy) { p.Reset(1, "INCR") }, []string{incr}, "", syscall.ECONNRESET, "1"},
		"Pipeline":    {"All requests of the write are executed.", func(p *Proxy) { p.Cut(1, "incr") }, []string{ping + incr + ping + strings.Repeat(incr, 99)}, "", io.EOF, "100"},
		"Slow":        {"Also those that wait.", func(p *Proxy) { p.Cut(1, "incr") }, []string{incr + "*3\r\n$5\r\nBLPOP\r\n$1\r\nx\r\n$3\r\n0.2\r\n" + incr}, "", io.EOF, "2"},
		"Earlier":     {"Replies to earlier writes arrive.", func(p *Proxy) { p.Cut(1, "incr") }, []string{ping, ping, incr}, "+PONG\r\n+PONG\r\n", io.EOF, "1"},
		"InTwoPieces": {"The request is forwarded to its end.", func(p *Proxy) { p.Cut(1, "incr") }, []string{incr[:15], incr[15:]}, "", io.EOF, "1"},
		"NoMarker":    {"Nothing is cut.", func(p *Proxy) { p.Cut(1, "other") }, []string{incr + "*1\r\n$4\r\nQUIT\r\n"}, ":1\r\n+OK\r\n", io.EOF, "1"},
		"NoneLeft":    {"Nothing is cut.", func(p *Proxy) { p.Cut(0, "incr") }, []string{incr + "*1\r\n$4\r\nQUIT\r\n"}, ":1\r\n+OK\r\n", io.EOF, "1"},
	}
	server := Start(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server.Client.FlushAll(context.Background())
			p := StartProxy(t, server.Addr())
			p.Delay(50 * time.Millisecond) // earlier replies are still on their way
			tc.cut(p)
			connection, err := net.Dial("tcp", p.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer connection.Close()
			for i, write := range tc.writes {
				if i > 0 {
					time.Sleep(10 * time.Millisecond) // a write of its own
				}
				if _, err := io.WriteString(connection, write); err != nil {
					t.Fatal(err)
				}
			}
			got, err := readAll(connection)
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%s got %q, %v, want %q, %v", tc.reason, got, err, tc.want, tc.err)
			}
			wantValue(t, server.Client, "n", tc.n) // already executed
		})
	}
}

func TestClientRepeatsWhatWasCut(t *testing.T) {
	server := Start(t)
	p := StartProxy(t, server.Addr())
	client := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: 3})
	defer client.Close()
	p.Cut(3, "incr")
	for range 2 {
		if err := client.Incr(context.Background(), "n").Err(); err != nil {
			t.Fatal(err)
		}
	}
	wantValue(t, server.Client, "n", "5") // three lost, two that arrived
}

func TestBlackHoleIsSilentUntilItHeals(t *testing.T) {
	server := Start(t)
	p := StartProxy(t, server.Addr())
	old := dial(t, p)
	ping(t, old)

	p.BlackHole()
	before := server.Client.Info(context.Background(), "stats").Val()
	if before == "" {
		t.Fatal("the server itself does not answer")
	}
	fresh := dial(t, p)
	for name, connection := range map[string]net.Conn{"old": old, "new": fresh} {
		if _, err := io.WriteString(connection, "INCR n\r\n"); err != nil {
			t.Errorf("%s connection: %v, want silence", name, err)
		}
		_ = connection.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if n, err := connection.Read(make([]byte, 1)); n != 0 || !isTimeout(err) {
			t.Errorf("%s connection: read %d bytes, %v, want silence", name, n, err)
		}
		_ = connection.SetReadDeadline(time.Time{})
	}
	if n := server.Client.Exists(context.Background(), "n").Val(); n != 0 {
		t.Error("a request has come through")
	}

	p.Heal()
	for _, connection := range []net.Conn{old, fresh} {
		if line, err := bufio.NewReader(connection).ReadString('\n'); err != nil || !strings.HasPrefix(line, ":") {
			t.Errorf("after the end: %q, %v, want the reply", line, err)
		}
		ping(t, connection)
	}
	wantValue(t, server.Client, "n", "2")
}

func TestDisconnectDropsWhatABlackHoleHolds(t *testing.T) {
	server := Start(t)
	p := StartProxy(t, server.Addr())
	connection := dial(t, p)
	ping(t, connection)
	p.BlackHole()
	if _, err := io.WriteString(connection, "INCR n\r\n"); err != nil {
		t.Fatal(err)
	}
	p.Disconnect()
	if got, err := readAll(connection); got != "" || isTimeout(err) {
		t.Errorf("got %q, %v, want the end of the connection", got, err)
	}
	p.Heal()
	ping(t, dial(t, p))
	if n := server.Client.Exists(context.Background(), "n").Val(); n != 0 {
		t.Error("the request has come through")
	}
}

func TestDelayHoldsRepliesUpTogether(t *testing.T) {
	const delay, requests = 300 * time.Millisecond, 10
	p := StartProxy(t, Start(t).Addr())
	connection := dial(t, p)
	p.Delay(delay)
	start := time.Now()
	for range requests {
		if _, err := io.WriteString(connection, "PING\r\n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(delay / 100) // replies in pieces of their own
	}
	replies := bufio.NewReader(connection)
	for i := range requests {
		if _, err := replies.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); i == 0 && took < delay {
			t.Errorf("the first reply came after %v, want %v", took, delay)
		}
	}
	if took := time.Since(start); took > requests*delay/2 {
		t.Errorf("%d replies took %v: one waited for the other", requests, took)
	}
	p.Delay(0)
	ping(t, connection)
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	connection, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

func ping(t *testing.T, connection net.Conn) {
	t.Helper()
	_ = connection.SetDeadline(time.Now().Add(20 * time.Second))
	defer connection.SetDeadline(time.Time{})
	if _, err := io.WriteString(connection, "PING\r\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := bufio.NewReader(connection).ReadString('\n'); got != "+PONG\r\n" {
		t.Fatalf("got %q, %v, want PONG", got, err)
	}
}

// readAll reads until the end of the connection, of which it also returns the kind.
func readAll(connection net.Conn) (string, error) {
	_ = connection.SetReadDeadline(time.Now().Add(20 * time.Second))
	var all strings.Builder
	buffer := make([]byte, 1024)
	for {
		n, err := connection.Read(buffer)
		all.Write(buffer[:n])
		if err != nil {
			return all.String(), err
		}
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
