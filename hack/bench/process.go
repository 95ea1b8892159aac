// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a server that this program has started and ends.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string // the file with what it printed
}

// startProcess starts a server that ends with ctx at the latest, and waits until ready says that it
// answers, for 10 s. The error has what it printed.
func startProcess(ctx context.Context, dir, name string, argv []string, ready func(pid int) error) (*process, error) {
	file, err := os.CreateTemp(dir, "log-*")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = file, file, dir
	endWithBench(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, log: file.Name()}
	for range 200 {
		if err = ready(cmd.Process.Pid); err == nil {
			return p, nil
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(50 * time.Millisecond):
			continue
		}
		break
	}
	p.stop()
	return nil, fmt.Errorf("%s does not answer: %w; it printed:\n%s", name, err, p.printed())
}

// stop kills the process, also a frozen one, and waits for its end.
func (p *process) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// end asks the process to end, waits until it has, and returns the end of what it printed.
func (p *process) end() string {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
	return p.printed()
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// printed is the end of what the process printed, at most 2,000 bytes.
func (p *process) printed() string {
	const most = 2000
	output, _ := os.ReadFile(p.log)
	return string(output[max(0, len(output)-most):])
}

// tick is the unit of times in /proc (USER_HZ), which Linux promises to user space.
const tick = 10 * time.Millisecond

// cpuTime is the time that all threads of a process have spent on a CPU, in steps of 10 ms.
func cpuTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	return parseStat(string(stat))
}

// parseStat adds utime and stime of a line of /proc/PID/stat.
func parseStat(stat string) (time.Duration, error) {
	const utime, stime = 11, 12 // counted from what follows the name, which may hold spaces
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= stime {
		return 0, errors.New("/proc/PID/stat is too short")
	}
	user, err := strconv.ParseInt(fields[utime], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[stime], 10, 64)
	return time.Duration(user+system) * tick, err
}

// freeAddress is a port of the loopback interface that nobody listens on now.
func freeAddress(ctx context.Context) (string, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
