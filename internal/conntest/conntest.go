// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conntest is what tests need that speak over bare connections.
package conntest

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// UntilClosed returns what comes over a connection until the other side closes it, and fails the test if
// it does not within four times the time in which it should, which leaves a slow machine enough.
func UntilClosed(t testing.TB, connection net.Conn, bound time.Duration) string {
	t.Helper()
	if err := connection.SetReadDeadline(time.Now().Add(4 * bound)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(connection)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("still open after 4 times %v; answered %.200q", bound, answer)
	}
	return string(answer)
}
