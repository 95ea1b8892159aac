// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/MicahParks/jwkset"
)

// newTransport returns a transport to services that an operator has configured. It goes to their
// address and to no other: no proxy of the environment is used.
func newTransport() *http.Transport {
	return &http.Transport{
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    256,
		IdleConnTimeout:        50 * time.Second, // servers usually wait for 60
		TLSHandshakeTimeout:    5 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // bodies are passed on as they came
	}
}

// doNotFollow makes a client return a redirect instead of following it.
func doNotFollow(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// keysTransport bounds a set of keys to jwksSize and leaves out those that cannot be used, as RFC
// 7517, section 5, asks: one bad key must not take the others away.
type keysTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t keysTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	defer func() { _ = response.Body.Close() }()
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, response.Body, jwksSize)).Decode(&set); err != nil {
		return nil, ownError("the answer is not a JWK Set of at most 1 MiB")
	}
	set.Keys = slices.DeleteFunc(set.Keys, func(key json.RawMessage) bool { return !verifies(key) })
	usable, err := json.Marshal(set)
	response.Body = io.NopCloser(bytes.NewReader(usable))
	return response, err
}

// leastRSA is the smallest RSA key that is believed, in bits (RFC 7518, section 3.3).
const leastRSA = 2048

// verifies returns whether a key of a set (RFC 7517) can verify one of the signatures that are accepted.
func verifies(raw json.RawMessage) bool {
	key, err := jwkset.NewJWKFromRawJSON(raw, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
	if err != nil || key.Marshal().USE == jwkset.UseEnc {
		return false
	}
	switch key := key.Key().(type) {
	case *rsa.PublicKey:
		return key.N.BitLen() >= leastRSA
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	}
	return false
}

// ownError is an error in words of this package.
type ownError string

func (e ownError) Error() string { return string(e) }

// presentable returns an error for the log. The URL that was asked and what the other side has sent
// may hold secrets, and are left out.
func presentable(err error) error {
	var (
		own         ownError
		network     *net.OpError
		certificate *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &network):
		return network
	case errors.As(err, &certificate):
		return certificate
	case errors.Is(err, context.DeadlineExceeded), os.IsTimeout(err):
		return ownError("no answer in time")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ownError("the connection was closed before the end of the answer")
	case errors.Is(err, jwkset.ErrInvalidHTTPStatusCode):
		return ownError("the status of the answer is not 200")
	case errors.Is(err, errNoKeys):
		return errNoKeys
	}
	return ownError("the answer is not one of HTTP")
}
