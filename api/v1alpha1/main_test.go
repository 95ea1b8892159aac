// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"os"
	"testing"

	"github.com/tierlimit/tierlimit/internal/clustertest"
)

// cluster is a real API server with the generated CustomResourceDefinition.
var cluster *clustertest.Cluster

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, &cluster)) }
