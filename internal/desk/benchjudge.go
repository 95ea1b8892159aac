// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

// Headers of an answer, as docs/check.md has them.
const (
	headerLimit       = "X-RateLimit-Limit"
	headerWindow      = "X-RateLimit-Window"
	headerEnforcement = "X-Tierlimit-Enforcement"
	headerStatus      = "X-Tierlimit-Status"
)

// expectation is how many requests a window may admit.
type expectation struct {
	window string // "minute", "upstream-day", "10s"
	length time.Duration
	limit  int64
}

// windowLength returns the length of a window with one of Tierlimit's names.
func windowLength(name string) (time.Duration, bool) {
	switch strings.TrimPrefix(name, "upstream-") {
	case adminapi.WindowMinute:
		return time.Minute, true
	case adminapi.WindowDay:
		return 24 * time.Hour, true
	}
	return 0, false
}

// judge turns results into a report. It knows no clock: a test can replay any load.
func judge(results []result, expected *expectation) report {
	r := report{Sent: len(results), Errors: map[string]int{}, Passed: map[string]int{}}
	var admitted, counted, rejected []result // counted are those that a budget has admitted
	limits := map[string]*expectation{}
	for _, one := range results {
		if one.status == 0 {
			r.Errors[failure(one)]++
			continue
		}
		r.Answered++
		learn(limits, one)
		enforcement := one.header.Get(headerEnforcement)
		switch {
		case one.status == http.StatusTooManyRequests:
			rejected = append(rejected, one)
		case isAdmitted(one):
			admitted = append(admitted, one)
			if enforcement == "" {
				counted = append(counted, one)
			} else {
				r.Passed[enforcement]++
			}
		default:
			r.Errors[failure(one)]++
		}
	}
	r.Admitted, r.Rejected = len(admitted), len(rejected)
	r.AdmittedLatency, r.RejectedLatency = latencies(admitted), latencies(rejected)
	if expected != nil {
		limits = map[string]*expectation{expected.window: expected}
	}
	for _, window := range slices.Sorted(maps.Keys(limits)) {
		r.Windows = append(r.Windows, measure(counted, *limits[window]))
	}
	r.judgeRejections(rejected)
	r.note(results, len(limits) > 0)
	return r
}

// isAdmitted returns whether an answer is that of the application, so that the request was admitted: it is a success, or
// an error of the client's beside what a limiter says of an admitted request.
func isAdmitted(r result) bool {
	if r.status >= 200 && r.status < 300 {
		return true
	}
	_, _, speaks := limitOf(r)
	status := r.header.Get(headerStatus)
	return r.status >= 400 && r.status < 500 && speaks && r.header.Get("Retry-After") == "" && (status == "" || status == "200")
}

// limitOf returns the limit that an answer speaks of. An application behind the limiter may have headers
// of the same name: only numbers beside a window are Tierlimit's.
func limitOf(r result) (window string, limit int64, ok bool) {
	values, windows := r.header.Values(headerLimit), r.header.Values(headerWindow)
	if len(values) != 1 || len(windows) != 1 {
		return "", 0, false
	}
	limit, err := strconv.ParseInt(values[0], 10, 64)
	_, known := windowLength(windows[0])
	return windows[0], limit, err == nil && limit >= 0 && known
}

// learn remembers the limit of an answer: the highest, if a tier was changed or a grant was given
// meanwhile. Under FailLocal the answer speaks of one replica's share, and of no limit for all.
func learn(limits map[string]*expectation, r result) {
	window, limit, ok := limitOf(r)
	if !ok || r.header.Get(headerEnforcement) == "local" {
		return
	}
	length, _ := windowLength(window)
	if known := limits[window]; known == nil || known.limit < limit {
		limits[window] = &expectation{window: window, length: length, limit: limit}
	}
}

// measure finds the most requests that were sent and answered within one window. Each of them was
// admitted at some time in between, whatever the clocks of the limiter say.
func measure(admitted []result, e expectation) benchWindow {
	w := benchWindow{Window: e.window, WindowSeconds: e.length.Seconds(), Limit: e.limit}
	answered := slices.SortedFunc(slices.Values(admitted), func(a, b result) int { return a.answered.Compare(b.answered) })
	for _, first := range admitted {
		end := first.sent.Add(e.length)
		var within int64
		for _, other := range answered {
			if !other.answered.Before(end) {
				break
			}
			if !other.sent.Before(first.sent) {
				within++
			}
		}
		w.Most = max(w.Most, within)
	}
	w.Over = max(0, w.Most-w.Limit)
	return w
}

// retryAfter returns the seconds of Retry-After.
func retryAfter(header http.Header) (int64, bool) {
	seconds, err := strconv.ParseInt(header.Get("Retry-After"), 10, 64)
	return seconds, err == nil && seconds >= 0
}

// judgeRejections looks at what rejected clients were told.
func (r *report) judgeRejections(rejected []result) {
	for _, one := range rejected {
		window, limit, known := limitOf(one)
		length, _ := windowLength(window)
		seconds, ok := retryAfter(one.header)
		switch {
		case !ok && known && limit == 0: // no wait helps, so there is none to tell
		case !ok:
			r.WithoutRetryAfter++
		case known && seconds > int64(length/time.Second):
			r.TooLongRetryAfter++
			fallthrough
		default:
			if r.RetryAfter == nil {
				r.RetryAfter = &seen{Min: seconds, Max: seconds}
			}
			r.RetryAfter.Min, r.RetryAfter.Max = min(r.RetryAfter.Min, seconds), max(r.RetryAfter.Max, seconds)
		}
	}
}

// sum counts what was wrong.
func (r *report) sum() {
	r.Wrong = r.WithoutRetryAfter + r.TooLongRetryAfter
	for _, w := range r.Windows {
		r.Wrong += int(w.Over)
	}
	if r.Wait != nil && r.Wait.Wrong {
		r.Wrong++
	}
}

// note says what a reader may wonder about and what is not wrong.
func (r *report) note(results []result, limited bool) {
	add := func(format string, args ...any) { r.Notes = append(r.Notes, fmt.Sprintf(format, args...)) }
	var most int64 = math.MaxInt64
	for _, w := range r.Windows {
		if room := w.Limit - w.Most; room > 0 {
			most = min(most, room)
		}
		if w.Over > 0 {
			most = 0
		}
	}
	full := slices.ContainsFunc(r.Windows, func(w benchWindow) bool { return w.Most >= w.Limit })
	switch {
	case r.Answered > 0 && !limited:
		r.Unlimited = true
		add("No answer tells a limit (%s and %s): the route is not limited by Tierlimit, or a proxy drops these headers. Nothing can be said about the budget; give --limit.", headerLimit, headerWindow)
	case r.Rejected > 0 && limited && !full:
		add("Requests were rejected before as many were admitted as the limit allows: the budget had been used before, or others share it.")
	case r.Rejected == 0 && limited && len(r.Passed) > 0:
		// What they passed by is said below.
	case r.Rejected == 0 && limited && !full:
		add("Nothing was rejected: the load did not use the budget up. Send more with --requests to see a rejection.")
	}
	for _, enforcement := range slices.Sorted(maps.Keys(r.Passed)) {
		switch enforcement {
		case "granted":
			add("%d were admitted by a grant; they are not held against the limit.", r.Passed[enforcement])
		case "local":
			add("%d were admitted by a replica's share of the budget, while Redis did not answer; they are not held against the limit.", r.Passed[enforcement])
		default:
			add("%d passed although no budget admitted them (%s: %s); they are not held against the limit.", r.Passed[enforcement], headerEnforcement, enforcement)
		}
	}
	if i := slices.IndexFunc(results, func(o result) bool { return o.status >= 300 && o.status < 400 }); i >= 0 {
		add("The route redirects, to %.200q. Redirects are not followed: give the URL that they lead to.", results[i].header.Get("Location"))
	}
	if slices.ContainsFunc(results, func(o result) bool { return o.status == http.StatusForbidden && !isAdmitted(o) }) {
		add("A 403 may be a rejection that the proxy does not pass on as a 429: see docs/ingress.md.")
	}
}

// latencies of answers.
func latencies(results []result) *latency {
	if len(results) == 0 {
		return nil
	}
	var times []time.Duration
	for _, r := range results {
		times = append(times, r.answered.Sub(r.sent))
	}
	slices.SortFunc(times, cmp.Compare)
	rank := func(share float64) float64 { // nearest rank
		return milliseconds(times[max(0, int(math.Ceil(share*float64(len(times))))-1)])
	}
	return &latency{P50: rank(.5), P90: rank(.9), P99: rank(.99), Max: milliseconds(times[len(times)-1])}
}

func milliseconds(d time.Duration) float64 {
	return math.Round(d.Seconds()*1e6) / 1e3
}

// failure names an answer that is neither, or why there was none.
func failure(r result) string {
	if r.status != 0 {
		return strings.TrimSpace(fmt.Sprintf("%d %s", r.status, http.StatusText(r.status)))
	}
	return fmt.Sprintf("no answer: %v", r.err)
}
