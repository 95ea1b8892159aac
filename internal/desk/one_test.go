// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

// What a replica of a test does.
const (
	hangs   = "hangs"
	fails   = "503"
	refuses = "400"
	absent  = "absent"
	good    = `{"auditID":"3f9a21c0d2e4b517","tier":{"name":"free"}}`
	granted = `{"auditID":"3f9a21c0d2e4b517","tier":"free"}`
)

// replicasThat makes replicas, and returns how many requests have reached them.
func replicasThat(t *testing.T, timeout time.Duration, all ...string) (*replicas, *atomic.Int64, *bytes.Buffer) {
	t.Helper()
	var asked atomic.Int64
	var stderr bytes.Buffer
	r := &replicas{d: &desk{Options: Options{Streams: genericiooptions.IOStreams{ErrOut: &stderr}}}, timeout: timeout}
	end := make(chan struct{})
	for i, does := range all {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			switch does {
			case hangs:
				<-end
			case fails:
				w.WriteHeader(http.StatusServiceUnavailable)
			case refuses:
				w.WriteHeader(http.StatusBadRequest)
			default:
				fmt.Fprint(w, does)
			}
		}))
		t.Cleanup(server.Close)
		if does == absent {
			server.Close()
		}
		r.list = append(r.list, &replica{name: fmt.Sprint("Pod ", i), base: server.URL, client: server.Client()})
	}
	t.Cleanup(func() { close(end) })
	return r, &asked, &stderr
}

// TestOne asks replicas of which some do not answer.
func TestOne(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		replicas []string
		write    bool
		asked    int64
		want     string // in the error; "" for an answer
	}{
		"hanging":           {"one hanging Pod is not the end", []string{hangs, hangs, hangs, good}, false, 4, ""},
		"failing":           {"another may reach Redis", []string{fails, good}, false, 2, ""},
		"refusing":          {"every replica would say so", []string{refuses, good}, false, 1, "answers 400"},
		"all fail":          {"each is named", []string{fails, fails}, false, 2, "Pod 1 answers 503"},
		"change, failing":   {"it may have been done", []string{fails, granted}, true, 1, "answers 503"},
		"change, hanging":   {"it may have been done", []string{hangs, granted}, true, 1, "Pod 0 was asked and has not answered: no answer within 4s. It may have been done: see get"},
		"change, not sent":  {"it was certainly not done", []string{absent, granted}, true, 1, ""},
		"change, none":      {"it was certainly not done", []string{absent}, true, 0, "Pod 0 cannot be asked: "},
		"nothing":           {"another program answers so", []string{"{}", good}, false, 1, "the answer of Pod 0 is not that of an admin API: it has no auditID"},
		"null":              {"another program answers so", []string{"null"}, false, 1, "it has no auditID"},
		"change, nothing":   {"it was not done", []string{"{}"}, true, 1, "it has no auditID"},
		"not understood":    {"a later version", []string{`{"auditID":1}`}, false, 1, "the answer of Pod 0 is not understood"},
		"not JSON":          {"another program", []string{"hello"}, false, 1, `it is not JSON: "hello"`},
		"change, not JSON":  {"another program", []string{"hello"}, true, 1, `it is not JSON: "hello"`},
		"of another answer": {"another program", []string{`{"auditID":"1"}`}, true, 1, "it has no tier"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, asked, stderr := replicasThat(t, 4*time.Second, tc.replicas...)
			q, into := request{method: http.MethodGet, path: adminapi.PathQuota}, any(&adminapi.Quota{})
			if tc.write {
				q, into = request{method: http.MethodPut, path: adminapi.PathGrant}, &adminapi.GrantResult{}
			}
			_, err := all.one(t.Context(), q, into)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) || asked.Load() != tc.asked {
				t.Errorf("%s: %d were asked: %v\n%s", tc.reason, asked.Load(), err, stderr)
			}
		})
	}
}

// TestEveryoneNamesWhoIsWrong expects the replica in the warning.
func TestEveryoneNamesWhoIsWrong(t *testing.T) {
	const top = `{"replicas":["b"]}`
	for body, want := range map[string]string{
		`{"replicas":1}`: "Warning: the answer of Pod 0 is not understood",
		"{}":             "Warning: the answer of Pod 0 is not that of an admin API: it has no replicas",
	} {
		all, _, stderr := replicasThat(t, time.Minute, body, top)
		got, err := everyone[adminapi.Top](t.Context(), all, 1, request{method: http.MethodGet, path: adminapi.PathTop})
		if err != nil || len(got) != 1 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: %v, %v\n%s", body, got, err, stderr)
		}
	}
}

// TestInterrupted expects a word that people know, and what may have been done.
func TestInterrupted(t *testing.T) {
	all, asked, _ := replicasThat(t, time.Minute, hangs)
	for name, want := range map[string]string{http.MethodGet: "interrupted", http.MethodPut: "It may have been done"} {
		ctx, cancel := context.WithCancel(t.Context())
		asked.Store(0)
		go func() {
			for range 10_000 {
				if asked.Load() > 0 {
					break
				}
				time.Sleep(time.Millisecond)
			}
			cancel() // Ctrl-C
		}()
		_, err := all.one(ctx, request{method: name, path: adminapi.PathGrant}, &adminapi.GrantResult{})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "interrupted") {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		cancel()
	}
}

// TestTimeout tells a time that was given from the default.
func TestTimeout(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 0, "0": 0, "0s": 0, "30s": 30 * time.Second, "30": 30 * time.Second} {
		d := &desk{config: newKubeconfig()}
		d.config.overrides.Timeout = text
		timeout, given, err := d.timeout()
		if err != nil || given != (want > 0) || given && timeout != want || !given && timeout != patience {
			t.Errorf("%q: %v, %v, %v", text, timeout, given, err)
		}
	}
}
