// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package processtest builds the program and runs it for tests. Nothing in it is compiled into
// Tierlimit.
package processtest

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/clustertest"
	"github.com/tierlimit/tierlimit/internal/proxytest"
	"github.com/tierlimit/tierlimit/internal/redistest"
)

// patience bounds how long a process may take to be ready. With the race detector and many tiers, beside
// others on few cores, that can be most of a minute.
const patience = 3 * time.Minute

// own are the variables that the program reads. A process has none of them from the test's
// environment.
var own = []string{"REDIS_URL", "RATE_LIMIT_DISABLED", "IDENTITY_HASH_KEY", "POD_NAMESPACE", "POD_NAME", "KUBECONFIG"}

// Build builds the program with additional arguments of "go build" and returns the path of the
// binary, which has this name in dir.
func Build(dir, name string, args ...string) (string, error) {
	binary := filepath.Join(dir, name)
	args = append(append([]string{"build"}, args...), "-o", binary, "./cmd/tierlimit")
	cmd := exec.Command("go", args...)
	cmd.Dir = clustertest.Root()
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("processtest: go %s: %w\n%s", strings.Join(args, " "), err, output)
	}
	return binary, nil
}

// Process is a running tierlimit.
type Process struct {
	// Check, Health, Metrics and Admin are the addresses (host:port) of its servers.
	Check, Health, Metrics, Admin string
	// Log is what it prints.
	Log *proxytest.Output

	t     testing.TB
	cmd   *exec.Cmd
	ended chan error
}

// Start runs a binary on free ports until the test ends, and waits until it is ready. env is added
// to an environment without any of the program's own variables.
func Start(t testing.TB, binary string, env []string, args ...string) *Process {
	t.Helper()
	p := Launch(t, binary, env, args...)
	p.AwaitReady()
	return p
}

// AwaitReady waits until the process is ready. If it ends instead, the test fails.
func (p *Process) AwaitReady() {
	p.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-p.ended:
			p.ended <- err
			p.t.Fatalf("tierlimit ended: %v\n%s", err, p.Log)
		default:
		}
		if p.Ready() {
			return
		}
	}
	p.t.Fatalf("tierlimit is not ready\n%s", p.Log)
}

// Launch is Start without the wait.
func Launch(t testing.TB, binary string, env []string, args ...string) *Process {
	t.Helper()
	addresses := redistest.FreeAddresses(t, 4)
	p := &Process{
		Check: addresses[0], Health: addresses[1], Metrics: addresses[2], Admin: addresses[3],
		Log: new(proxytest.Output), t: t, ended: make(chan error, 1),
	}
	p.cmd = exec.Command(binary, append([]string{
		"--bind-address", p.Check, "--health-probe-bind-address", p.Health, "--metrics-bind-address", p.Metrics, "--admin-bind-address", p.Admin,
	}, args...)...)
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); !slices.Contains(own, name) && !strings.HasPrefix(name, "OTEL_") {
			p.cmd.Env = append(p.cmd.Env, variable)
		}
	}
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stdout, p.cmd.Stderr = p.Log, p.Log
	p.cmd.Dir = clustertest.Root()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.Wait()
		if t.Failed() {
			t.Logf("tierlimit %v printed:\n%s", args, p.Log)
		}
		if strings.Contains(p.Log.String(), "DATA RACE") {
			t.Error("the race detector has found a race in the binary")
		}
	})
	return p
}

// Ready returns whether /readyz answers 200 now.
func (p *Process) Ready() bool {
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Get("http://" + p.Health + "/readyz")
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// Terminate sends SIGTERM, as Kubernetes does.
func (p *Process) Terminate() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatalf("processtest: %v", err)
	}
}

// Wait waits for the end of the process and returns how it ended. It may be called again.
func (p *Process) Wait() error {
	err := <-p.ended
	p.ended <- err
	return err
}
