// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// The image holds no certificate authorities. Where a system has none, these are believed: those
// that Mozilla includes. A file of the system, or one that SSL_CERT_FILE names, goes first.
import _ "golang.org/x/crypto/x509roots/fallback"
