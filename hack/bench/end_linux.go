// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"syscall"
)

// endWithBench lets the kernel end a server when this program ends, also when that is killed. The
// server is in a process group of its own: a Ctrl-C is this program's to pass on.
func endWithBench(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
