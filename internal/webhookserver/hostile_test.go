// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tierlimit/tierlimit/internal/conntest"
)

// TestConnectEndsTheConnection sends two requests: what follows CONNECT may be meant for a tunnel.
func TestConnectEndsTheConnection(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.Config = NewHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	server.Start()
	defer server.Close()
	connection := dial(t, server.URL)
	fmt.Fprint(connection, "CONNECT /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	answer := conntest.UntilClosed(t, connection, readTimeout)
	if got := strings.Count(answer, "HTTP/1.1 "); got != 1 {
		t.Errorf("%d answers:\n%s", got, answer)
	}
}

// grpcConnection speaks HTTP/2 frame by frame, as no client library would.
type grpcConnection struct {
	t testing.TB
	net.Conn
	*http2.Framer
}

func connectGRPC(t testing.TB, within time.Duration) grpcConnection {
	t.Helper()
	e := newEndpoint(new(recorder), nil, budget("free", 5, 100))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := e.newGRPCServer(within)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	connection, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	c := grpcConnection{t, connection, http2.NewFramer(connection, connection)}
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return c
}

// begin opens the connection as a client does, with pairs of name and value as further headers of the
// first check, which stays without a message.
func (c grpcConnection) begin(headers ...string) {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, http2.ClientPreface); err != nil {
		c.t.Fatal(err)
	}
	if err := c.WriteSettings(); err != nil {
		c.t.Fatal(err)
	}
	c.open(1, headers...)
}

// open begins a check. An error means that the server has closed the connection.
func (c grpcConnection) open(stream uint32, headers ...string) {
	c.t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	all := append([]string{":method", "POST", ":scheme", "http", ":path", "/envoy.service.auth.v3.Authorization/Check", ":authority", "x", "content-type", "application/grpc", "te", "trailers"}, headers...)
	for i := 0; i+1 < len(all); i += 2 {
		_ = encoder.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]})
	}
	const piece = 16 << 10 // the largest frame
	first := true
	for {
		part := block.Next(piece)
		end := block.Len() == 0
		if first {
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: part, EndHeaders: end})
		} else {
			_ = c.WriteContinuation(stream, end, part)
		}
		if first = false; end {
			return
		}
	}
}

// await returns the first frame that is wanted, and fails the test if none has come after a minute.
func (c grpcConnection) await(what string, wanted func(http2.Frame) bool) http2.Frame {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		c.t.Fatal(err)
	}
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			c.t.Fatalf("waiting for %s: %v", what, err)
		}
		if wanted(frame) {
			return frame
		}
	}
}

func TestGRPCAnnouncesItsBounds(t *testing.T) {
	c := connectGRPC(t, writeTimeout)
	c.begin()
	settings := c.await("the settings", func(f http2.Frame) bool {
		s, ok := f.(*http2.SettingsFrame)
		return ok && !s.IsAck()
	}).(*http2.SettingsFrame)
	for id, want := range map[http2.SettingID]uint32{http2.SettingMaxConcurrentStreams: maxStreams, http2.SettingMaxHeaderListSize: maxHeaderBytes} {
		if got, ok := settings.Value(id); !ok || got != want {
			t.Errorf("%v is %d, want %d", id, got, want)
		}
	}
}

// ended returns whether a frame refuses or ends a stream: by a reset or by a status other than OK.
func ended(stream uint32) func(http2.Frame) bool {
	return func(f http2.Frame) bool {
		if f.Header().StreamID != stream {
			return false
		}
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			return true
		case *http2.MetaHeadersFrame:
			for _, field := range f.Fields {
				if field.Name == "grpc-status" {
					return field.Value != "0"
				}
			}
		}
		return false
	}
}

func TestGRPCRefusesTooManyStreams(t *testing.T) {
	c := connectGRPC(t, writeTimeout)
	c.begin()
	go func() {
		for i := range uint32(maxStreams) {
			c.open(2*i + 3)
		}
	}()
	c.await("the refusal of one stream more", ended(2*maxStreams+1))
}

func TestGRPCRefusesLargeHeaders(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		bytes    int
		answered bool
	}{
		"Within": {"a proxy passes on what a client sends", maxHeaderBytes / 2, true},
		"Beyond": {"more is an attack or a fault", maxHeaderBytes + 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := connectGRPC(t, writeTimeout)
			go func() {
				c.begin("x-a", strings.Repeat("~", tc.bytes)) // Huffman coding does not shorten it
				_ = c.WriteData(1, true, make([]byte, 5))     // an empty message
			}()
			if got := c.answered(1); got != tc.answered {
				t.Errorf("answered: %v, but %s", got, tc.reason)
			}
		})
	}
}

// answered returns whether a check is answered, and not refused or the connection closed.
func (c grpcConnection) answered(stream uint32) bool {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		c.t.Fatal(err)
	}
	for {
		frame, err := c.ReadFrame()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.t.Fatal("neither answered nor refused")
		}
		if err != nil || ended(stream)(frame) {
			return false
		}
		if f, ok := frame.(*http2.MetaHeadersFrame); ok && f.StreamID == stream && f.StreamEnded() {
			return true
		}
	}
}

// The caller's message does not come, and it has set no deadline.
func TestGRPCEndsAnUnfinishedCheck(t *testing.T) {
	c := connectGRPC(t, time.Second)
	c.begin()
	// A message of 100,000 bytes, of which there are 5.
	if err := c.WriteData(1, false, []byte{0, 0, 1, 0x86, 0xa0, 1, 2, 3, 4, 5}); err != nil {
		t.Fatal(err)
	}
	c.await("the end of the check", ended(1))
}

func TestGRPCEndsTooManyPings(t *testing.T) {
	c := connectGRPC(t, writeTimeout)
	c.begin()
	go func() {
		for range 100 {
			if c.WritePing(false, [8]byte{}) != nil {
				return
			}
		}
	}()
	goAway := c.await("the end of the connection", func(f http2.Frame) bool { _, ok := f.(*http2.GoAwayFrame); return ok }).(*http2.GoAwayFrame)
	if goAway.ErrCode != http2.ErrCodeEnhanceYourCalm {
		t.Errorf("ended with %v", goAway.ErrCode)
	}
}

func TestGRPCEndsConnectionsWithoutHTTP2(t *testing.T) {
	for name, first := range map[string]string{"Silence": "", "HTTP1": "GET /check HTTP/1.1\r\nHost: x\r\n\r\n", "HalfAPreface": http2.ClientPreface[:10]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connectGRPC(t, writeTimeout)
			if _, err := io.WriteString(c.Conn, first); err != nil {
				t.Fatal(err)
			}
			conntest.UntilClosed(t, c.Conn, readTimeout)
		})
	}
}

func TestGRPCRefusesLargeMessages(t *testing.T) {
	v := startEnvoy(t, newEndpoint(new(recorder), nil, budget("free", 5, 100)))
	r := request("203.0.113.7", nil)
	r.Attributes.Request.Http.Body = strings.Repeat("a", maxMessageBytes)
	if _, err := v.client.Check(t.Context(), r); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v", err)
	}
}
