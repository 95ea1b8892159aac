// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import "github.com/prometheus/client_golang/prometheus"

// RegisterCircuit registers the gauge of a limiter's circuit breaker.
func RegisterCircuit(registerer prometheus.Registerer, open func() bool) {
	registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tierlimit_store_circuit_open",
		Help: "1 while checks do not wait for Redis, or for one primary of a Redis Cluster, because it does not answer.",
	}, func() float64 { return oneIf(open()) }))
}
