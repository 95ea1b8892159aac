// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package proxytest puts the check endpoint, a real Redis and an application behind real proxies.
// Its tests are those of the recipes in docs/ingress. Nothing in it is compiled into Tierlimit.
package proxytest

import (
	"bytes"
	"net"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds how long a program may take to listen, and to end when asked to.
const patience = 20 * time.Second

// FreeAddress returns a host:port of the loopback interface that nothing listens on.
func FreeAddress(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// Program is a running server program.
type Program struct {
	cmd    *exec.Cmd
	output Output
	ended  chan struct{}
}

// Run starts a program and waits until it accepts connections on every address. It ends with the
// test. A program that is missing, ends or does not listen fails the test with what it printed.
func Run(t testing.TB, path string, args []string, addresses ...string) *Program {
	t.Helper()
	path, err := exec.LookPath(path)
	if err != nil {
		t.Fatalf("proxytest: %v: install it with 'make setup'", err)
	}
	p := &Program{cmd: exec.Command(path, args...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = &p.output, &p.output, t.TempDir()
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("proxytest: starting %s: %v", path, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("%s printed:\n%s", path, p.output.String())
		}
	})
	for _, address := range addresses {
		if !p.listens(address) {
			t.Fatalf("proxytest: %s does not listen on %s", path, address)
		}
	}
	return p
}

// Output returns what the program has printed.
func (p *Program) Output() string { return p.output.String() }

// listens waits until the address accepts connections and returns whether it does.
func (p *Program) listens(address string) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		select {
		case <-p.ended:
			return false
		default:
		}
		if connection, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			_ = connection.Close()
			return true
		}
	}
	return false
}

func (p *Program) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// Output collects what a program prints, while a test reads it.
type Output struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.String()
}
