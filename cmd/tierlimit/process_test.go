// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tierlimit/tierlimit/internal/clustertest"
	"github.com/tierlimit/tierlimit/internal/processtest"
	"github.com/tierlimit/tierlimit/internal/proxytest"
)

// binary is the program under test, built by TestMain with the race detector.
var binary string

// cluster is the API server that the tests in this package share.
var cluster *clustertest.Cluster

func TestMain(m *testing.M) {
	if os.Getenv(envVerifyRoot) != "" {
		os.Exit(verifyRoot())
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	ctrl.SetLogger(logr.Discard()) // of the test's own control plane
	dir, err := os.MkdirTemp("", "tierlimit-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if binary, err = processtest.Build(dir, "tierlimit", "-race", "-ldflags", "-X main.stamped=v0.0.0-test -X main.stampedRevision=0123abc -X main.stampedTime=2026-11-30T09:34:22Z"); err != nil {
		fmt.Println(err)
		return 1
	}
	return clustertest.Main(m, &cluster)
}

// process is a running tierlimit.
type process struct {
	*processtest.Process
	t                      testing.TB
	check, health, metrics string // base URLs, but for metrics
	log                    *proxytest.Output
}

// start runs the binary on free ports until the test ends, and waits until it is ready. env is
// added to an environment without any of the program's own variables.
func start(t testing.TB, env []string, args ...string) *process {
	t.Helper()
	return newProcess(t, processtest.Start(t, binary, env, args...))
}

// launch is start without the wait.
func launch(t testing.TB, env []string, args ...string) *process {
	t.Helper()
	return newProcess(t, processtest.Launch(t, binary, env, args...))
}

func newProcess(t testing.TB, p *processtest.Process) *process {
	return &process{Process: p, t: t, check: "http://" + p.Check, health: "http://" + p.Health, metrics: p.Metrics, log: p.Log}
}

// stop asks the process to end and returns how it did.
func (p *process) stop() error {
	p.t.Helper()
	p.Terminate()
	return p.Wait()
}

// reply is an answer to a check.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) String() string { return fmt.Sprintf("%d %v %s", r.status, r.header, r.body) }

// ask makes one check with this query.
func (p *process) ask(query string) reply {
	p.t.Helper()
	return p.get(p.check + "/check?" + query)
}

func (p *process) get(url string) reply {
	p.t.Helper()
	response, err := http.Get(url)
	return p.read(response, err)
}

// post sends JSON.
func (p *process) post(url, body string) reply {
	p.t.Helper()
	response, err := http.Post(url, "application/json", strings.NewReader(body))
	return p.read(response, err)
}

func (p *process) read(response *http.Response, err error) reply {
	p.t.Helper()
	if err != nil {
		p.t.Fatalf("%v\n%s", err, p.log)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return reply{status: response.StatusCode, header: response.Header, body: string(body)}
}

// statuses makes n checks one after the other.
func (p *process) statuses(n int, query string) []int {
	p.t.Helper()
	var all []int
	for range n {
		all = append(all, p.ask(query).status)
	}
	return all
}

// askTogether makes n checks at once, spread over processes, and counts the statuses.
func askTogether(t *testing.T, n int, query string, over ...*process) map[int]int {
	t.Helper()
	// With a connection for each, a busy machine takes longer to send on the last of them than the server
	// waits for a request.
	const connections = 256
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	var (
		mu     sync.Mutex
		counts = map[int]int{}
		begin  = make(chan struct{})
		all    sync.WaitGroup
	)
	for i := range n {
		all.Go(func() {
			<-begin
			response, err := client.Get(over[i%len(over)].check + "/check?" + query)
			if err != nil {
				t.Error(err)
				return
			}
			response.Body.Close()
			mu.Lock()
			counts[response.StatusCode]++
			mu.Unlock()
		})
	}
	close(begin)
	all.Wait()
	return counts
}

func status(url string) int {
	response, err := http.Get(url)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// eventually waits, for 30 seconds at the most, until something is so.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if condition() {
			return
		}
	}
	t.Fatalf("it never came true that %s", what)
}
