// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// latencyBuckets go from a check that Redis answers at once to the deadline of one that it does
// not answer, in seconds.
var latencyBuckets = []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}

// Metrics are the metrics of the check endpoint. No label holds anything that a client can choose.
type Metrics struct {
	checks        *prometheus.CounterVec
	unknownTiers  prometheus.Counter
	checkDuration prometheus.Histogram
	storeDuration prometheus.Histogram
	storeErrors   *prometheus.CounterVec
	rejections    prometheus.Counter
}

// NewMetrics registers the metrics. Replicas returns how many replicas share a budget while Redis is
// away.
func NewMetrics(registerer prometheus.Registerer, tiers *tier.Table, disabled bool, replicas func() int64) *Metrics {
	m := &Metrics{
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tierlimit_checks_total",
			Help: "Checks answered, by the tier applied, the outcome, and the window that the answer speaks of (minute or day, upstream-minute or upstream-day).",
		}, []string{"tier", "outcome", "window"}),
		unknownTiers: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tierlimit_unknown_tier_checks_total",
			Help: "Checks that named a tier which does not exist and were answered by the default tier.",
		}),
		checkDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "tierlimit_check_duration_seconds",
			Help:    "Time to answer a check.",
			Buckets: latencyBuckets,
		}),
		storeDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "tierlimit_store_duration_seconds",
			Help:    "Time that Redis took to decide, failures included.",
			Buckets: latencyBuckets,
		}),
		storeErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tierlimit_store_errors_total",
			Help: "Checks that Redis did not decide, by reason: timeout, reply (not a decision), circuit_open (not asked, because it has not answered before) or error (unreachable, or it answered with an error).",
		}, []string{"reason"}),
		rejections: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tierlimit_remembered_rejections_total",
			Help: "Rejections answered from the memory of this replica, without asking Redis.",
		}),
	}
	for _, reason := range []string{reasonTimeout, reasonReply, reasonCircuitOpen, reasonError} {
		m.storeErrors.WithLabelValues(reason) // a rate needs the zero to start from
	}
	registerer.MustRegister(m.checks, m.unknownTiers, m.checkDuration, m.storeDuration, m.storeErrors, m.rejections,
		&tierCollector{tiers: tiers, disabled: disabled, replicas: replicas})
	return m
}

const (
	reasonTimeout     = "timeout"
	reasonReply       = "reply"
	reasonCircuitOpen = "circuit_open"
	reasonError       = "error"
)

// checked counts an answer.
func (m *Metrics) checked(a *answer, duration time.Duration) {
	m.checks.WithLabelValues(a.tier, string(a.outcome), a.quota.name()).Inc()
	m.checkDuration.Observe(duration.Seconds())
}

// unknownTier counts a fallback to the default tier.
func (m *Metrics) unknownTier() { m.unknownTiers.Inc() }

// remembered counts a rejection for which the store was not asked.
func (m *Metrics) remembered() { m.rejections.Inc() }

// asked counts a call of the store.
func (m *Metrics) asked(duration time.Duration, err error) {
	m.storeDuration.Observe(duration.Seconds())
	if err != nil {
		m.storeErrors.WithLabelValues(reasonOf(err)).Inc()
	}
}

func reasonOf(err error) string {
	var netErr net.Error
	switch {
	case errors.Is(err, limiter.ErrReply):
		return reasonReply
	case errors.Is(err, limiter.ErrCircuitOpen):
		return reasonCircuitOpen
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return reasonTimeout
	}
	return reasonError
}

// tierCollector reads the tier table when it is scraped, so that the expiry of a kill switch shows
// to the second.
type tierCollector struct {
	tiers    *tier.Table
	disabled bool
	replicas func() int64
}

var (
	tiersDesc = prometheus.NewDesc("tierlimit_tiers",
		"RateLimitTiers in force.", nil, nil)
	replicasDesc = prometheus.NewDesc("tierlimit_replicas",
		"Replicas that this one knows of, itself included: it enforces one part in so many under failurePolicy FailLocal.", nil, nil)
	disabledDesc = prometheus.NewDesc("tierlimit_enforcement_disabled",
		"1 while a kill switch lets every request pass: of all tiers (scope global, RATE_LIMIT_DISABLED) or of one (scope tier).",
		[]string{"scope", "tier"}, nil)
	generationDesc = prometheus.NewDesc("tierlimit_tier_generation",
		"metadata.generation of the RateLimitTier in force in this replica; replicas that go on to differ have not all got a change.",
		[]string{"tier"}, nil)
	tierInfoDesc = prometheus.NewDesc("tierlimit_tier_info",
		"1 for each tier in force: what it does with requests over its limits (mode Enforce or DryRun), and with all while Redis does not decide (failure_policy FailClosed, FailLocal or FailOpen).",
		[]string{"tier", "mode", "failure_policy"}, nil)
	tierLimitDesc = prometheus.NewDesc("tierlimit_tier_limit_requests",
		"Requests that a tier in force admits for each caller in a window (minute or day).",
		[]string{"tier", "window"}, nil)
)

// Describe implements prometheus.Collector.
func (c *tierCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- tiersDesc
	descs <- replicasDesc
	descs <- disabledDesc
	descs <- generationDesc
	descs <- tierInfoDesc
	descs <- tierLimitDesc
}

// Collect implements prometheus.Collector.
func (c *tierCollector) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	tiers := c.tiers.All()
	gauge(tiersDesc, float64(len(tiers)))
	gauge(replicasDesc, float64(c.replicas()))
	gauge(disabledDesc, oneIf(c.disabled), "global", "")
	now := time.Now()
	for _, t := range tiers {
		gauge(disabledDesc, oneIf(t.KillSwitch.EngagedAt(now)), "tier", t.Name)
		if t.Generation > 0 { // files have none
			gauge(generationDesc, float64(t.Generation), t.Name)
		}
		gauge(tierInfoDesc, 1, t.Name, modeName(t), policyName(t.FailurePolicy))
		for _, limit := range t.Limits {
			gauge(tierLimitDesc, float64(limit.Requests), t.Name, quota{Limit: limit}.name())
		}
	}
}

// policyName is the name of a failure policy in the API.
func policyName(p tier.FailurePolicy) string {
	switch p {
	case tier.FailClosed:
	case tier.FailLocal:
		return "FailLocal"
	case tier.FailOpen:
		return "FailOpen"
	}
	return "FailClosed"
}

func oneIf(condition bool) float64 {
	if condition {
		return 1
	}
	return 0
}
