// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

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
	ca := newAuthority(t)
	s := &TLSServer{CAFile: filepath.Join(ca.dir, "ca.crt")}
	s.CertFile, s.KeyFile = ca.issue("client", x509.ExtKeyUsageClientAuth)
	certFile, keyFile := ca.issue("server", x509.ExtKeyUsageServerAuth)
	pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.certificate)

	addr := freeAddrs(t, 1)[0]
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

// authority issues certificates into a folder.
type authority struct {
	t           testing.TB
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	ca := &authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "redistest authority"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	ca.certificate, ca.key = ca.create("ca", template)
	return ca
}

// issue returns the files of a certificate and its key.
func (ca *authority) issue(name string, usage x509.ExtKeyUsage) (certFile, keyFile string) {
	ca.t.Helper()
	ca.create(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "redistest " + name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{usage},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
	return filepath.Join(ca.dir, name+".crt"), filepath.Join(ca.dir, name+".key")
}

// create signs the template, by itself if there is no certificate of the authority yet.
func (ca *authority) create(name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	parent, signer := ca.certificate, ca.key
	if parent == nil {
		parent, signer = template, key
	}
	now := time.Now()
	template.SerialNumber = big.NewInt(now.UnixNano())
	template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(24*time.Hour)
	certDER, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		ca.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		ca.t.Fatal(err)
	}
	ca.write(name+".crt", "CERTIFICATE", certDER)
	ca.write(name+".key", "PRIVATE KEY", keyDER)
	certificate, err := x509.ParseCertificate(certDER)
	if err != nil {
		ca.t.Fatal(err)
	}
	return certificate, key
}

func (ca *authority) write(file, kind string, der []byte) {
	ca.t.Helper()
	content := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(filepath.Join(ca.dir, file), content, 0o600); err != nil {
		ca.t.Fatal(err)
	}
}
