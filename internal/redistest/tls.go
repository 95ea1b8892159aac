// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TLSServer is a Server that speaks nothing but TLS. Its certificate is valid for 127.0.0.1 and
// localhost.
type TLSServer struct {
	*Server
	// CAFile has the certificate of the authority that issued the server's and the client's.
	CAFile string
	// CertFile and KeyFile are a certificate for clients and its private key.
	CertFile, KeyFile string
}

// StartTLS runs a redis-server with TLS until the test ends. Clients need a certificate only with
// the arguments "--tls-auth-clients", "yes".
func StartTLS(t testing.TB, args ...string) *TLSServer {
	t.Helper()
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := NewAuthority(t, "redistest authority")
	cert, key := ca.Issue("localhost", "127.0.0.1")
	certFile, keyFile := file("server.crt", cert), file("server.key", key)
	cert, key = ca.Issue("localhost", "127.0.0.1")
	s := &TLSServer{CAFile: file("ca.crt", ca.PEM), CertFile: file("client.crt", cert), KeyFile: file("client.key", key)}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)

	addr := FreeAddresses(t, 1)[0]
	host, port, _ := net.SplitHostPort(addr)
	s.Server = newServer(t, &redis.Options{
		Addr:      addr,
		Password:  argument(args, "--requirepass"),
		TLSConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}},
	}, append([]string{
		"--bind", host, "--port", "0", "--tls-port", port, "--save", "", "--appendonly", "no",
		"--tls-ca-cert-file", s.CAFile, "--tls-cert-file", certFile, "--tls-key-file", keyFile,
		"--tls-auth-clients", "no",
	}, args...)...)
	s.Restart()
	return s
}

// URL is the server's URL, without a password.
func (s *TLSServer) URL() string { return "rediss://" + s.addr }
