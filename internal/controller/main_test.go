// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"io"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tierlimit/tierlimit/internal/clustertest"
)

// cluster is a real API server, shared by the tests of this package, which therefore do not run in
// parallel: a table holds the tiers of all.
var cluster *clustertest.Cluster

func TestMain(m *testing.M) {
	klog.LogToStderr(false) // the client library's words about an API server that is stopped
	klog.SetOutput(io.Discard)
	ctrl.SetLogger(logr.Discard()) // each replica has a log of its own
	os.Exit(clustertest.Main(m, &cluster))
}
