// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
)

// StopAPIServer makes the API server go away as a crash would; etcd goes on.
func (c *Cluster) StopAPIServer(t testing.TB) {
	t.Helper()
	if err := c.killAPIServer(); err != nil {
		t.Fatalf("clustertest: killing kube-apiserver: %v", err)
	}
}

// killAPIServer does not ask politely: an API server then first waits for up to a minute for its
// watchers to leave.
func (c *Cluster) killAPIServer() error {
	if c.replacement != nil {
		_ = c.replacement.Process.Kill()
		_ = c.replacement.Wait()
		c.replacement = nil
		return nil
	}
	pid, arguments, err := child("kube-apiserver", c.environment.ControlPlane.APIServer.Port)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	c.arguments = arguments
	for range 200 {
		if commandLine, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); len(commandLine) == 0 {
			return nil
		}
		time.Sleep(25 * time.Millisecond)
	}
	return fmt.Errorf("process %d does not end", pid)
}

// StartAPIServer brings the API server back, at the same address and with the same data, and waits
// until it is ready.
func (c *Cluster) StartAPIServer(t testing.TB) {
	t.Helper()
	c.replacement = exec.Command(c.arguments[0], c.arguments[1:]...)
	if err := c.replacement.Start(); err != nil {
		t.Fatalf("clustertest: starting kube-apiserver again: %v", err)
	}
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	for range 600 {
		if _, err = client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(context.Background()); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("clustertest: the new kube-apiserver is not ready: %v", err)
}

// child finds the child of this process that runs a program with a port among its arguments.
func child(program, port string) (pid int, arguments []string, err error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", os.Getpid()))
	if err != nil {
		return 0, nil, err
	}
	for _, task := range tasks {
		children, _ := os.ReadFile(task) // a thread may have ended since
		for _, id := range strings.Fields(string(children)) {
			commandLine, _ := os.ReadFile(filepath.Join("/proc", id, "cmdline"))
			arguments = strings.Split(strings.TrimSuffix(string(commandLine), "\x00"), "\x00")
			if filepath.Base(arguments[0]) == program && strings.Contains(string(commandLine), "="+port+"\x00") {
				pid, err = strconv.Atoi(id)
				return pid, arguments, err
			}
		}
	}
	return 0, nil, fmt.Errorf("no child of this process is %s on port %s", program, port)
}
