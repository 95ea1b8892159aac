// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clustertest runs a real etcd and kube-apiserver for tests. Nothing in it is compiled
// into Tierlimit.
package clustertest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Cluster is an API server with RBAC, and with the CustomResourceDefinition of RateLimitTier. No
// controllers of Kubernetes run, so that Deployments stay without Pods.
type Cluster struct {
	// Config gives full access.
	Config *rest.Config

	environment *envtest.Environment
	assets      string
	dir         string    // for kubeconfig files
	replacement *exec.Cmd // the API server after an outage, instead of environment's
	arguments   []string  // of the API server that an outage has ended
}

// New starts a cluster that is stopped when the test ends.
func New(t testing.TB) *Cluster {
	t.Helper()
	c, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Start starts a cluster on free ports of the loopback interface. Stop must be called.
func Start() (*Cluster, error) {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		return nil, errors.New("clustertest: KUBEBUILDER_ASSETS is not set: run 'make test', or export KUBEBUILDER_ASSETS=$(hack/setup-controlplane.sh)")
	}
	dir, err := os.MkdirTemp("", "tierlimit-clustertest-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		environment: &envtest.Environment{
			BinaryAssetsDirectory: assets,
			CRDDirectoryPaths:     []string{filepath.Join(Root(), "config", "crd", "bases")},
			ErrorIfCRDPathMissing: true,
			// Beside others on few cores it takes longer than the 20 seconds after which it would be started anew.
			ControlPlaneStartTimeout: 2 * time.Minute,
		},
		assets: assets,
		dir:    dir,
	}
	if c.Config, err = c.environment.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("clustertest: starting etcd and kube-apiserver from %s: %w", assets, err), c.Stop())
	}
	return c, nil
}

// Stop stops everything that Start has started.
func (c *Cluster) Stop() error {
	_ = c.killAPIServer() // there is nothing to save; if it did not start there is nothing to kill
	return errors.Join(c.environment.Stop(), os.RemoveAll(c.dir))
}

// Main starts a cluster for all tests of a package, runs them, stops the cluster and returns the
// exit code: what a TestMain needs.
func Main(m *testing.M, cluster **Cluster) int {
	var err error
	if *cluster, err = Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := (*cluster).Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Kubeconfig returns a kubeconfig file for a user with these groups. It has the rights that RBAC
// gives them: the group system:masters has all.
func (c *Cluster) Kubeconfig(t testing.TB, user string, groups ...string) string {
	t.Helper()
	authenticated, err := c.environment.AddUser(envtest.User{Name: user, Groups: groups}, nil)
	if err != nil {
		t.Fatalf("clustertest: adding user %s: %v", user, err)
	}
	content, err := authenticated.KubeConfig()
	if err != nil {
		t.Fatalf("clustertest: %v", err)
	}
	file, err := os.CreateTemp(c.dir, "kubeconfig-")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(content); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}

// Kubectl runs kubectl with a kubeconfig and standard input, and returns all that it printed.
func (c *Cluster) Kubectl(t testing.TB, kubeconfig, input string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(filepath.Join(c.assets, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+c.dir)
	cmd.Stdin = strings.NewReader(input)
	cmd.Dir = Root()
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	return output.String(), err
}

// MustKubectl is Kubectl, and fails the test if that does.
func (c *Cluster) MustKubectl(t testing.TB, kubeconfig, input string, args ...string) string {
	t.Helper()
	output, err := c.Kubectl(t, kubeconfig, input, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return output
}

// Root returns the root folder of the repository.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}
