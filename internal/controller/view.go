// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// view is what is known of all replicas at one moment.
type view struct {
	// reports is whether this replica writes status.
	reports bool
	// term counts how often it has become the one that does.
	term uint64
	// unreadable is the Service whose EndpointSlices cannot be read; "" if they can.
	unreadable string
	// port is where replicas are asked.
	port string
	// replicas is how many are ready, this one included.
	replicas int
	// disabled is how many of them run with RATE_LIMIT_DISABLED.
	disabled int
	// restsSince is since when these numbers have not changed.
	restsSince time.Time
	// others are the replicas that are asked.
	others []other
}

// alone is the view of a replica that was not told of a Service: it is the only one.
func alone() view { return view{reports: true, replicas: 1} }

// countDisabled fills in how many replicas run with RATE_LIMIT_DISABLED.
func (v *view) countDisabled(self bool) {
	v.disabled = 0
	if self {
		v.disabled++
	}
	for i := range v.others {
		if o := &v.others[i]; o.disabled && !o.stopping {
			v.disabled++
		}
	}
}

// progress is how far a generation of a tier has come.
type progress struct {
	// updated is how many ready replicas have it in force.
	updated int
	// waiting, stopping and silent are the names of those that hold it up, in order: they do not have
	// it, do not have it and are about to stop, or cannot be asked. One that is about to stop and cannot
	// be asked has stopped.
	waiting, stopping, silent []string
}

// everywhere returns whether no replica answers checks by an earlier spec.
func (p *progress) everywhere() bool { return len(p.waiting)+len(p.stopping)+len(p.silent) == 0 }

// same returns whether two are the same. The names are in the order of the replicas' map, so that they
// are compared as sets.
func (p *progress) same(other *progress) bool {
	return p.updated == other.updated && sameNames(p.waiting, other.waiting) &&
		sameNames(p.stopping, other.stopping) && sameNames(p.silent, other.silent)
}

func sameNames(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))))
}

// progress returns how far a generation has come that this replica has in force, whose number it is.
func (v *view) progress(uid types.UID, number uint64) progress {
	p := progress{updated: 1}
	for i := range v.others {
		o := &v.others[i]
		switch {
		case number <= o.asked && !o.lacking[uid]:
			if !o.stopping {
				p.updated++
			}
		case o.stopping:
			p.stopping = append(p.stopping, o.name())
		case o.failures > 0:
			p.silent = append(p.silent, o.name())
		default:
			p.waiting = append(p.waiting, o.name())
		}
	}
	return p
}

// message says who holds a generation up, and what to do.
func (p *progress) message(v *view) string {
	parts := []string{fmt.Sprintf("%d of %s by this spec", p.updated, number(v.replicas, "replica answers checks", "replicas answer checks"))}
	if len(p.waiting) > 0 {
		parts = append(parts, "waiting for "+names(p.waiting))
	}
	if len(p.stopping) > 0 {
		parts = append(parts, "waiting for "+names(p.stopping)+" to stop")
	}
	if len(p.silent) > 0 {
		do := "let the Pods of Tierlimit reach each other there (NetworkPolicy), and delete a Pod that hangs"
		where := " on port " + v.port
		if v.port == "" {
			do, where = "set --health-probe-bind-address to the same port in all", ""
		}
		parts = append(parts, names(p.silent)+" cannot be asked"+where+": "+do)
	}
	return strings.Join(parts, "; ") + "."
}

// maxNames is how many replicas a message names.
const maxNames = 3

// names lists names: "a, b, c and 5 more".
func names(all []string) string {
	sorted := slices.Sorted(slices.Values(all))
	if more := len(sorted) - maxNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(sorted[:maxNames], ", "), more)
	}
	return strings.Join(sorted, ", ")
}

// number is a number of things, in words: "1 replica", "3 replicas".
func number(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
