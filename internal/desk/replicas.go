// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// together is how many replicas are asked at a time.
	together = 8
	// tries is how many replicas are tried when one is enough to make a change.
	tries = 3
	// tryPatience is how long a replica may take to answer when others can be asked instead.
	tryPatience = 3 * time.Second
)

// replicas are the admin APIs to ask.
type replicas struct {
	d       *desk
	cluster *cluster // nil for --server
	timeout time.Duration
	given   bool // timeout is --request-timeout
	list    []*replica
	listed  time.Time
}

// connect finds the replicas. It asks none of them yet.
func (d *desk) connect(ctx context.Context) (*replicas, error) {
	timeout, given, err := d.timeout()
	if err != nil {
		return nil, err
	}
	all := &replicas{d: d, timeout: timeout, given: given}
	if d.server != "" {
		one, err := d.direct()
		if err != nil {
			return nil, err
		}
		all.list = []*replica{one}
		return all, nil
	}
	if all.cluster, err = d.connectCluster(timeout); err != nil {
		return nil, err
	}
	return all, all.find(ctx)
}

// timeout is --request-timeout, or patience if none is given.
func (d *desk) timeout() (timeout time.Duration, given bool, err error) {
	text := d.config.overrides.Timeout
	if text == "" || text == "0" {
		return patience, false, nil
	}
	if !strings.ContainsAny(text, "nuµmsh") {
		text += "s" // as kubectl reads it
	}
	timeout, err = time.ParseDuration(text)
	if err != nil || timeout < 0 {
		return 0, false, usagef("--request-timeout is %.40q: use a time such as 10s", text)
	}
	if timeout == 0 {
		return patience, false, nil
	}
	return timeout, true, nil
}

// find lists the Pods anew and keeps the tunnels to those that are still there.
func (r *replicas) find(ctx context.Context) error {
	list, err := r.cluster.replicas(ctx)
	if err != nil {
		return err
	}
	r.list, r.listed = list, r.d.now()
	return nil
}

// close ends the tunnels.
func (r *replicas) close() {
	if r.cluster != nil {
		r.cluster.close()
	}
}

// one asks one replica, another if the first does not answer or fails, and returns the answer as it is and
// decoded. A change is sent to another only if it has certainly not reached the first.
func (r *replicas) one(ctx context.Context, q request, into any) ([]byte, error) {
	candidates := r.list
	if q.writes() {
		candidates = candidates[:min(len(candidates), tries)]
	}
	var failures []error
	until := time.Now().Add(r.timeout)
	for i, replica := range candidates {
		wait := r.timeout
		if !q.writes() {
			wait = turn(time.Until(until), len(candidates)-i)
		}
		body, err := replica.ask(ctx, q, wait)
		switch {
		case err == nil:
			if err := replica.decode(body, into); err != nil {
				return nil, err
			}
			for _, failure := range failures {
				r.d.warn("%v", failure)
			}
			return body, nil
		case ctx.Err() != nil || !another(q, err):
			return nil, r.explain(ctx, err)
		}
		failures = append(failures, err)
	}
	return nil, r.explain(ctx, errors.Join(failures...))
}

// turn is how long one replica may take when so many are left to be asked in a time: the last one all of it.
func turn(left time.Duration, replicas int) time.Duration {
	if replicas == 1 {
		return left
	}
	return min(tryPatience, left/time.Duration(replicas))
}

// another returns whether another replica can be asked the same after an error.
func another(q request, err error) bool {
	var failed *unreachable
	if errors.As(err, &failed) {
		return failed.unsent || !q.writes()
	}
	var answer *refused
	return errors.As(err, &answer) && answer.status >= http.StatusInternalServerError && !q.writes()
}

// everyone asks all replicas, so many at a time, and returns what they have answered, decoded. One that does not answer is
// named in a warning; when none does that is an error.
func everyone[T any](ctx context.Context, r *replicas, together int, q request) ([]T, error) {
	answers, failures := make([]*T, len(r.list)), make([]error, len(r.list))
	var group errgroup.Group
	group.SetLimit(together)
	for i, replica := range r.list {
		group.Go(func() error {
			body, err := replica.ask(ctx, q, r.timeout)
			if err == nil {
				answers[i] = new(T)
				err = replica.decode(body, answers[i])
			}
			failures[i] = err
			return nil
		})
	}
	_ = group.Wait() // failures has all errors
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	var got []T
	var wrong []error
	for i, err := range failures {
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		got = append(got, *answers[i])
	}
	if len(got) == 0 {
		return nil, r.explain(ctx, errors.Join(wrong...))
	}
	for _, err := range wrong {
		r.d.warn("%v", err)
	}
	if len(wrong) > 0 {
		r.d.warn("%d of %d replicas answered: what the others have seen is missing below", len(got), len(r.list))
	}
	return got, nil
}

// warn prints a line that does not belong to the output.
func (d *desk) warn(format string, args ...any) {
	fmt.Fprintf(d.Streams.ErrOut, "Warning: "+format+"\n", args...)
}
