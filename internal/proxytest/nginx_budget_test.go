// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/proxytest"
)

const megabyte = 1 << 20

// zeros returns a body of so many bytes whose length is announced.
func zeros(size int64) io.Reader { return strings.NewReader(strings.Repeat("0", int(size))) }

// chunked returns a body of so many bytes whose length is not announced.
func chunked(size int64) io.Reader { return io.MultiReader(zeros(size)) }

// TestNginxBudget has a client use its budget up, and one request more.
func TestNginxBudget(t *testing.T) {
	cases := map[string]struct {
		reason  string
		method  string
		path    string
		size    int64
		body    func(int64) io.Reader
		headers []string
	}{
		"GET":         {reason: "the simplest", method: http.MethodGet, path: "/free/a"},
		"HEAD":        {reason: "its answer has no body, also not a rejection", method: http.MethodHead, path: "/free/a"},
		"POST":        {reason: "the body is not sent to the check, and reaches the application whole", method: http.MethodPost, path: "/free/a", size: 10 * megabyte, body: zeros},
		"chunked":     {reason: "nor is one of unknown length", method: http.MethodPost, path: "/free/a", size: 10 * megabyte, body: chunked},
		"Expect":      {reason: "a rejected client need not send its body", method: http.MethodPut, path: "/free/a", size: megabyte, body: zeros, headers: []string{"Expect: 100-continue"}},
		"a file name": {reason: "the type of the problem does not follow the path's", method: http.MethodGet, path: "/free/a.html"},
		"OPTIONS":     {reason: "every method is charged", method: http.MethodOptions, path: "/free/a"},
	}
	all := maps.Clone(recipes)
	all["both"] = both
	for recipe, configure := range all {
		t.Run(recipe, func(t *testing.T) {
			check := proxytest.StartCheck(t, nil, proxytest.Tier("free", 1, time.Minute))
			application := proxytest.StartApplication(t)
			url := proxytest.StartNginx(t, configure(t, proxytest.Nginx{Application: application.Address(), Routes: []proxytest.NginxRoute{
				{Path: "/free/", AuthURL: authURL(check.Address(), "tier=free")},
			}}))
			for name, tc := range cases {
				t.Run(name, func(t *testing.T) {
					client := newClient(t)
					send := func() answer {
						var body io.Reader
						if tc.body != nil {
							body = tc.body(tc.size)
						}
						a := client.do(t, request(t, tc.method, url+tc.path, body, tc.headers...))
						a.noTrace(t)
						if asked := check.Asked(); len(asked) != 1 {
							t.Errorf("%s: %d checks for one request: %v", tc.reason, len(asked), asked)
						}
						return a
					}
					expectAdmitted(t, tc.reason, send(), tc.method, tc.size)
					if got := len(application.Requests()); got != 1 {
						t.Errorf("%s: the application got %d requests, want 1", tc.reason, got)
					}
					expectRejected(t, tc.reason, send(), tc.method)
					if got := len(application.Requests()); got != 0 {
						t.Errorf("%s: the application got %d rejected requests", tc.reason, got)
					}
				})
			}
		})
	}
}

func expectAdmitted(t *testing.T, reason string, a answer, method string, size int64) {
	t.Helper()
	want := fmt.Sprintf("the application got %d bytes", size)
	if method == http.MethodHead {
		want = ""
	}
	if a.status != http.StatusOK || a.body != want {
		t.Errorf("%s: got %d with %q, want 200 with %q", reason, a.status, a.body, want)
	}
	if diff := cmp.Diff(map[string]string{
		"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "X-RateLimit-Window": "minute", "X-Tierlimit-Tier": "free",
	}, rateLimit(a.header)); diff != "" {
		t.Errorf("%s: headers of an admission (-want +got):\n%s", reason, diff)
	}
	if got := a.header.Get("Retry-After"); got != "" {
		t.Errorf("%s: an admission with Retry-After %q", reason, got)
	}
}

func expectRejected(t *testing.T, reason string, a answer, method string) {
	t.Helper()
	if a.status != http.StatusTooManyRequests {
		t.Fatalf("%s: got %d with %q, want 429", reason, a.status, a.body)
	}
	if diff := cmp.Diff(map[string]string{
		"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "X-RateLimit-Window": "minute", "X-Tierlimit-Tier": "free",
	}, rateLimit(a.header)); diff != "" {
		t.Errorf("%s: headers of a rejection (-want +got):\n%s", reason, diff)
	}
	var seconds int
	if _, err := fmt.Sscan(a.header.Get("Retry-After"), &seconds); err != nil || seconds < 1 || seconds > 60 {
		t.Errorf("%s: got Retry-After %q, want 1 to 60 seconds", reason, a.header.Get("Retry-After"))
	}
	if got, want := a.header.Get("Content-Type"), "application/problem+json"; got != want {
		t.Errorf("%s: got Content-Type %q, want %q", reason, got, want)
	}
	if got, want := a.header.Get("Cache-Control"), "no-store"; got != want {
		t.Errorf("%s: got Cache-Control %q, want %q", reason, got, want)
	}
	if method == http.MethodHead {
		if a.body != "" {
			t.Errorf("%s: got a body: %q", reason, a.body)
		}
		return
	}
	var problem struct {
		Status, RetryAfter int
		Tier               string
	}
	if err := json.Unmarshal([]byte(a.body), &problem); err != nil {
		t.Fatalf("%s: the body %q: %v", reason, a.body, err)
	}
	if problem.Status != http.StatusTooManyRequests || problem.RetryAfter != seconds || problem.Tier != "free" {
		t.Errorf("%s: got the body %q with Retry-After %d", reason, a.body, seconds)
	}
}

// rateLimit returns the headers about the budget. Those of the RateLimit draft are looked at where
// they are made.
func rateLimit(header http.Header) map[string]string {
	got := map[string]string{}
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Window",
		"X-Tierlimit-Tier", "X-Tierlimit-Unknown-Tier", "X-Tierlimit-Enforcement"} {
		if value := header.Get(name); value != "" {
			got[name] = value
		}
	}
	return got
}

// TestNginxWebsocket has a client open two connections with a budget of one.
func TestNginxWebsocket(t *testing.T) {
	for recipe, configure := range recipes {
		t.Run(recipe, func(t *testing.T) {
			check := proxytest.StartCheck(t, nil, proxytest.Tier("free", 1, time.Minute))
			url := proxytest.StartNginx(t, configure(t, proxytest.Nginx{Application: proxytest.StartApplication(t).Address(), Routes: []proxytest.NginxRoute{
				{Path: "/free/", AuthURL: authURL(check.Address(), "tier=free")},
			}}))
			response, lines := upgrade(t, url+"/free/socket")
			if response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("X-RateLimit-Remaining") != "0" {
				t.Fatalf("got %v, want 101 with X-RateLimit-Remaining 0", response)
			}
			for _, line := range []string{"hello\n", "again\n"} { // messages are not checked, the handshake is
				fmt.Fprint(lines, line)
				_ = lines.Flush()
				if got, err := lines.ReadString('\n'); got != line || err != nil {
					t.Errorf("got the echo %q, %v, want %q", got, err, line)
				}
			}
			if response, _ = upgrade(t, url+"/free/socket"); response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") == "" {
				t.Errorf("got %v, want 429 with Retry-After", response)
			}
			if got := len(check.Asked()); got != 2 {
				t.Errorf("got %d checks for two handshakes", got)
			}
		})
	}
}

// upgrade asks to speak "websocket", and returns the answer and what can be said afterwards.
func upgrade(t *testing.T, url string) (*http.Response, *bufio.ReadWriter) {
	t.Helper()
	r := request(t, http.MethodGet, url, nil, "Connection: Upgrade", "Upgrade: websocket")
	connection, err := net.Dial("tcp", r.URL.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	_ = connection.SetDeadline(time.Now().Add(20 * time.Second))
	if err := r.Write(connection); err != nil {
		t.Fatal(err)
	}
	both := bufio.NewReadWriter(bufio.NewReader(connection), bufio.NewWriter(connection))
	response, err := http.ReadResponse(both.Reader, r)
	if err != nil {
		t.Fatal(err)
	}
	return response, both
}
