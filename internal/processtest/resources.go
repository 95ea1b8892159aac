// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package processtest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// clockTick is the unit of times in /proc, on every Linux that there is.
const clockTick = 10 * time.Millisecond

// Resources are what a process has used.
type Resources struct {
	// CPU is the time of all cores since its start.
	CPU time.Duration
	// Memory is what it has of the machine's now, in bytes.
	Memory int64
}

// Resources returns what the process has used. It needs Linux.
func (p *Process) Resources(t testing.TB) Resources {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	// The fields after the name, which ends with a parenthesis, from the third on (proc(5)).
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	number := func(field int) int64 {
		n, err := strconv.ParseInt(fields[field-3], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return Resources{
		CPU:    time.Duration(number(14)+number(15)) * clockTick,
		Memory: number(24) * int64(os.Getpagesize()),
	}
}
