// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// firstAsk is how long the others are given before they are asked: they learn of a change at the
	// same time, so that one question is usually enough.
	firstAsk = 20 * time.Millisecond
	// secondAsk is when one that lacks something or does not answer is asked again; the time doubles
	// up to lastAsk.
	secondAsk, lastAsk = 50 * time.Millisecond, 2 * time.Second
	// askTimeout bounds one question.
	askTimeout = time.Second
	// maxAsked is how many replicas are asked at once.
	maxAsked = 16
	// chunk is how many tiers one question is about; with names of full length it is a third of
	// maxLoadedBytes.
	chunk = 2000
	// failuresToLog is after how many questions without an answer the log says so. A replica that has
	// just ended is still an endpoint for a moment.
	failuresToLog = 5
)

// errNoPort is why no other replica can be asked.
var errNoPort = errors.New("--health-probe-bind-address has no port at which replicas could be asked: set one, the same for all")

// newAskClient returns the client for questions. Each has a connection of its own: they are few, and
// an idle one could lead to another Pod by the time it is used again.
func newAskClient(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Client {
	return &http.Client{
		Transport: &http.Transport{ // no Proxy: replicas are asked directly, whatever the environment says
			DialContext:            dial,
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: 16 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// follow asks one replica whenever there is something to ask, until ctx ends.
func (d *Discovery) follow(ctx context.Context, o *other) {
	wait := firstAsk
	for {
		todo, latest := d.todo(o)
		var due <-chan time.Time
		if len(todo) > 0 {
			due = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
			wait = firstAsk
			continue
		case <-due:
		}
		lacking, disabled, err := d.askAll(ctx, o, todo)
		if ctx.Err() != nil {
			return
		}
		d.answered(o, latest, lacking, disabled, err)
		wait = min(max(2*wait, secondAsk), lastAsk)
	}
}

// todo returns what a replica is still to be asked for, and the largest number there is.
func (d *Discovery) todo(o *other) ([]want, uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var todo []want
	for _, w := range d.roll.wants {
		if w.number > o.asked || o.lacking[w.uid()] {
			todo = append(todo, w)
		}
	}
	if len(todo) == 0 && len(o.lacking) > 0 {
		o.lacking = nil // those tiers are gone
	}
	return todo, d.roll.latest
}

// answered takes in an answer, or that there was none.
func (d *Discovery) answered(o *other, latest uint64, lacking map[types.UID]bool, disabled bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		o.failures++
		if o.failures == failuresToLog {
			d.Log.Error(err, "a replica cannot be asked what it has loaded", "replica", o.name())
		}
		gone := o.stopping && (nobodyThere(err) || o.failures >= failuresToLog)
		if gone { // it has stopped, and is only asked again for what is new
			o.asked, o.lacking = latest, nil
		}
		if o.failures == 1 || gone {
			d.changed()
		}
		return
	}
	if o.failures >= failuresToLog {
		d.Log.Info("the replica answers again", "replica", o.name())
	}
	if disabled != o.disabled {
		d.roll.restsSince = time.Now()
	}
	news := o.failures > 0 || o.asked != latest || disabled != o.disabled || !maps.Equal(o.lacking, lacking)
	o.failures, o.asked, o.lacking, o.disabled = 0, latest, lacking, disabled
	if news {
		d.changed()
	}
}

// nobodyThere returns whether an error says that nobody listens any more. One that is about to stop and
// only slow still answers checks.
func nobodyThere(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}

// askAll asks a replica for tiers and returns which of them it lacks.
func (d *Discovery) askAll(ctx context.Context, o *other, todo []want) (map[types.UID]bool, bool, error) {
	if d.Port == "" {
		return nil, false, errNoPort
	}
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	lacking, disabled := map[types.UID]bool{}, false
	for len(todo) > 0 {
		part := todo[:min(chunk, len(todo))]
		todo = todo[len(part):]
		answer, err := d.ask(ctx, d.addressOf(o), part)
		if err != nil {
			return nil, false, err
		}
		for _, w := range part {
			if answer.lacks[w.Name] {
				lacking[w.uid()] = true
			}
		}
		disabled = answer.disabled
	}
	return lacking, disabled, nil
}

// addressOf returns where to ask a replica: if it has addresses of two families, at each in turn.
func (d *Discovery) addressOf(o *other) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(o.addresses) == 0 {
		return ""
	}
	return net.JoinHostPort(o.addresses[o.failures%len(o.addresses)], d.Port)
}

// ask asks one question.
func (d *Discovery) ask(ctx context.Context, address string, part []want) (answered, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	question := loadedQuestion{Tiers: make([]tierRef, len(part))}
	for i := range part {
		question.Tiers[i] = part[i].tierRef
	}
	body, err := json.Marshal(question)
	if err != nil {
		return answered{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+LoadedPath, bytes.NewReader(body))
	if err != nil {
		return answered{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := d.client.Do(request)
	if err != nil {
		return answered{}, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return answered{}, fmt.Errorf("http://%s%s answers %s", address, LoadedPath, response.Status)
	}
	answer, err := readAnswer(io.LimitReader(response.Body, maxLoadedBytes), question)
	if err != nil {
		return answered{}, fmt.Errorf("http://%s%s answers something else: %w", address, LoadedPath, err)
	}
	return answer, nil
}
