// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

//go:embed testdata/clock.c
var clockSource []byte

// Clock is the clock of one server. It goes with that of the machine and can be set.
type Clock struct {
	t    testing.TB
	file string
}

// StartWithClock is Start with a clock that can be set while the server runs. It needs Linux and a
// C compiler, as the race detector does.
func StartWithClock(t testing.TB, args ...string) (*Server, *Clock) {
	t.Helper()
	dir := t.TempDir()
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("redistest: compiling a clock: %v: install a C compiler with 'make setup'\n%s", err, output)
	}
	c := &Clock{t: t, file: filepath.Join(dir, "offset")}
	c.Set(0)
	s := newDataServer(t, FreeAddresses(t, 1)[0], args...)
	s.env = []string{"LD_PRELOAD=" + library, "REDISTEST_CLOCK=" + c.file}
	s.Restart()
	return s, c
}

// Set sets the clock so far ahead of the machine's, in whole seconds; behind it if ahead is negative.
func (c *Clock) Set(ahead time.Duration) {
	c.t.Helper()
	file, err := os.OpenFile(c.file, os.O_WRONLY|os.O_CREATE, 0o600) // not a new file: the server has this one
	if err != nil {
		c.t.Fatal(err)
	}
	defer file.Close()
	if err := binary.Write(file, binary.NativeEndian, int64(ahead/time.Second)); err != nil {
		c.t.Fatal(err)
	}
}
