// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"net/http"
	"time"
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

// boundedTransport bounds the bodies of answers to jwksSize.
type boundedTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, jwksSize)
	}
	return response, err
}
