// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package redistest runs a real redis-server for tests. Nothing in it is compiled into Tierlimit.
package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server is a redis-server process on a free port of the loopback interface, with an empty data
// set and no persistence.
type Server struct {
	t    testing.TB
	addr string
	args []string
	cmd  *exec.Cmd
	// Client is connected to the server and meant for looking at it and preparing its data.
	Client *redis.Client
}

// Start runs a redis-server until the test ends. A missing redis-server fails the test.
// Additional arguments are passed to the server: "--requirepass", "secret".
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := &Server{t: t, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t))), args: args}
	s.Client = redis.NewClient(&redis.Options{Addr: s.addr, Password: argument(args, "--requirepass")})
	t.Cleanup(func() {
		s.stop()
		_ = s.Client.Close()
	})
	s.Restart()
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
// answers.
func (s *Server) Restart() {
	s.t.Helper()
	if s.cmd != nil {
		s.t.Fatal("redistest: the server is running already")
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		s.t.Fatalf("redistest: %v: install it with 'make setup' or your package manager", err)
	}
	host, port, _ := net.SplitHostPort(s.addr)
	log, err := os.Create(filepath.Join(s.t.TempDir(), "redis.log"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(path, append([]string{"--bind", host, "--port", port, "--save", "", "--appendonly", "no"}, s.args...)...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, s.t.TempDir()
	endWithTest(cmd)
	if err := cmd.Start(); err != nil {
		s.t.Fatalf("redistest: starting redis-server: %v", err)
	}
	s.cmd = cmd
	for range 200 {
		if s.answers() {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	output, _ := os.ReadFile(log.Name())
	s.t.Fatalf("redistest: redis-server on %s does not answer; it printed:\n%s", s.addr, output)
}

// answers reports whether this very process answers, not another that was quicker to take the port.
func (s *Server) answers() bool {
	info, err := s.Client.Info(context.Background(), "server").Result()
	return err == nil && strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", s.cmd.Process.Pid))
}

// Freeze stops the process without ending its connections (SIGSTOP), until Thaw.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw lets a frozen server go on (SIGCONT).
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(signal syscall.Signal) {
	s.t.Helper()
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
	s.cmd = nil
}

func freePort(t testing.TB) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func argument(args []string, name string) string {
	for i, arg := range args[:max(0, len(args)-1)] {
		if arg == name {
			return args[i+1]
		}
	}
	return ""
}
