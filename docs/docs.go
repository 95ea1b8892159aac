// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs embeds what the program serves of its documentation.
package docs

import _ "embed"

// OpenAPI describes the admin API.
//
//go:embed openapi.yaml
var OpenAPI []byte
