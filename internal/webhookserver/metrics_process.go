// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// RegisterBuildInfo registers what a replica was built from: its version, such as "v0.1.0", and its
// commit, which may be "".
func RegisterBuildInfo(registerer prometheus.Registerer, version, revision string) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "tierlimit_build_info",
		Help:        "1, with the version and the commit that this replica was built from, and the version of Go that has built it.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "goversion": runtime.Version()},
	})
	info.Set(1)
	registerer.MustRegister(info)
}

var connectionsDesc = prometheus.NewDesc("tierlimit_store_connections",
	"Connections to Redis, by state: used by checks, or idle.", []string{"state"}, nil)

// connectionCollector counts connections when it is scraped.
type connectionCollector struct {
	count func() (all, idle uint32)
}

// RegisterConnections registers the gauge of the connections to Redis.
func RegisterConnections(registerer prometheus.Registerer, count func() (all, idle uint32)) {
	registerer.MustRegister(connectionCollector{count})
}

// Describe implements prometheus.Collector.
func (connectionCollector) Describe(descs chan<- *prometheus.Desc) { descs <- connectionsDesc }

// Collect implements prometheus.Collector.
func (c connectionCollector) Collect(metrics chan<- prometheus.Metric) {
	all, idle := c.count()
	metrics <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(all-min(idle, all)), "used")
	metrics <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(idle), "idle")
}
