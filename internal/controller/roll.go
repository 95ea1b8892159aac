// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// roll is who the replicas are and what each has said. It is guarded by the Discovery's lock.
type roll struct {
	// known is whether the endpoints have been read once.
	known bool
	// refusedSince is since when the API server refuses them; the zero time if it does not.
	refusedSince time.Time
	// reports is whether this replica is the one that writes status: of the ready ones that whose name
	// is the smallest. All agree on it without a word, as soon as they have seen the same endpoints.
	reports bool
	// term counts how often it has become so.
	term uint64
	// replicas is how many are ready, this one included.
	replicas int
	// restsSince is since when neither that number nor which replicas let everything pass has changed.
	restsSince time.Time
	// others are the replicas to ask, by key; none unless this one reports.
	others map[string]*other
	// wants is what they are asked for, replaced as a whole; latest is the largest number in it or before.
	wants  []want
	latest uint64
}

// want is one generation of a tier that every replica should have in force.
type want struct {
	tierRef
	// number grows with each that is new, so that one number says up to where a replica has been asked.
	number uint64
}

// other is another replica.
type other struct {
	endpoint
	wake   chan struct{} // there is something new to ask
	cancel context.CancelFunc

	// asked is up to which number everything was asked about and answered.
	asked uint64
	// lacking are those of them that it does not have in force. The map is replaced, never changed.
	lacking map[types.UID]bool
	// disabled is whether it runs with RATE_LIMIT_DISABLED, as far as is known.
	disabled bool
	// failures is how many times in a row it could not be asked.
	failures int
}

// setEndpoints takes in who the replicas are.
func (d *Discovery) setEndpoints(endpoints []endpoint) {
	r := &d.roll
	isSelf := selfOf(endpoints, d.Pod)
	ready, first := 0, true
	reports := false
	for i := range endpoints {
		if e := &endpoints[i]; !e.stopping {
			if first {
				reports, first = isSelf(e), false
			}
			ready++
		}
	}
	if ready != r.replicas || !r.known {
		r.restsSince = time.Now()
		if ready == 0 {
			d.Log.Info("no replica is a ready endpoint of the Service: status is written once one is", "service", d.Namespace+"/"+d.Service)
		}
	}
	r.known, r.replicas = true, ready
	if reports != r.reports {
		r.reports, r.wants = reports, nil
		if reports {
			r.term++
		}
	}
	wanted := map[string]*endpoint{}
	for i := range endpoints {
		if e := &endpoints[i]; reports && !isSelf(e) {
			wanted[e.key] = e
		}
	}
	d.setOthers(wanted)
	d.changed()
}

// setOthers begins and ends to follow replicas so that these are followed. One that has become ready
// again may be another process and is asked about everything.
func (d *Discovery) setOthers(wanted map[string]*endpoint) {
	r := &d.roll
	for key, o := range r.others {
		if e := wanted[key]; e == nil || o.stopping && !e.stopping {
			o.cancel()
			delete(r.others, key)
		} else {
			o.endpoint = *e
		}
	}
	if r.others == nil {
		r.others = map[string]*other{}
	}
	for key, e := range wanted {
		if r.others[key] != nil || d.running == nil {
			continue
		}
		ctx, cancel := context.WithCancel(d.running)
		o := &other{endpoint: *e, wake: make(chan struct{}, 1), cancel: cancel}
		r.others[key] = o
		d.followers.Go(func() { d.follow(ctx, o) })
	}
}

// want has the other replicas asked for these, of which those that they were not asked for yet have
// numbers above all before. It does nothing where this replica does not report any more.
func (d *Discovery) want(term uint64, wants []want, latest uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &d.roll
	if !r.reports || r.term != term {
		return
	}
	r.wants, r.latest = wants, latest
	for _, o := range r.others {
		select {
		case o.wake <- struct{}{}:
		default: // it is about to look anyway
		}
	}
}

// view returns what is known now.
func (d *Discovery) view() view {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &d.roll
	if since := r.refusedSince; !since.IsZero() && time.Since(since) >= d.refusalPatience() {
		return view{reports: true, unreadable: d.Namespace + "/" + d.Service, replicas: 1, restsSince: since}
	}
	if !r.known || !r.reports {
		return view{}
	}
	v := view{reports: true, term: r.term, port: d.Port, replicas: r.replicas, restsSince: r.restsSince}
	for _, o := range r.others {
		v.others = append(v.others, *o)
	}
	return v
}
