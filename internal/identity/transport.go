// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
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
		return nil, fmt.Errorf("the answer is not a JWK Set: %w", err)
	}
	set.Keys = slices.DeleteFunc(set.Keys, func(key json.RawMessage) bool {
		_, err := jwkset.NewJWKFromRawJSON(key, jwkset.JWKMarshalOptions{Private: true}, jwkset.JWKValidateOptions{})
		return err != nil
	})
	usable, err := json.Marshal(set)
	response.Body = io.NopCloser(bytes.NewReader(usable))
	return response, err
}

// withoutURL returns an error without the URL that it speaks of, whose query may hold a secret.
func withoutURL(err error) error {
	var urlError *url.Error
	if errors.As(err, &urlError) {
		return urlError.Err
	}
	return err
}
