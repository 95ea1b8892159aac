// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"cmp"
	"maps"
	"math"
	"net/http"
	"slices"
	"time"
)

// expectation is how many requests a window may admit.
type expectation struct {
	window string // "minute", "upstream-day", "10s"
	length time.Duration
	limit  int64
}

// judge turns results into a report. It knows no clock: a test can replay any load.
func judge(results []result, expected *expectation) report {
	r := report{Sent: len(results), ByApplication: map[string]int{}, Errors: map[string]int{}, Passed: map[string]int{}}
	var admitted, counted, rejected []result // counted are those that a budget has admitted
	limits := map[string]*expectation{}
	for _, one := range results {
		if one.status != 0 {
			r.Answered++
			learn(limits, one)
		}
		switch enforcement := enforcementOf(one); {
		case isAdmitted(one):
			admitted = append(admitted, one)
			if one.status >= 300 {
				add(r.ByApplication, says(one))
			}
			if enforcement == "" {
				counted = append(counted, one)
			} else {
				r.Passed[enforcement]++
			}
		case one.status == http.StatusTooManyRequests:
			rejected = append(rejected, one)
		default:
			add(r.Errors, failure(one))
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

// maxKinds is how many different failures are counted apart.
const maxKinds = 20

// add counts a failure.
func add(failures map[string]int, name string) {
	if _, known := failures[name]; !known && len(failures) >= maxKinds {
		name = "others"
	}
	failures[name]++
}

// learn remembers the limit of an answer: the highest, if a tier was changed or a grant was given
// meanwhile. Under FailLocal the answer speaks of one replica's share, and of no limit for all.
func learn(limits map[string]*expectation, r result) {
	window, limit, ok := limitOf(r)
	if !ok || enforcementOf(r) == byShare {
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
	w := benchWindow{Window: e.window, WindowSeconds: e.length.Seconds(), Limit: e.limit, Unproved: "no request was admitted by it"}
	if len(admitted) > 0 {
		w.Unproved = "no answer came within the window, so it cannot be told which requests are in one"
	}
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
	if w.Most > 0 {
		w.Unproved = ""
	}
	w.Over = max(0, w.Most-w.Limit)
	return w
}

// judgeRejections looks at what rejected clients were told.
func (r *report) judgeRejections(rejected []result) {
	for _, one := range rejected {
		window, limit, known := limitOf(one)
		length, _ := windowLength(window)
		seconds, inexact, ok := retryAfter(one)
		switch {
		case !ok && known && limit == 0: // no wait helps, so there is none to tell
		case !ok:
			r.WithoutRetryAfter++
		case known && seconds-inexact > int64(length/time.Second):
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

// sum counts what was wrong, and tells whether anything was proved.
func (r *report) sum() {
	r.Wrong = r.WithoutRetryAfter + r.TooLongRetryAfter
	for _, w := range r.Windows {
		r.Wrong += int(w.Over)
	}
	if r.Wait != nil && r.Wait.Wrong {
		r.Wrong++
	}
	r.Unproved = r.Wrong == 0 && r.Rejected == 0 && !slices.ContainsFunc(r.Windows, func(w benchWindow) bool { return w.Most > 0 })
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
