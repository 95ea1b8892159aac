// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/proxytest"
	"github.com/tierlimit/tierlimit/internal/redistest"
)

// scrapedLoad runs two replicas on one Redis, a Prometheus that scrapes them, and four phases of
// load: all is well, a kill switch, Redis away, all is well again. It returns the URL of the Prometheus
// and when it began.
func scrapedLoad(t *testing.T, phase time.Duration) (url string, from time.Time) {
	t.Helper()
	redis := redistest.Start(t)
	tiers := t.TempDir()
	writeTiers(t, tiers, phase, false)
	program := buildTierlimit(t)
	var checks, metrics []string
	for range 2 {
		check, metric := proxytest.FreeAddress(t), proxytest.FreeAddress(t)
		proxytest.Run(t, program, []string{"--tiers", tiers, "--redis-url", redis.URL(), "--bind-address", check,
			"--health-probe-bind-address", "0", "--metrics-bind-address", metric, "--admin-bind-address", "0"}, check, metric)
		checks, metrics = append(checks, check), append(metrics, metric)
	}
	url = startPrometheus(t, metrics)
	checkMetrics(t, metrics[0])
	from = time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer cancel()
	for n, caller := range callers {
		load.Go(func() { keepAsking(ctx, caller, checks[n%len(checks)]) })
	}
	time.Sleep(phase)
	writeTiers(t, tiers, phase, true)
	time.Sleep(phase)
	writeTiers(t, tiers, phase, false)
	redis.Stop()
	time.Sleep(phase)
	redis.Restart()
	time.Sleep(phase)
	return url, from
}

// caller asks so often, with so many users.
type caller struct {
	query string
	users int
	every time.Duration
}

// callers make about a hundred checks a second.
var callers = []caller{
	{"tier=free", 20, 50 * time.Millisecond},
	{"tier=free", 40, 80 * time.Millisecond},
	{"tier=free&route=loop", 1, 100 * time.Millisecond}, // often enough to be rejected from memory
	{"tier=pro", 10, 40 * time.Millisecond},
	{"tier=enterprise&upstream=model", 5, 50 * time.Millisecond},
	{"tier=trial", 4, 100 * time.Millisecond},
	{"tier=gold", 3, 500 * time.Millisecond},
	{"tier=free&nonsense=1", 1, 800 * time.Millisecond},
}

// keepAsking asks until ctx ends. What is answered is for the metrics to say.
func keepAsking(ctx context.Context, c caller, address string) {
	ticker := time.NewTicker(c.every)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/check?%s&user=%s-%d", address, c.query, c.query[5:8], n%c.users), nil)
		if err != nil {
			panic(err)
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
	}
}

// writeTiers writes the tiers of the load, with pro's kill switch engaged or not. The limits are such that some
// callers meet theirs in a phase.
func writeTiers(t *testing.T, folder string, phase time.Duration, engaged bool) {
	t.Helper()
	var all strings.Builder
	seconds := int(phase.Seconds())
	for _, tier := range []struct{ name, spec string }{
		{"free", fmt.Sprintf("requests: {perMinute: %d, perDay: 500}, failurePolicy: FailClosed", seconds/2)},
		{"pro", fmt.Sprintf("requests: {perMinute: 120, perDay: 5000}, failurePolicy: FailLocal, killSwitch: {engaged: %v, reason: a test}", engaged)},
		{"enterprise", "requests: {perMinute: 600}, failurePolicy: FailOpen"},
		{"trial", fmt.Sprintf("requests: {perMinute: %d}, mode: DryRun", 2*seconds)},
		{"model", "requests: {perMinute: 800}"},
	} {
		fmt.Fprintf(&all, "---\napiVersion: tierlimit.dev/v1alpha1\nkind: RateLimitTier\nmetadata: {name: %s}\nspec: {%s}\n", tier.name, tier.spec)
	}
	temporary := filepath.Join(t.TempDir(), "tiers.yaml")
	if err := os.WriteFile(temporary, []byte(all.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(folder, "tiers.yaml")); err != nil { // never half a file
		t.Fatal(err)
	}
}

func buildTierlimit(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "tierlimit")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-X main.stamped=v0.0.0-test", "-o", program, "./cmd/tierlimit")
	build.Dir = "../.."
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building tierlimit: %v\n%s", err, output)
	}
	return program
}

// startPrometheus runs a Prometheus with the alerts until the test ends, and returns its URL.
func startPrometheus(t *testing.T, targets []string) string {
	t.Helper()
	folder := t.TempDir()
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yaml]
scrape_configs:
- job_name: tierlimit-metrics
  static_configs:
  - targets: [%s]
    labels: {namespace: tierlimit-system}
`, strings.Join(targets, ", "))
	for name, content := range map[string][]byte{"prometheus.yaml": []byte(config), "rules.yaml": rules(t)} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	address := proxytest.FreeAddress(t)
	proxytest.Run(t, "prometheus", []string{"--config.file", filepath.Join(folder, "prometheus.yaml"),
		"--storage.tsdb.path", filepath.Join(folder, "data"), "--web.listen-address", address, "--log.level", "warn"}, address)
	return "http://" + address
}

// checkMetrics has promtool check the names, types and help of Tierlimit's own metrics.
func checkMetrics(t *testing.T, address string) {
	t.Helper()
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var own strings.Builder
	for line := range strings.Lines(string(all)) {
		if strings.HasPrefix(line, "tierlimit_") || strings.HasPrefix(line, "# HELP tierlimit_") || strings.HasPrefix(line, "# TYPE tierlimit_") {
			own.WriteString(line)
		}
	}
	if !strings.Contains(own.String(), `tierlimit_build_info{goversion="go`) {
		t.Errorf("the metrics do not say what was built:\n%s", own.String())
	}
	promtool := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
	promtool.Stdin = strings.NewReader(own.String())
	if output, err := promtool.CombinedOutput(); err != nil || len(output) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, output)
	}
}
