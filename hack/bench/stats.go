// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"
	"time"
)

// median is the middle of the values, the mean of the middle two if there are two, and NaN of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// middling is the mean of the middle half of sorted values: a median that is finer than their unit.
func middling(sorted []float64) float64 {
	return mean(sorted[len(sorted)/4 : len(sorted)-len(sorted)/4])
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, value := range values {
		sum += value
	}
	return sum / float64(len(values))
}

// each is a figure of each sample.
func (r *row) each(figure func(sample) float64) []float64 {
	values := make([]float64, len(r.samples))
	for i, s := range r.samples {
		values[i] = figure(s)
	}
	return values
}

func (r *row) rate() float64 { return median(r.each(func(s sample) float64 { return s.rate() })) }

// latency is in milliseconds.
func (r *row) p50() float64 {
	return median(r.each(func(s sample) float64 { return float64(s.P50US) / 1e3 }))
}

func (r *row) p99() float64 {
	return median(r.each(func(s sample) float64 { return float64(s.P99US) / 1e3 }))
}

// ratio is the rate in relation to that of another row, each round for itself.
func (r *row) ratio(other *row) float64 {
	if other == nil {
		return math.NaN()
	}
	values := make([]float64, min(len(r.samples), len(other.samples)))
	for i := range values {
		values[i] = r.samples[i].rate() / other.samples[i].rate()
	}
	return median(values)
}

// spread is how far the rates of the rounds lie apart, as a share of the median.
func (r *row) spread() float64 {
	rates := r.each(func(s sample) float64 { return s.rate() })
	return (slices.Max(rates) - slices.Min(rates)) / median(rates)
}

// perCheck is what all rounds took of something together, in microseconds per check.
func (r *row) perCheck(figure func(sample) time.Duration) float64 {
	var total time.Duration
	var requests int64
	for _, s := range r.samples {
		total += figure(s)
		requests += s.Requests
	}
	return float64(total) / float64(time.Microsecond) / float64(requests)
}

func (r *row) serverCPU() float64 {
	return r.perCheck(func(s sample) time.Duration { return s.serverCPU })
}

func (r *row) redisCPU() float64 {
	return r.perCheck(func(s sample) time.Duration { return s.redisCPU })
}

// shares are how much of the checks that were decided was rejected, and how much of all failed.
func (r *row) shares() (rejected, failed float64) {
	var requests, decided, rejections, errors int64
	for _, s := range r.samples {
		requests += s.Requests
		decided += s.admitted + s.rejected
		rejections += s.rejected
		errors += s.errors()
	}
	return float64(rejections) / float64(decided), float64(errors) / float64(requests)
}
