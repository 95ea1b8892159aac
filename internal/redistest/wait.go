// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"
)

// Servers get ports below those that Linux gives to connections (32768 and up): a port stays free
// while its server is down, and nobody who calls a dead server's port can reach himself there.
const firstPort, endPort = 15000, 32768

// FreeAddresses returns n different addresses of the loopback interface on which nobody listens.
func FreeAddresses(t testing.TB, n int) []string {
	t.Helper()
	var addrs []string
	for range 1000 {
		if len(addrs) == n {
			return addrs
		}
		port := firstPort + rand.IntN(endPort-firstPort)
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue // taken
		}
		defer listener.Close() // only now, so that no port is given twice
		addrs = append(addrs, listener.Addr().String())
	}
	t.Fatalf("redistest: no %d free ports from %d to %d", n, firstPort, endPort-1)
	return nil
}

// eventually waits until done returns nil, for half a minute, and then fails the test with the
// last error.
func eventually(t testing.TB, what string, done func() error) {
	t.Helper()
	var err error
	for start := time.Now(); time.Since(start) < 30*time.Second; time.Sleep(25 * time.Millisecond) {
		if err = done(); err == nil {
			return
		}
	}
	t.Fatalf("redistest: %s: %v", what, err)
}
