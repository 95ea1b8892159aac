// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// report is what bench has found.
type report struct {
	URL string `json:"url"`
	// Proxy is the one that the requests went through.
	Proxy    string `json:"proxy,omitempty"`
	Sent     int    `json:"sent"`
	Answered int    `json:"answered"`
	// Admitted reached the application, Rejected were answered with 429 by the limiter.
	Admitted int `json:"admitted"`
	Rejected int `json:"rejected"`
	// Wrong is how many things were wrong: requests over a limit, rejections without a right Retry-After.
	Wrong int `json:"wrong"`
	// ByApplication are admitted requests that the application, or what is behind it, did not answer with success.
	ByApplication map[string]int `json:"byApplication,omitempty"`
	// Passed are admitted requests that no budget of all replicas has admitted, by X-Tierlimit-Enforcement.
	Passed map[string]int `json:"passed,omitempty"`
	// Errors are other answers, and requests without one.
	Errors map[string]int `json:"errors,omitempty"`
	// Windows are those that answers spoke of.
	Windows           []benchWindow `json:"windows,omitempty"`
	WithoutRetryAfter int           `json:"withoutRetryAfter"`
	TooLongRetryAfter int           `json:"tooLongRetryAfter"`
	RetryAfter        *seen         `json:"retryAfterSeconds,omitempty"`
	AdmittedLatency   *latency      `json:"admittedLatencyMilliseconds,omitempty"`
	RejectedLatency   *latency      `json:"rejectedLatencyMilliseconds,omitempty"`
	Wait              *waited       `json:"wait,omitempty"`
	// Unlimited is true when no answer tells a limit, so that nothing is proved.
	Unlimited bool `json:"unlimited,omitempty"`
	// Unproved is true when nothing was wrong, nothing was rejected and no limit was seen to hold.
	Unproved bool     `json:"unproved,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

// benchWindow is how many requests were admitted in a window.
type benchWindow struct {
	Window        string  `json:"window"`
	WindowSeconds float64 `json:"windowSeconds"`
	Limit         int64   `json:"limit"`
	// Most is the most requests that were sent and answered within one window; Over is how many of them
	// are over the limit.
	Most int64 `json:"most"`
	Over int64 `json:"over"`
	// Unproved says why nothing can be said about it.
	Unproved string `json:"unproved,omitempty"`
}

// seen is the least and the most that was seen.
type seen struct {
	Min int64 `json:"min"`
	Max int64 `json:"max"`
}

// latency is the time from sending a request to the head of its answer.
type latency struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func (r *report) print(w io.Writer) error {
	via := ""
	if r.Proxy != "" {
		via = " through the proxy " + r.Proxy
	}
	fmt.Fprintf(w, "%s to %s%s, %d answered.\n\n", count(int64(r.Sent), "request"), r.URL, via, r.Answered)
	rows := [][]string{{"", "REQUESTS", "P50", "P90", "P99", "MAX"}, r.row("admitted", r.Admitted, r.AdmittedLatency)}
	for _, name := range slices.Sorted(maps.Keys(r.ByApplication)) {
		rows = append(rows, r.row("- "+name+" of the application", r.ByApplication[name], nil))
	}
	rows = append(rows, r.row("rejected (429)", r.Rejected, r.RejectedLatency))
	for _, name := range slices.Sorted(maps.Keys(r.Errors)) {
		rows = append(rows, r.row(name, r.Errors[name], nil))
	}
	if err := table(w, append(rows, r.row("WRONG", r.Wrong, nil))); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, window := range r.Windows {
		length := duration.HumanDuration(time.Duration(window.WindowSeconds * float64(time.Second)))
		verdict := "within the limit"
		switch {
		case window.Unproved != "":
			verdict = "nothing is proved: " + window.Unproved
		case window.Over > 0:
			verdict = fmt.Sprintf("WRONG: %s too many", number(window.Over))
		}
		fmt.Fprintf(w, "Window %s: at the most %s within %s, limit %s: %s.\n", window.Window, number(window.Most), length, number(window.Limit), verdict)
	}
	if r.RetryAfter != nil {
		fmt.Fprintf(w, "Retry-After: %d to %d seconds.\n", r.RetryAfter.Min, r.RetryAfter.Max)
	}
	if r.WithoutRetryAfter > 0 {
		fmt.Fprintf(w, "WRONG: %s without Retry-After: a client cannot know when to come back.\n", count(int64(r.WithoutRetryAfter), "rejection"))
	}
	if r.TooLongRetryAfter > 0 {
		fmt.Fprintf(w, "WRONG: %s with a Retry-After that is longer than the window.\n", count(int64(r.TooLongRetryAfter), "rejection"))
	}
	if r.Wait != nil {
		wrong := ""
		if r.Wait.Wrong {
			wrong = "WRONG: "
		}
		fmt.Fprintln(w, wrong+r.Wait.Note)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(w, "Note: "+note)
	}
	return nil
}

func (r *report) row(name string, n int, l *latency) []string {
	row := []string{name, strconv.Itoa(n)}
	if l == nil {
		return append(row, none, none, none, none)
	}
	for _, ms := range []float64{l.P50, l.P90, l.P99, l.Max} {
		row = append(row, (time.Duration(ms*1000) * time.Microsecond).String())
	}
	return row
}
