// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package redistest runs real redis-servers for tests: one, one with TLS, one with sentinels, a
// cluster, and any behind a bad network. Nothing in it is compiled into Tierlimit.
package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server is a redis-server process on a free port of the loopback interface, with an empty data
// set and no persistence.
type Server struct {
	t      testing.TB
	addr   string
	args   []string
	env    []string // beside the test's
	dir    string
	cmd    *exec.Cmd
	frozen bool
	// Client is connected to the server and meant for looking at it and preparing its data.
	Client *redis.Client
}

// Start runs a redis-server until the test ends. A missing redis-server fails the test.
// Additional arguments are passed to the server: "--requirepass", "secret".
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := newDataServer(t, FreeAddresses(t, 1)[0], args...)
	s.Restart()
	return s
}

// newDataServer is a server that does not run yet.
func newDataServer(t testing.TB, addr string, args ...string) *Server {
	t.Helper()
	host, port, _ := net.SplitHostPort(addr)
	args = append([]string{"--bind", host, "--port", port, "--save", "", "--appendonly", "no"}, args...)
	return newServer(t, &redis.Options{Addr: addr, Password: argument(args, "--requirepass")}, args...)
}

// newServer is a process that does not run yet, with all its arguments and a client's options.
func newServer(t testing.TB, options *redis.Options, args ...string) *Server {
	t.Helper()
	// The folder first: it is removed last, when nothing is written there any more.
	s := &Server{t: t, addr: options.Addr, args: args, dir: t.TempDir(), Client: redis.NewClient(options)}
	t.Cleanup(func() {
		s.stop()
		_ = s.Client.Close()
	})
	return s
}

// Addr is the server's host:port.
func (s *Server) Addr() string { return s.addr }

// URL is the server's URL, without a password.
func (s *Server) URL() string { return "redis://" + s.addr }

// Stop kills the server as a crash would. Its data is lost.
func (s *Server) Stop() {
	s.t.Helper()
	if s.cmd == nil {
		s.t.Fatal("redistest: the server is not running")
	}
	s.stop()
}

// Restart runs the server again on the same port, with an empty data set, and waits until it
// answers. A node of a cluster remembers the cluster, a sentinel what it watches.
func (s *Server) Restart() {
	s.t.Helper()
	startAll(s)
}

// startAll runs servers at the same time and waits until each answers.
func startAll(servers ...*Server) {
	for _, s := range servers {
		s.t.Helper()
		s.launch()
	}
	for _, s := range servers {
		s.await()
	}
}

func (s *Server) launch() {
	s.t.Helper()
	if s.cmd != nil {
		s.t.Fatal("redistest: the server is running already")
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		s.t.Fatalf("redistest: %v: install it with 'make setup' or your package manager", err)
	}
	log, err := os.Create(s.log())
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(path, s.args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, s.dir
	cmd.Env = append(os.Environ(), s.env...)
	endWithTest(cmd)
	if err := cmd.Start(); err != nil {
		s.t.Fatalf("redistest: starting redis-server: %v", err)
	}
	s.cmd = cmd
}

func (s *Server) await() {
	s.t.Helper()
	for range 400 {
		if s.answers() {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	output, _ := os.ReadFile(s.log())
	s.t.Fatalf("redistest: redis-server on %s does not answer; it printed:\n%s", s.addr, output)
}

func (s *Server) log() string { return filepath.Join(s.dir, "redis.log") }

// answers reports whether this very process answers, not another that was quicker to take the port.
func (s *Server) answers() bool {
	info, err := s.Client.Info(context.Background(), "server").Result()
	return err == nil && strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", s.cmd.Process.Pid))
}

// Freeze stops the process without ending its connections (SIGSTOP), until Thaw.
func (s *Server) Freeze() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	s.frozen = true
}

// Thaw lets a frozen server go on (SIGCONT).
func (s *Server) Thaw() {
	s.t.Helper()
	s.signal(syscall.SIGCONT)
	s.frozen = false
}

func (s *Server) signal(signal syscall.Signal) {
	s.t.Helper()
	if s.cmd == nil {
		s.t.Fatalf("redistest: the server is not running: no %v for it", signal)
	}
	if err := s.cmd.Process.Signal(signal); err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
}

func (s *Server) stop() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // also ends a frozen process
	_ = s.cmd.Wait()
	s.cmd, s.frozen = nil, false
}

// running reports whether the server can be expected to answer.
func (s *Server) running() bool { return s.cmd != nil && !s.frozen }

func argument(args []string, name string) string {
	for i, arg := range args[:max(0, len(args)-1)] {
		if arg == name {
			return args[i+1]
		}
	}
	return ""
}
