// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/proxytest"
	"github.com/tierlimit/tierlimit/internal/redistest"
)

// TestProfilesAreOff asks every server for profiles that nobody has asked to be served.
func TestProfilesAreOff(t *testing.T) {
	backend := proxytest.FreeAddress(t)
	p := start(t, nil, "--tiers", "config/samples", "--error-backend", backend+"?tier=free")
	for _, base := range []string{p.check, p.health, "http://" + p.metrics} {
		if got := status(base + "/debug/pprof/heap"); got != http.StatusNotFound {
			t.Errorf("%s: %d", base, got)
		}
	}
	if r := p.get("http://" + backend + "/debug/pprof/heap"); r.status != http.StatusForbidden || strings.Contains(r.body, "heap") {
		t.Errorf("the error backend: %v", r)
	}
}

// TestProfiles asks every server for profiles that are to be served with the metrics.
func TestProfiles(t *testing.T) {
	p := start(t, nil, "--tiers", "config/samples", "--pprof")
	for path, want := range map[string]int{
		"/debug/pprof/":                  http.StatusOK,
		"/debug/pprof/heap":              http.StatusOK,
		"/debug/pprof/profile?seconds=1": http.StatusOK,
		"/debug/pprof/trace?seconds=0.1": http.StatusOK,
		"/debug/pprof/cmdline":           http.StatusNotFound, // it may hold a password
	} {
		if got := status("http://" + p.metrics + path); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
		for _, base := range []string{p.check, p.health} {
			if got := status(base + path); got != http.StatusNotFound {
				t.Errorf("%s%s: %d", base, path, got)
			}
		}
	}
}

// TestLongProfile takes longer than a request may take to arrive, which must not cut it short.
func TestLongProfile(t *testing.T) {
	p := start(t, nil, "--tiers", "config/samples", "--pprof")
	const long = requestWithin + 2*time.Second
	begin := time.Now()
	if got := status(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", p.metrics, long/time.Second)); got != http.StatusOK || time.Since(begin) < long {
		t.Errorf("%d after %v", got, time.Since(begin))
	}
}

// TestClusterProfilesAreSecured asks as nobody, as a reader of metrics and as a profiler.
func TestClusterProfilesAreSecured(t *testing.T) {
	server := redistest.Start(t)
	p := start(t, installed(t, server), "--pprof")
	for _, role := range []string{"profiler", "metrics-reader"} {
		kubectl(t, "create", "serviceaccount", "may-"+role, "-n", "default")
		kubectl(t, "create", "clusterrolebinding", "may-"+role, "--clusterrole=tierlimit-"+role, "--serviceaccount=default:may-"+role)
	}
	token := func(name string) string {
		return strings.TrimSpace(kubectl(t, "create", "token", name, "-n", "default"))
	}
	profiler, reader := token("may-profiler"), token("may-metrics-reader")
	for name, tc := range map[string]struct {
		reason, token, method, path string
		want                        int
	}{
		"Nobody":          {"a profile tells what the process does", "", "GET", "/debug/pprof/heap", 401},
		"WrongToken":      {"the API server refuses it", "x", "GET", "/debug/pprof/heap", 500},
		"Reader":          {"the right to read metrics is not that to profile", reader, "GET", "/debug/pprof/heap", 403},
		"ReaderByDetour":  {"the path is authorized as it is asked for", reader, "GET", "/metrics/../debug/pprof/heap", 403},
		"Profiler":        {"it has the right", profiler, "GET", "/debug/pprof/heap", 200},
		"ProfilerIndex":   {"it has the right", profiler, "GET", "/debug/pprof/", 200},
		"ProfilerMetrics": {"the right to profile is not that to read metrics", profiler, "GET", "/metrics", 403},
		"ProfilerPosts":   {"the right is to get", profiler, "POST", "/debug/pprof/heap", 403},
		"NobodyElsewhere": {"whoever is not known is not told what there is", "", "GET", "/nowhere", 401},
	} {
		t.Run(name, func(t *testing.T) {
			if got := secureStatus(t, tc.method, "https://"+p.metrics, tc.path, tc.token); got != tc.want {
				t.Errorf("%d, want %d: %s", got, tc.want, tc.reason)
			}
		})
	}
}

// secureStatus asks for a path as it is written, with a token unless that is empty.
func secureStatus(t *testing.T, method, base, path, token string) int {
	t.Helper()
	client := &http.Client{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, // the server signs for itself
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	request, _ := http.NewRequest(method, base, nil)
	request.URL.Opaque = path
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}
