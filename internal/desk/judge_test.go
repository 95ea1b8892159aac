// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"net/http"
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
	} {
		t.Run(name, func(t *testing.T) {
			r := judge(tc.results, tc.expected)
			r.sum()
			if r.Admitted != tc.admitted || r.Wrong != tc.wrong || (tc.notes > 0 && len(r.Notes) != tc.notes) {
				t.Errorf("%s: %d admitted, %d wrong, %d notes, want %d, %d and %d: %+v", tc.reason, r.Admitted, r.Wrong, len(r.Notes), tc.admitted, tc.wrong, tc.notes, r)
			}
		})
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
