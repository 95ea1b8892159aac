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
