// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tierlimit/tierlimit/internal/clustertest"
	"github.com/tierlimit/tierlimit/internal/desk"
	"github.com/tierlimit/tierlimit/internal/processtest"
)

// cluster is the API server that the tests share. plugins is the folder with the plugin of kubectl.
var (
	cluster *clustertest.Cluster
	plugins string
)

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	ctrl.SetLogger(logr.Discard()) // of the test's own control plane
	var err error
	if plugins, err = os.MkdirTemp("", "tierlimit-test-"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(plugins)
	binary, err := processtest.Build(plugins, "tierlimit")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for _, name := range []string{"kubectl-tierlimit", "kubectl_complete-tierlimit"} {
		if err := os.Symlink(binary, filepath.Join(plugins, name)); err != nil {
			panic(err)
		}
	}
	return clustertest.Main(m, &cluster)
}

var serial atomic.Int64

// namespace makes one.
func namespace(t *testing.T) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("desk-%d", serial.Add(1))
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return name
}

// outcome is what a command did.
type outcome struct {
	code           int
	stdout, stderr string
}

func (o outcome) String() string {
	return fmt.Sprintf("code %d\n%s---\n%s", o.code, o.stdout, o.stderr)
}

// call runs a command in this process.
func call(t *testing.T, env map[string]string, args ...string) outcome {
	t.Helper()
	return callWith(t.Context(), &bytes.Buffer{}, env, args...)
}

func callWith(ctx context.Context, in interface{ Read([]byte) (int, error) }, env map[string]string, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	root := desk.NewCommand(desk.Options{
		Streams: genericiooptions.IOStreams{In: in, Out: &stdout, ErrOut: &stderr},
		Name:    "kubectl tierlimit", Version: "v0.0.0-test",
		Getenv: func(name string) string { return env[name] },
	})
	root.SetContext(ctx)
	root.SetArgs(args)
	code := desk.Run(root, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

// kubectl runs the plugin by the real kubectl.
func kubectl(t *testing.T, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	t.Setenv("PATH", plugins+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("TZ", "UTC")
	return cluster.Kubectl(t, kubeconfig, "", args...)
}
