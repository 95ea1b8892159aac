// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/clustertest"
	"github.com/tierlimit/tierlimit/internal/proxytest"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
)

// sdkAnswer is a line that hack/openai-sdk/ask.cjs prints.
type sdkAnswer struct {
	Content      string
	Status       int
	Error        string
	Milliseconds int64
}

// askWithSDK asks for completions with OpenAI's SDK, which may repeat each once.
func askWithSDK(t testing.TB, baseURL string, count int) []sdkAnswer {
	t.Helper()
	modules := os.Getenv("TIERLIMIT_OPENAI_SDK")
	if modules == "" {
		t.Fatal("TIERLIMIT_OPENAI_SDK is not set: run 'make test', or export TIERLIMIT_OPENAI_SDK=$(hack/setup-openai.sh)")
	}
	script := filepath.Join(clustertest.Root(), "hack", "openai-sdk", "ask.cjs")
	output, err := exec.CommandContext(t.Context(), "node", script, modules, baseURL, fmt.Sprint(count)).Output()
	if err != nil {
		t.Fatalf("node: %v: %s", err, output)
	}
	var answers []sdkAnswer
	for decoder := json.NewDecoder(bytes.NewReader(output)); decoder.More(); {
		var answer sdkAnswer
		if err := decoder.Decode(&answer); err != nil {
			t.Fatalf("%v in %s", err, output)
		}
		answers = append(answers, answer)
	}
	return answers
}

// llm is a stub of an LLM API that takes note of when it was asked.
type llm struct {
	*httptest.Server
	mu    sync.Mutex
	asked []time.Time
}

func startLLM(t testing.TB) *llm {
	t.Helper()
	l := new(llm)
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		l.mu.Lock()
		l.asked = append(l.asked, time.Now())
		l.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"id":"1","object":"chat.completion","created":1,"model":"stub","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hello to you"}}]}`)
	}))
	t.Cleanup(l.Close)
	return l
}

// TestOpenAISDKWaitsAsTold lets OpenAI's own SDK meet a rejection behind nginx. It has to wait until
// there is room, and be served by its one retry: sooner would be rejected again, and the call fail.
func TestOpenAISDKWaitsAsTold(t *testing.T) {
	const window = 4 * time.Second
	for name, tc := range map[string]struct {
		reason, headers string
		most            time.Duration // after the room was made
	}{
		"Milliseconds": {"retry-after-ms is when the oldest request leaves", "x-ratelimit,ratelimit,retry-after-ms", 2 * time.Second},
		"Seconds":      {"Retry-After alone is up to a second later", "none", 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			sets, err := webhookserver.ParseHeaderSets(tc.headers)
			if err != nil {
				t.Fatal(err)
			}
			check := proxytest.StartCheck(t, func(o *webhookserver.Options) { o.Headers = sets }, proxytest.Tier("free", 2, window))
			app := startLLM(t)
			url := proxytest.StartNginx(t, recipes["ConfigMap"](t, proxytest.Nginx{Application: app.Listener.Addr().String(), Routes: []proxytest.NginxRoute{
				{Path: "/v1/", AuthURL: authURL(check.Address(), "tier=free")}}}))
			answers := askWithSDK(t, url+"/v1", 3)
			if len(answers) != 3 || len(app.asked) != 3 {
				t.Fatalf("%d answers, the API was asked %d times: %+v", len(answers), len(app.asked), answers)
			}
			for i, answer := range answers {
				if answer.Content != "hello to you" {
					t.Errorf("completion %d: %+v", i+1, answer)
				}
			}
			if apart := app.asked[2].Sub(app.asked[0]); apart < window-50*time.Millisecond || apart > window+tc.most {
				t.Errorf("%s: the third request came %v after the first, want %v and little more", tc.reason, apart, window)
			}
			if checks := len(check.Asked()); checks != 4 {
				t.Errorf("%d checks, want 4: the third request, once rejected and once admitted", checks)
			}
		})
	}
}
