// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drills has the outage drills: tests that take a part away from several replicas of the
// program while they are asked, and hold them to what the documentation promises. Every part is a
// real one. They prove what must never happen, and print how long things took, which no test asserts;
// docs/operations.md has what was seen. Nothing in it is compiled into Tierlimit.
package drills
