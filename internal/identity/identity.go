// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package identity finds out who is calling, so that the budget of a check is that of the real
// caller. Whatever a client can set by itself is believed only where the operator says so.
package identity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// Request is what the form of a check knows about the request that is checked.
type Request struct {
	// Header holds what the proxy passed on: headers that it has set itself, and the client's.
	Header http.Header
	// Peer is the address and port that the check came from.
	Peer string
	// Unvouched is true where a client's own headers cannot be told from those of a proxy, except for
	// X-Real-IP and the end of X-Forwarded-For. A source that believes in others finds nothing.
	Unvouched bool
	// Joined is true where a header that was sent twice arrives as one, with a comma.
	Joined bool
}

// Caller is who is calling.
type Caller struct {
	// Kind says what User is.
	Kind limiter.Kind
	// User is whose budget it is.
	User string
	// Tenant and Tier are what the caller's credentials say; "" is nothing.
	Tenant, Tier string
}

// Refusal is the error for a request that does not say properly who is calling.
type Refusal struct {
	// Status is the answer: 400 for a header that is not understood, 401 for credentials that are
	// missing or not valid, 403 where no credentials would help.
	Status int
	// Challenge is the WWW-Authenticate of a 401.
	Challenge string
	// Detail is for people. It repeats nothing that the client sent.
	Detail string
	// Address is true when it is only the client's address that is not understood: the caller would
	// not have had to prove anything.
	Address bool
}

func (r *Refusal) Error() string { return r.Detail }

// ErrUnavailable is wrapped by the error for a service that was needed to identify the caller and
// did not answer.
var ErrUnavailable = errors.New("the caller cannot be identified now")

func malformed(format string, args ...any) *Refusal {
	return &Refusal{Status: http.StatusBadRequest, Detail: fmt.Sprintf(format, args...)}
}

func malformedAddress(format string, args ...any) *Refusal {
	return &Refusal{Status: http.StatusBadRequest, Detail: fmt.Sprintf(format, args...), Address: true}
}

// source finds the caller in one way. found is false when the request does not carry what the
// source looks for; the next source is then asked. It is not asked after an error.
type source interface {
	identify(ctx context.Context, r *Request) (caller Caller, found bool, err error)
}

// Sources is an ordered list of ways to find the caller. The first that finds one decides.
type Sources struct {
	list  []source
	names []string // of list, as they were written
	last  *Refusal // when none finds one
}

// Identify returns who is calling. The error is a *Refusal or wraps ErrUnavailable.
func (s *Sources) Identify(ctx context.Context, r *Request) (Caller, error) {
	caller, _, err := s.IdentifyBy(ctx, r)
	return caller, err
}

// IdentifyBy is Identify and also returns the source that has decided, as it was written in the list.
// Example: "header:X-User".
func (s *Sources) IdentifyBy(ctx context.Context, r *Request) (caller Caller, by string, err error) {
	for i, source := range s.list {
		caller, found, err := source.identify(ctx, r)
		if err != nil || found {
			return caller, s.names[i], err
		}
	}
	return Caller{}, "", s.last
}

// single returns the value of a header that may be there once. The name is in canonical form.
func single(r *Request, name string) (value string, found bool, err error) {
	values := r.Header[name]
	switch {
	case len(values) == 0:
		return "", false, nil
	case len(values) > 1:
		return "", false, malformed("the header %s is given twice", name)
	case r.Joined && strings.Contains(values[0], ","):
		return "", false, malformed("the header %s is given twice or contains a comma", name)
	case values[0] == "":
		return "", false, nil
	}
	return values[0], true, nil
}
