// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

// BenchmarkIdentify measures what each source adds to a check.
func BenchmarkIdentify(b *testing.B) {
	key := newKey(b)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		b.Fatal(err)
	}
	i := startIssuer(b, map[string]crypto.PublicKey{"es": &key.PublicKey, "rsa": &rsaKey.PublicKey})
	config := Config{JWT: i.verifier(b)}
	for name, bc := range map[string]struct{ list, header, value string }{
		"Address":      {"address", "X-Real-IP", "203.0.113.7"},
		"IPv6":         {"address", "X-Real-IP", "2001:db8:1:2:3:4:5:6"},
		"ForwardedFor": {"forwarded-for:2", "X-Forwarded-For", "198.51.100.1, 203.0.113.7, 10.0.0.1"},
		"Header":       {"header:X-User", "X-User", "alice"},
		"APIKey":       {"api-key:X-Api-Key", "X-Api-Key", "sk-0123456789abcdef0123456789abcdef"},
		"JWT/ES256":    {"jwt", "Authorization", "Bearer " + sign(b, jwt.SigningMethodES256, "es", key, claims())},
		"JWT/RS256":    {"jwt", "Authorization", "Bearer " + sign(b, jwt.SigningMethodRS256, "rsa", rsaKey, claims())},
	} {
		b.Run(name, func(b *testing.B) {
			s, r := sources(b, bc.list, config), &Request{Header: headers(bc.header, bc.value), Peer: "192.0.2.1:1234"}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Identify(context.Background(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
