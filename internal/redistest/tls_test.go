// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestTLSServerKnowsItsClients(t *testing.T) {
	open := StartTLS(t)
	strict := StartTLS(t, "--tls-auth-clients", "yes", "--requirepass", "secret")
	cases := map[string]struct {
		reason      string
		server      *TLSServer
		files       *TLSServer // whose CAFile, CertFile and KeyFile
		host        string
		certificate bool
		plain       bool
		want        bool
	}{
		"NoCertificate":            {reason: "By default clients need none.", server: open, files: open, host: "127.0.0.1", want: true},
		"Certificate":              {reason: "They may have one.", server: open, files: open, host: "127.0.0.1", certificate: true, want: true},
		"Localhost":                {reason: "The certificate is for this name too.", server: open, files: open, host: "localhost", want: true},
		"CertificateWhereDemanded": {reason: "It is from the right authority.", server: strict, files: strict, host: "127.0.0.1", certificate: true, want: true},
		"NoneWhereDemanded":        {reason: "The server demands one.", server: strict, files: strict, host: "127.0.0.1"},
		"OtherAuthority":           {reason: "The client does not know who issued the server's.", server: open, files: strict, host: "127.0.0.1"},
		"Plain":                    {reason: "There is no port without TLS.", server: open, files: open, host: "127.0.0.1", plain: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, port, _ := net.SplitHostPort(tc.server.Addr())
			options := &redis.Options{Addr: net.JoinHostPort("127.0.0.1", port), MaxRetries: -1, Password: argument(tc.server.args, "--requirepass")}
			if !tc.plain {
				options.TLSConfig = clientTLS(t, tc.files, tc.certificate)
				options.TLSConfig.ServerName = tc.host
			}
			client := redis.NewClient(options)
			defer client.Close()
			if err := client.Ping(context.Background()).Err(); (err == nil) != tc.want {
				t.Errorf("%s %v", tc.reason, err)
			}
		})
	}
	if want := "rediss://" + open.Addr(); open.URL() != want {
		t.Errorf("URL %s, want %s", open.URL(), want)
	}
}

func clientTLS(t *testing.T, s *TLSServer, certificate bool) *tls.Config {
	t.Helper()
	ca, err := os.ReadFile(s.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(ca) {
		t.Fatalf("no certificate in %s", s.CAFile)
	}
	if certificate {
		pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}
