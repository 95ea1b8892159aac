// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

// answer makes one request of a load: sent and answered so many milliseconds after its start.
func answer(sent, answered, status int, headers ...string) result {
	start := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	r := result{sent: start.Add(time.Duration(sent) * time.Millisecond), answered: start.Add(time.Duration(answered) * time.Millisecond), status: status, header: http.Header{}}
	for i := 0; i+1 < len(headers); i += 2 {
		r.header.Add(headers[i], headers[i+1])
	}
	return r
}

// TestJudge holds loads against what can be proved of them.
func TestJudge(t *testing.T) {
	two := []string{headerLimit, "2", headerWindow, "minute"}
	admitted := func(sent, answered int, more ...string) result {
		return answer(sent, answered, 200, append(append([]string{}, two...), more...)...)
	}
	rejected := func(headers ...string) result { return answer(0, 1, 429, headers...) }
	for name, tc := range map[string]struct {
		reason   string
		results  []result
		expected *expectation
		admitted int
		wrong    int
		notes    int
		unproved bool
		said     string
	}{
		"as many as the limit": {reason: "is right", results: []result{admitted(0, 1), admitted(0, 1)}, admitted: 2},
		"one more":             {reason: "is wrong", results: []result{admitted(0, 1), admitted(0, 1), admitted(100, 59_999)}, admitted: 3, wrong: 1},
		"the minute after":     {reason: "the first had left the window", results: []result{admitted(0, 1), admitted(0, 1), admitted(60_000, 60_001)}, admitted: 3},
		"a late answer":        {reason: "it may have been admitted after the first had left", results: []result{admitted(0, 1), admitted(0, 1), admitted(100, 60_000)}, admitted: 3},
		"in the middle":        {reason: "the window that begins with the second is full", results: []result{admitted(0, 1), admitted(30_000, 30_001), admitted(60_500, 60_501), admitted(61_000, 61_001)}, admitted: 4, wrong: 1},
		"limit lowered":        {reason: "the highest limit seen counts", results: []result{answer(0, 1, 200, headerLimit, "3", headerWindow, "minute"), admitted(0, 1), admitted(0, 1)}, admitted: 3},
		"dry run":              {reason: "no budget admitted them", results: []result{admitted(0, 1), admitted(0, 1), admitted(0, 1, headerEnforcement, "dry-run")}, admitted: 3, notes: 1},
		"a share":              {reason: "the limit of the answer is one replica's", results: []result{admitted(0, 1, headerEnforcement, "local"), admitted(0, 1, headerEnforcement, "local"), admitted(0, 1, headerEnforcement, "local")}, admitted: 3, notes: 2},
		"own error":            {reason: "the application answered, so it was admitted", results: []result{answer(0, 1, 404, two...), answer(0, 1, 400, two...), admitted(0, 1)}, admitted: 3, wrong: 1},
		"no answer":            {reason: "a request whose fate is unknown proves nothing", results: []result{admitted(0, 1), admitted(0, 1), answer(0, 1, 0), answer(0, 1, 503, two...)}, admitted: 2},
		"another's header":     {reason: "an application may have a limit of its own", results: []result{answer(0, 1, 200, headerLimit, "1"), answer(0, 1, 200, headerLimit, "own", headerWindow, "minute")}, admitted: 2, notes: 1},
		"two headers":          {reason: "nobody knows which is Tierlimit's", results: []result{answer(0, 1, 200, headerLimit, "1", headerLimit, "9", headerWindow, "minute"), answer(0, 1, 200)}, admitted: 2, notes: 1},
		"given":                {reason: "what was given goes first", expected: &expectation{"10s", 10 * time.Second, 1}, results: []result{admitted(0, 1), admitted(0, 1)}, admitted: 2, wrong: 1},
		"no Retry-After":       {reason: "a client cannot know when to come back", results: []result{rejected(two...)}, wrong: 1, notes: 1},
		"a limit of 0":         {reason: "no wait helps, so there is none to tell", results: []result{rejected(headerLimit, "0", headerWindow, "minute")}},
		"too long":             {reason: "no window is longer than itself", results: []result{rejected(append([]string{"Retry-After", "61"}, two...)...)}, wrong: 1, notes: 1},
		"a 403 instead":        {reason: "it may be a rejection", results: []result{answer(0, 1, 403, append([]string{"Retry-After", "9"}, two...)...)}, notes: 2},
		"a 403 of nginx":       {reason: "X-Tierlimit-Status says what it was", results: []result{answer(0, 1, 403, append([]string{headerStatus, "429"}, two...)...)}, notes: 2},
		"a 429 behind it":      {reason: "the limiter admitted it", results: []result{rejected(append([]string{headerRemaining, "1"}, two...)...), rejected(headerStatus, "200"), rejected(append([]string{headerRemaining, "0", headerRateLimit, `"minute";r=0`}, two...)...)}, admitted: 3, wrong: 1},
		"a 429 in dry run":     {reason: "the limiter lets it pass", results: []result{rejected(append([]string{headerRemaining, "0", headerEnforcement, "dry-run"}, two...)...)}, admitted: 1, unproved: true},
		"its last 429":         {reason: "the limiter rejected it, as t= says", results: []result{rejected(append([]string{headerRemaining, "0", headerRateLimit, `"minute";r=0;t=9`}, two...)...)}, wrong: 1},
		"errors behind it":     {reason: "the application failed, the limiter admitted", results: []result{answer(0, 1, 500, two...), answer(0, 1, 302, two...), answer(0, 1, 503, append([]string{headerRemaining, "1", "Retry-After", "5"}, two...)...)}, admitted: 3, wrong: 1},
		"errors of it":         {reason: "a proxy may make a 500 of a rejection", results: []result{answer(0, 1, 500, append([]string{headerRemaining, "0"}, two...)...), answer(0, 1, 500, append([]string{headerStatus, "429"}, two...)...)}, unproved: true},
		"slower than a window": {reason: "it cannot be told which are in one", results: []result{admitted(0, 60_000), admitted(0, 60_001), admitted(1, 70_000)}, admitted: 3, unproved: true},
		"all by a share":       {reason: "Tierlimit was asked", results: []result{admitted(0, 1, headerEnforcement, "local")}, admitted: 1, unproved: true, said: "shows that Tierlimit was asked"},
		"no limit":             {reason: "nothing is known", results: []result{answer(0, 1, 200)}, admitted: 1, unproved: true, said: "the route is not limited"},
		"odd enforcements":     {reason: "they are one kind, whatever they hold", results: []result{admitted(0, 1, headerEnforcement, "\u009b2J"), admitted(0, 1, headerEnforcement, "\u202e")}, admitted: 2, unproved: true, said: "2 passed with a value of X-Tierlimit-Enforcement that Tierlimit does not send"},
		"a date":               {reason: "RFC 9110 has it", results: []result{rejected(append([]string{"Retry-After", "Mon, 30 Nov 2026 09:01:01 GMT", "Date", "Mon, 30 Nov 2026 09:00:00 GMT"}, two...)...)}},
		"a late date":          {reason: "no window is longer than itself", results: []result{rejected(append([]string{"Retry-After", "Mon, 30 Nov 2026 09:01:02 GMT"}, two...)...)}, wrong: 1},
		"seconds without end":  {reason: "no window is longer than itself", results: []result{rejected(append([]string{"Retry-After", "99999999999999999999"}, two...)...)}, wrong: 1, said: "had been used before"},
	} {
		t.Run(name, func(t *testing.T) {
			r := judge(tc.results, tc.expected)
			r.sum()
			if r.Admitted != tc.admitted || r.Wrong != tc.wrong || (tc.notes > 0 && len(r.Notes) != tc.notes) || !strings.Contains(strings.Join(r.Notes, " "), tc.said) {
				t.Errorf("%s: %d admitted, %d wrong, %d notes, want %d, %d and %d: %+v", tc.reason, r.Admitted, r.Wrong, len(r.Notes), tc.admitted, tc.wrong, tc.notes, r)
			}
			if tc.unproved && !r.Unproved {
				t.Errorf("%s: it proves something: %+v", tc.reason, r)
			}
		})
	}
}

// TestJudgeWait says that Retry-After was right only if the budget has admitted the request after it.
func TestJudgeWait(t *testing.T) {
	minute := []string{headerLimit, "2", headerWindow, "minute"}
	for name, tc := range map[string]struct {
		reason string
		second result
		said   string
		wrong  bool
	}{
		"passed":       {"the budget admitted it", answer(0, 1, 200, minute...), "passed: Retry-After was right", false},
		"application":  {"the budget admitted it", answer(0, 1, 429, append([]string{headerRemaining, "1"}, minute...)...), "passed: Retry-After was right", false},
		"dry run":      {"no budget admitted it", answer(0, 1, 200, append([]string{headerEnforcement, "dry-run"}, minute...)...), "X-Tierlimit-Enforcement: dry-run", false},
		"503":          {"nobody has asked the budget", answer(0, 1, 503), "503 Service Unavailable: that does not tell", false},
		"403":          {"it may be a rejection", answer(0, 1, 403), "403 Forbidden: that does not tell", false},
		"once more":    {"it lied", answer(0, 1, 429, minute...), "once more", true},
		"no headers":   {"nothing says that it was another window", answer(0, 1, 429), "once more", true},
		"another one":  {"each window has its own time", answer(0, 1, 429, headerLimit, "9", headerWindow, "day"), "another one rejected", false},
		"not answered": {"nothing is known", answer(0, 1, 0), "not answered", false},
	} {
		t.Run(name, func(t *testing.T) {
			var w waited
			w.judge(answer(0, 1, 429, minute...), tc.second)
			if w.Wrong != tc.wrong || !strings.Contains(w.Note, tc.said) {
				t.Errorf("%s: %+v", tc.reason, w)
			}
		})
	}
}

// TestJudgeFailures counts those together that differ by a port or a stream only, and shows no control characters.
func TestJudgeFailures(t *testing.T) {
	read := func(port int) error {
		return fmt.Errorf("net/http: failed: %w", &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: port}, Addr: &net.TCPAddr{Port: 80}, Err: syscall.ECONNRESET})
	}
	for reason, tc := range map[string]struct {
		err  error
		want string
	}{
		"a port":         {&url.Error{Op: "Get", URL: "http://a", Err: read(50001)}, "no answer: connection reset by peer"},
		"a proxy":        {&net.OpError{Op: "proxyconnect", Err: read(50002)}, "no answer: connection reset by peer"},
		"a stream":       {errors.New("stream error: stream ID 7; INTERNAL_ERROR; received from peer"), "no answer: stream error: INTERNAL_ERROR; received from peer"},
		"a name":         {&net.DNSError{Err: "read udp 127.0.0.1:5->127.0.0.53:53: timeout", Name: "a"}, "no answer: lookup a: read udp timeout"},
		"an escape":      {errors.New("malformed \u009b2J"), "no answer: malformed \uFFFD2J"},
		"a long message": {errors.New(strings.Repeat("a", 1000)), "no answer: " + strings.Repeat("a", maxHeader)},
	} {
		if got := failure(result{err: tc.err}); got != tc.want {
			t.Errorf("%s: got %q, want %q", reason, got, tc.want)
		}
	}
	var results []result
	for i := range 100 {
		results = append(results, result{err: fmt.Errorf("kind %d", i)})
	}
	if r := judge(results, nil); len(r.Errors) != maxKinds+1 || r.Errors["others"] != 100-maxKinds {
		t.Errorf("100 kinds of failures are %d rows", len(r.Errors))
	}
}

// TestJudgeKeeps little of an answer.
func TestJudgeKeeps(t *testing.T) {
	got := kept(http.Header{"X-Ratelimit-Limit": {"1", "2", "3"}, "Location": {strings.Repeat("a", 1000)}, "Set-Cookie": {"a"}, "Ratelimit": {"b"}})
	want := http.Header{"X-Ratelimit-Limit": {"1", "2"}, "Location": {strings.Repeat("a", maxHeader)}, "Ratelimit": {"b"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestLatency takes the nearest rank.
func TestLatency(t *testing.T) {
	var results []result
	for i := 100; i > 0; i-- {
		results = append(results, answer(0, i, 200))
	}
	if got, want := *latencies(results), (latency{P50: 50, P90: 90, P99: 99, Max: 100}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := *latencies(results[:1]), (latency{P50: 100, P90: 100, P99: 100, Max: 100}); got != want {
		t.Errorf("of one: got %v, want %v", got, want)
	}
}

// TestTexts are small words in sentences.
func TestTexts(t *testing.T) {
	for got, want := range map[string]string{
		number(0):                       "0",
		number(999):                     "999",
		number(1000):                    "1,000",
		number(-1234567):                "-1,234,567",
		count(1, "request"):             "1 request",
		count(12345, "request"):         "12,345 requests",
		spell(time.Hour):                "1h",
		spell(90 * time.Minute):         "1h30m",
		spell(90 * time.Second):         "1m30s",
		spell(time.Minute):              "1m",
		spell(30 * 24 * time.Hour):      "720h",
		share(0, 0):                     "0",
		share(57, 1234):                 "57 (4.6%)",
		named(""):                       "-",
		named("alice@example.com"):      "alice@example.com",
		named("a b"):                    `"a b"`,
		named("a\x1b[2J"):               `"a\x1b[2J"`,
		shell("alice@example.com"):      "alice@example.com",
		shell("o'neil; rm -rf /"):       `'o'\''neil; rm -rf /'`,
		everywhere(0):                   "Every replica knows it now.",
		everywhere(250):                 "Every replica knows it within 250ms.",
		estimate(5, 0) + estimate(5, 1): "5~5",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
