// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build race

package drills

// With the race detector in the tests it is in the replicas too.
func init() { buildFlags = append(buildFlags, "-race") }
