// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"os/exec"
	"syscall"
)

// endWithTest lets the kernel end the server when the test process ends, also when that panics or
// is killed and cleans up nothing.
func endWithTest(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
