// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

const (
	// patience is how long a replica may take to answer. It is longer than an admin API waits for Redis.
	patience = 30 * time.Second
	// maxAnswer bounds the answer of a replica, in bytes. A simulation of 100,000 users is 10 MB.
	maxAnswer = 64 << 20
)

// request is what is asked of an admin API.
type request struct {
	method, path string
	query        url.Values
}

// writes returns whether the request changes something.
func (r request) writes() bool { return r.method != http.MethodGet }

// replica is one admin API.
type replica struct {
	name      string // "Pod tierlimit-5f9-x2v", or the URL of --server
	namespace string // of the Pod; "" for --server
	base      string // "https://127.0.0.1:8444"
	client    *http.Client
	agent     string // User-Agent
}

// unreachable is the error of a replica that gave no answer. Unsent is true if the request has certainly
// not reached it.
type unreachable struct {
	replica string
	unsent  bool
	cause   error
}

func (e *unreachable) Error() string { return e.replica + " cannot be asked: " + e.cause.Error() }
func (e *unreachable) Unwrap() error { return e.cause }

// refused is the answer of a replica that did not do what it was asked.
type refused struct {
	replica string
	request request
	status  int
	detail  string
}

func (e *refused) Error() string {
	return fmt.Sprintf("%s answers %d: %s", e.replica, e.status, strings.TrimSuffix(e.detail, ".")) // more may follow
}

// ask asks the replica, for the time of patience at the most, and returns the JSON of its answer.
func (r *replica) ask(ctx context.Context, q request, timeout time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	address := r.base + q.path
	if len(q.query) > 0 {
		address += "?" + q.query.Encode()
	}
	httpRequest, err := http.NewRequestWithContext(ctx, q.method, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	httpRequest.Header.Set("User-Agent", r.agent)
	httpRequest.Header.Set("Accept", "application/json, application/problem+json")
	response, err := r.client.Do(httpRequest)
	if err != nil {
		return nil, r.unreachable(ctx, err)
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, r.unreachable(ctx, err)
	case len(body) > maxAnswer:
		return nil, &unreachable{replica: r.name, cause: fmt.Errorf("the answer is longer than %d MiB", maxAnswer>>20)}
	case response.StatusCode != http.StatusOK:
		return nil, &refused{replica: r.name, request: q, status: response.StatusCode, detail: detail(response, body)}
	case !json.Valid(body):
		return nil, &unreachable{replica: r.name, cause: fmt.Errorf("the answer is not JSON: is this the admin API? %.60q", body)}
	}
	return body, nil
}

func (r *replica) unreachable(ctx context.Context, err error) error {
	var dialing *dialError
	unsent := errors.As(err, &dialing)
	var wrapped *url.Error
	if errors.As(err, &wrapped) { // it repeats the URL, in which the user's name is
		err = wrapped.Err
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return &unreachable{replica: r.name, unsent: unsent, cause: err}
}

// detail returns what an answer says went wrong.
func detail(response *http.Response, body []byte) string {
	var problem adminapi.Problem
	if err := json.Unmarshal(body, &problem); err == nil && problem.Detail != "" {
		return printable(problem.Detail)
	}
	const enough = 300
	text := strings.TrimSpace(string(body[:min(len(body), enough)]))
	if text == "" || strings.HasPrefix(text, "<") { // a page of HTML helps nobody
		text = http.StatusText(response.StatusCode)
	}
	return printable(text)
}

// dialError is the error of a connection that was not made.
type dialError struct{ cause error }

func (e *dialError) Error() string { return e.cause.Error() }
func (e *dialError) Unwrap() error { return e.cause }
