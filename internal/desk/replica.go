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
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
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
	request request
	unsent  bool
	cause   error
}

func (e *unreachable) Error() string {
	if e.request.writes() && !e.unsent {
		return e.replica + " was asked and has not answered: " + e.cause.Error() + ". It may have been done: see get"
	}
	return e.replica + " cannot be asked: " + e.cause.Error()
}

func (e *unreachable) Unwrap() error { return e.cause }

// errInterrupted is the error of what Ctrl-C has ended.
var errInterrupted = fmt.Errorf("interrupted (%w)", context.Canceled)

// ended returns why a context has ended, as a person can read it.
func ended(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return errInterrupted
}

// within returns what f returns, or why ctx has ended. F may go on until the program ends: a plugin that
// makes credentials is not told that nobody waits for it.
func within[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ended(ctx)
	}
}

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
	exact := time.Millisecond // what is left of a time is not a round one
	if timeout > time.Second {
		exact = 100 * time.Millisecond
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout.Round(exact)))
	defer cancel()
	address := r.base + q.path
	if len(q.query) > 0 {
		address += "?" + q.query.Encode()
	}
	var sent atomic.Bool // or begun to be
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }}
	httpRequest, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), q.method, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	httpRequest.Header.Set("User-Agent", r.agent)
	httpRequest.Header.Set("Accept", "application/json, application/problem+json")
	answer, err := within(ctx, func() (answered, error) { return r.do(httpRequest) })
	switch {
	case err != nil:
		return nil, r.unreachable(ctx, q, !sent.Load(), err)
	case len(answer.body) > maxAnswer:
		return nil, r.unreachable(ctx, q, false, fmt.Errorf("the answer is longer than %d MiB", maxAnswer>>20))
	case answer.StatusCode != http.StatusOK:
		return nil, &refused{replica: r.name, request: q, status: answer.StatusCode, detail: detail(answer.Response, answer.body)}
	case !json.Valid(answer.body):
		return nil, &foreign{r.name, fmt.Sprintf("it is not JSON: %.60q", answer.body)}
	}
	return answer.body, nil
}

// answered is an answer that was read to its end.
type answered struct {
	*http.Response
	body []byte
}

func (r *replica) do(httpRequest *http.Request) (answered, error) {
	response, err := r.client.Do(httpRequest)
	if err != nil {
		return answered{}, err
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	return answered{response, body}, err
}

func (r *replica) unreachable(ctx context.Context, q request, unsent bool, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) { // it repeats the URL, in which the user's name is
		err = wrapped.Err
	}
	if ctx.Err() != nil {
		err = ended(ctx)
	}
	return &unreachable{replica: r.name, request: q, unsent: unsent, cause: err}
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
