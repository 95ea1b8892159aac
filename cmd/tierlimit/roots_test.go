// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// envVerifyRoot makes this test binary verify one of the certificate authorities and end.
const envVerifyRoot = "TIERLIMIT_TEST_VERIFY_ROOT"

// verifyRoot verifies a certificate that only itself vouches for, with what this process believes.
func verifyRoot() int {
	for root := range bundle.Roots() {
		certificate, err := x509.ParseCertificate(root.Certificate)
		if err == nil && root.Constraint == nil {
			_, err = certificate.Verify(x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
	}
	return 0
}

// TestCertificateAuthorities verifies without any file of the system, as in the image, and with one.
func TestCertificateAuthorities(t *testing.T) {
	nothing := t.TempDir()
	other := filepath.Join(nothing, "other.pem")
	certificate, _, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason   string
		file     string
		verifies bool
	}{
		"Image":    {"a system without authorities has those that are compiled in", filepath.Join(nothing, "missing.pem"), true},
		"OwnFiles": {"files of the system go first: whoever names them means these and no others", other, false},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), envVerifyRoot+"=1", "SSL_CERT_FILE="+tc.file, "SSL_CERT_DIR="+filepath.Join(nothing, "missing"))
			output, err := cmd.CombinedOutput()
			if verifies := err == nil; verifies != tc.verifies {
				t.Errorf("verifies: %v (%v), but %s\n%s", verifies, err, tc.reason, output)
			}
		})
	}
}
