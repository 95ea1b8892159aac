// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package drills

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
	"github.com/tierlimit/tierlimit/internal/clustertest"
	"github.com/tierlimit/tierlimit/internal/processtest"
)

// patient is the --redis-timeout of replicas in drills that take no Redis away: on few cores, beside
// other tests, a check may take longer than it should, and that is not what is drilled.
const patient = "--redis-timeout=20s"

var (
	// binary is the program, built by TestMain. It has no race detector, unlike in the tests of cmd/tierlimit:
	// what it is observed to take should be what it takes.
	binary string
	// shared is the API server of drills that do nothing to it. The names of their tiers differ.
	shared *installation
)

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	ctrl.SetLogger(logr.Discard()) // of the test's own control planes
	// Most of their time drills wait; the longest should not be alone in the end.
	flag.Parse()
	if err := flag.Set("test.parallel", "3"); err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "tierlimit-drills-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if binary, err = processtest.Build(dir, "tierlimit"); err != nil {
		fmt.Println(err)
		return 1
	}
	cluster, err := clustertest.Start()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	shared = &installation{cluster: cluster}
	code := m.Run()
	if err := cluster.Stop(); err != nil {
		fmt.Println(err)
		return 1
	}
	if testing.Verbose() {
		observations.print()
	}
	return code
}

// observations are what was seen, in the order of the drills.
var observations observed

type observed struct {
	mu    sync.Mutex
	names []string
	lines map[string][]string
}

// note writes down what a drill has seen.
func note(t *testing.T, format string, values ...any) {
	t.Helper()
	observations.mu.Lock()
	defer observations.mu.Unlock()
	line := fmt.Sprintf(format, values...)
	t.Logf("observed: %s", line)
	if observations.lines == nil {
		observations.lines = map[string][]string{}
	}
	if observations.lines[t.Name()] == nil {
		observations.names = append(observations.names, t.Name())
	}
	observations.lines[t.Name()] = append(observations.lines[t.Name()], line)
}

func (o *observed) print() {
	fmt.Println("\nobserved:")
	for _, name := range o.names {
		for i, line := range o.lines[name] {
			if i > 0 {
				name = ""
			}
			fmt.Printf("  %-22s %s\n", strings.TrimPrefix(name, "Test"), line)
		}
	}
}

// installation is an API server with the shipped manifests.
type installation struct {
	cluster *clustertest.Cluster
	once    sync.Once
	client  client.Client
	config  string // kubeconfig of the replicas
}

// newInstallation starts an API server of the drill's own.
func newInstallation(t *testing.T) *installation {
	t.Helper()
	return (&installation{cluster: clustertest.New(t)}).installed(t)
}

// installed applies the manifests, if that has not been done.
func (i *installation) installed(t *testing.T) *installation {
	t.Helper()
	i.once.Do(func() {
		i.cluster.MustKubectl(t, i.cluster.Kubeconfig(t, "admin", "system:masters"), "", "apply", "-k", "config/default")
		// With the rights of config/rbac and no more.
		i.config = i.cluster.Kubeconfig(t, "system:serviceaccount:tierlimit-system:tierlimit",
			"system:serviceaccounts", "system:serviceaccounts:tierlimit-system", "system:authenticated")
		scheme := runtime.NewScheme()
		if err := v1alpha1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		config := rest.CopyConfig(i.cluster.Config)
		config.QPS = -1
		var err error
		if i.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
			t.Fatal(err)
		}
	})
	return i
}

// start starts replicas that keep their log in a Redis.
func (i *installation) start(t *testing.T, n int, redisURL string, args ...string) []*processtest.Process {
	t.Helper()
	replicas := make([]*processtest.Process, n)
	for j := range replicas {
		replicas[j] = processtest.Launch(t, binary, []string{"REDIS_URL=" + redisURL, "KUBECONFIG=" + i.config}, args...)
	}
	for _, p := range replicas {
		p.AwaitReady()
	}
	return replicas
}

// apply creates tiers.
func (i *installation) apply(t *testing.T, tiers ...*v1alpha1.RateLimitTier) {
	t.Helper()
	for _, object := range tiers {
		if err := i.client.Create(context.Background(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// patch merges JSON into a tier.
func (i *installation) patch(t *testing.T, name, patch string) {
	t.Helper()
	object := &v1alpha1.RateLimitTier{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := i.client.Patch(context.Background(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatalf("patching %s: %v", name, err)
	}
}

// statusWrites is how often a replica has tried to write the status of a tier, as the API server counts.
func (i *installation) statusWrites(t *testing.T) int {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(i.cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := clientset.RESTClient().Get().AbsPath("/metrics").DoRaw(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for line := range strings.Lines(string(metrics)) {
		if !strings.HasPrefix(line, "apiserver_request_total{") || !strings.Contains(line, `resource="ratelimittiers"`) || !strings.Contains(line, `subresource="status"`) {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += int(n)
	}
	return sum
}

// newTier returns a tier with these limits; 0 is none.
func newTier(name string, policy v1alpha1.FailurePolicy, perMinute, perDay int32) *v1alpha1.RateLimitTier {
	object := &v1alpha1.RateLimitTier{ObjectMeta: metav1.ObjectMeta{Name: name}}
	object.Spec.FailurePolicy = policy
	if perMinute > 0 {
		object.Spec.Requests.PerMinute = ptr.To(perMinute)
	}
	if perDay > 0 {
		object.Spec.Requests.PerDay = ptr.To(perDay)
	}
	return object
}

// eventually waits until something is so and returns how long it took. Two minutes are more than
// anything here takes on a machine that does other things too.
func eventually(t *testing.T, what string, condition func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for time.Since(begin) < 2*time.Minute {
		if condition() {
			return time.Since(begin)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("it never came true that %s", what)
	return 0
}

// inForce waits until all replicas know these tiers.
func inForce(t *testing.T, replicas []*processtest.Process, tiers ...string) {
	t.Helper()
	for _, p := range replicas {
		for _, name := range tiers {
			eventually(t, name+" is in force", func() bool {
				return ask(t, p, "tier="+name+"&user=probe-"+name).header.Get("X-Tierlimit-Tier") == name
			})
		}
	}
}
