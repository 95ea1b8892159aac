// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crd embeds the generated CustomResourceDefinition, so that the local mode validates by
// the rules that the cluster applies, and not by a copy of them.
package crd

import _ "embed"

// RateLimitTiers is the CustomResourceDefinition of RateLimitTier, as YAML.
//
//go:embed bases/tierlimit.dev_ratelimittiers.yaml
var RateLimitTiers []byte
