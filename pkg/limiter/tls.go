// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// tlsSettings is what a URL says about TLS. Each may be empty.
type tlsSettings struct {
	caFile, certFile, keyFile string // paths of files in PEM
	serverName                string // the name to verify instead of the host
	skipVerify                bool
}

// tlsSource makes the TLS configuration of each new connection, from files that are renewed while
// the process runs.
type tlsSource struct {
	tlsSettings
	// Of the last good files; nil without such a file.
	roots atomic.Pointer[x509.CertPool]
	pair  atomic.Pointer[tls.Certificate]
}

// newTLSSource reads the files once. The error names the parameter and the file.
func newTLSSource(settings tlsSettings) (*tlsSource, error) {
	s := &tlsSource{tlsSettings: settings}
	if err := s.readRoots(); err != nil {
		return nil, err
	}
	return s, s.readPair()
}

func (s *tlsSource) readRoots() error {
	if s.caFile == "" {
		return nil
	}
	content, err := os.ReadFile(s.caFile) //nolint:gosec // the operator names it
	if err != nil {
		return fmt.Errorf("%s: %w", paramCAFile, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(content) {
		return fmt.Errorf("%s: %s holds no certificate; give the certificates of the authorities in PEM", paramCAFile, s.caFile)
	}
	s.roots.Store(roots)
	return nil
}

func (s *tlsSource) readPair() error {
	if s.certFile == "" {
		return nil
	}
	cert, err := os.ReadFile(s.certFile) //nolint:gosec // the operator names it
	if err != nil {
		return fmt.Errorf("%s: %w", paramCertFile, err)
	}
	key, err := os.ReadFile(s.keyFile) //nolint:gosec // the operator names it
	if err != nil {
		return fmt.Errorf("%s: %w", paramKeyFile, err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s %s with %s %s: %w; give a certificate and its own key in PEM, without a passphrase",
			paramCertFile, s.certFile, paramKeyFile, s.keyFile, err)
	}
	s.pair.Store(&pair)
	return nil
}

// config is the configuration by the last good files.
func (s *tlsSource) config() *tls.Config {
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		RootCAs:            s.roots.Load(),
		ServerName:         s.serverName,
		InsecureSkipVerify: s.skipVerify, //nolint:gosec // asked for by skip_verify in the URL
	}
	if pair := s.pair.Load(); pair != nil {
		config.Certificates = []tls.Certificate{*pair}
	}
	return config
}

// dialer returns a function that connects by the files as they are then. Connecting, the handshake
// included, ends with the context or after the timeout.
func (s *tlsSource) dialer(timeout time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	keepAlive := net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3} // as go-redis
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		// A file that is away or half written leaves the last good one in force.
		_ = s.readRoots()
		_ = s.readPair()
		dialer := tls.Dialer{
			NetDialer: &net.Dialer{Timeout: timeout, KeepAliveConfig: keepAlive},
			Config:    s.config(), // without a ServerName the dialler verifies the host
		}
		return dialer.DialContext(ctx, network, addr)
	}
}
