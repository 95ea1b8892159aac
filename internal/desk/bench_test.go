// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/tierlimit/tierlimit/internal/ingressnginx"
	"github.com/tierlimit/tierlimit/internal/proxytest"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
)

// benchReport is what a script would read of -o json.
type benchReport struct {
	Sent, Answered, Admitted, Rejected, Wrong int
	WithoutRetryAfter, TooLongRetryAfter      int
	Unlimited                                 bool
	Errors, Passed                            map[string]int
	Windows                                   []struct {
		Window            string
		Limit, Most, Over int64
	}
	RetryAfterSeconds                                        *struct{ Min, Max int64 }
	AdmittedLatencyMilliseconds, RejectedLatencyMilliseconds *struct{ P50, P90, P99, Max float64 }
	Wait                                                     *struct {
		Status int
		Wrong  bool
		Note   string
	}
	Notes []string
}

func bench(t *testing.T, args ...string) (benchReport, outcome) {
	t.Helper()
	got := call(t, nil, append(append([]string{"bench"}, args...), "-o", "json")...)
	var report benchReport
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
		t.Fatalf("%v: %v", err, got)
	}
	return report, got
}

// startNginx puts a real nginx with the recipe of ingress-nginx before a check and an application.
func startNginx(t *testing.T, check *proxytest.Check, parameters string) string {
	t.Helper()
	var configMap struct{ Data map[string]string }
	if err := yaml.Unmarshal(ingressnginx.ConfigMap(webhookserver.ClientHeaders), &configMap); err != nil {
		t.Fatal(err)
	}
	return proxytest.StartNginx(t, proxytest.Nginx{
		HTTPSnippet: configMap.Data["http-snippet"], LocationSnippet: configMap.Data["location-snippet"], ServerSnippet: configMap.Data["server-snippet"],
		Application: proxytest.StartApplication(t).Address(),
		Routes:      []proxytest.NginxRoute{{Path: "/free/", AuthURL: "http://" + check.Address() + "/check/nginx?" + parameters}},
	})
}

// TestBenchBehindNginx looks at a route that is right, and at one whose check takes every request for
// one of another user, so that it lets all pass.
func TestBenchBehindNginx(t *testing.T) {
	check := proxytest.StartCheck(t, nil, proxytest.Tier("free", 5, time.Minute))
	right, wrong := startNginx(t, check, "tier=free"), startNginx(t, check, "tier=free&user=$request_id")

	report, got := bench(t, right+"/free/a", "--requests", "20")
	if got.code != 0 || report.Admitted != 5 || report.Rejected != 15 || report.Wrong != 0 || len(report.Windows) != 1 || report.Windows[0].Most != 5 ||
		report.RetryAfterSeconds == nil || report.RetryAfterSeconds.Max > 60 || report.AdmittedLatencyMilliseconds.Max <= 0 || report.RejectedLatencyMilliseconds.P50 <= 0 {
		t.Errorf("a route that is right: %v", got)
	}
	report, got = bench(t, right+"/free/a", "--requests", "5")
	if got.code != 0 || report.Rejected != 5 || report.Wrong != 0 || !strings.Contains(strings.Join(report.Notes, " "), "the budget had been used before, or others share it") {
		t.Errorf("a budget that is used up: %v", got)
	}
	report, got = bench(t, wrong+"/free/a", "--requests", "20")
	if got.code != 1 || report.Admitted != 20 || report.Wrong != 15 || report.Windows[0].Over != 15 {
		t.Errorf("a route that lets all pass: %v", got)
	}
	text := call(t, nil, "bench", wrong+"/free/a", "--requests", "20")
	if text.code != 1 || !strings.Contains(text.stdout, "Window minute: at the most 20 within 60s, limit 5: WRONG: 15 too many.") {
		t.Error(text)
	}
	report, got = bench(t, wrong+"/free/a", "--requests", "20", "--limit", "20")
	if got.code != 0 || report.Wrong != 0 {
		t.Errorf("--limit goes before the headers: %v", got)
	}
}

// TestBenchWaits has Retry-After kept, and not kept.
func TestBenchWaits(t *testing.T) {
	check := proxytest.StartCheck(t, nil, proxytest.Tier("free", 3, 2*time.Second))
	url := "http://" + check.Address() + "/check?tier=free&user=alice"
	report, got := bench(t, url, "--requests", "8", "-c", "8", "--limit", "3", "--window", "2s", "--wait")
	if got.code != 0 || report.Wait == nil || report.Wait.Wrong {
		t.Errorf("an honest one: %v", got)
	}
	liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	t.Cleanup(liar.Close)
	report, got = bench(t, liar.URL, "--requests", "2", "--wait")
	if got.code != 1 || report.Wrong != 1 || !report.Wait.Wrong || report.Wait.Status != 429 {
		t.Errorf("a liar: %v", got)
	}
}

// TestBenchSends sends what was asked for, no more and no faster, and follows no redirect.
func TestBenchSends(t *testing.T) {
	var now, most, all atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all.Add(1)
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		body, _ := io.ReadAll(r.Body)
		if got, want := fmt.Sprint(r.Method, r.Host, r.Header["X-A"], r.UserAgent(), string(body)), "PUTllm.example.com[1 2]me{}"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		time.Sleep(5 * time.Millisecond)
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	t.Cleanup(server.Close)
	report, got := bench(t, server.URL, "--requests", "30", "-c", "3", "-X", "PUT", "-H", "X-A: 1", "-H", "X-A:2", "-H", "Host: llm.example.com", "-A", "me", "-d", "{}")
	if got.code != 1 || !report.Unlimited || report.Sent != 30 || all.Load() != 30 || most.Load() > 3 || report.Errors["302 Found"] != 30 || report.Admitted != 0 ||
		!strings.Contains(strings.Join(report.Notes, " "), `redirects, to "/elsewhere"`) || !strings.Contains(strings.Join(report.Notes, " "), "Nothing can be said about the budget") {
		t.Errorf("%d requests, %d at a time: %v", all.Load(), most.Load(), got)
	}
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(10 * time.Second):
		}
	}))
	t.Cleanup(slow.Close)
	report, got = bench(t, slow.URL, "--requests", "2", "--timeout", "100ms")
	if got.code != 1 || report.Answered != 0 || report.Errors["no answer: no answer within 100ms"] != 2 {
		t.Errorf("no answer: %v", got)
	}
	report, got = bench(t, slow.URL, "--duration", "300ms", "--timeout", "100ms", "-c", "2")
	if report.Sent < 2 || report.Sent > 100 {
		t.Errorf("--duration: %v", got)
	}
}

// TestBenchVerdicts are what a person reads, and a script by the exit code.
func TestBenchVerdicts(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		status  int
		headers map[string]string
		flags   []string
		code    int
		said    string
	}{
		"a 429 of the application": {"the limiter admitted it", 429, map[string]string{"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "7", "X-RateLimit-Window": "minute"}, nil, 0, "- 429 Too Many Requests of the application   10 "},
		"a 500 of the application": {"the limiter admitted too many", 500, map[string]string{"X-RateLimit-Limit": "5", "X-RateLimit-Window": "minute"}, nil, 1, "WRONG: 5 too many"},
		"slower than the window":   {"nothing is proved", 200, nil, []string{"--limit", "5", "--window", "1ns"}, 1, "limit 5: nothing is proved: no answer came within the window"},
		"no budget":                {"nothing is proved", 200, map[string]string{"X-Tierlimit-Enforcement": "dry-run"}, []string{"--limit", "5"}, 1, "nothing is proved: no request was admitted by it"},
		"a Retry-After of 292 years": {"it is not waited for", 429, map[string]string{"Retry-After": "9223372037"}, []string{"--wait"}, 0,
			"Retry-After is 9,223,372,037 seconds, longer than the 2m0s that are waited for."},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for name, value := range tc.headers {
					w.Header().Set(name, value)
				}
				w.WriteHeader(tc.status)
			}))
			t.Cleanup(server.Close)
			got := call(t, nil, append([]string{"bench", server.URL, "--requests", "10"}, tc.flags...)...)
			if got.code != tc.code || !strings.Contains(got.stdout, tc.said) {
				t.Errorf("%s: want code %d and %q: %v", tc.reason, tc.code, tc.said, got)
			}
		})
	}
}

// TestBenchAsks: the requests are real.
func TestBenchAsks(t *testing.T) {
	person, program := openTerminal(t)
	if _, err := person.WriteString("n\n"); err != nil {
		t.Fatal(err)
	}
	got := callWith(t.Context(), program, nil, "bench", "https://user:cret@192.0.2.1/v1") // an address of documentation: nothing is sent
	want := "Send up to 100 requests (GET, 10 at a time) to https://user:xxxxx@192.0.2.1/v1? They are real: they reach the application, may cost money and use up your budget there. [y/N] "
	if got.code != 1 || !strings.Contains(got.stderr, want) || got.stdout != "" {
		t.Errorf("want %q: %v", want, got)
	}
}
