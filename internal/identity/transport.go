// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
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
	}
	return ownError("the answer is not one of HTTP")
}
