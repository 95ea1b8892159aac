// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import "github.com/prometheus/client_golang/prometheus"

var (
	seenDesc = prometheus.NewDesc("tierlimit_seen_users",
		"Users of a tier that this replica has seen in the last day, or since it started: distinct ones, estimated where they are too many to be kept.",
		[]string{"tier"}, nil)
	rejectedDesc = prometheus.NewDesc("tierlimit_rejected_users",
		"Users of a tier among tierlimit_seen_users of whom it has rejected at least one request in that time, or would have (mode DryRun).",
		[]string{"tier"}, nil)
)

// Describe implements prometheus.Collector.
func (u *Usage) Describe(descs chan<- *prometheus.Desc) {
	descs <- seenDesc
	descs <- rejectedDesc
}

// Collect implements prometheus.Collector. It looks through the sample, in pieces that hold up a check
// for some 10 µs at the most.
func (u *Usage) Collect(metrics chan<- prometheus.Metric) {
	crowds := u.crowds()
	for _, t := range u.options.Tiers.All() {
		metrics <- prometheus.MustNewConstMetric(seenDesc, prometheus.GaugeValue, crowds[t.Name].seen, t.Name)
		metrics <- prometheus.MustNewConstMetric(rejectedDesc, prometheus.GaugeValue, crowds[t.Name].rejected, t.Name)
	}
}
