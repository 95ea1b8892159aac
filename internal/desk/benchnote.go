// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
)

// add adds a note.
func (r *report) add(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// note says what a reader may wonder about and what is not wrong.
func (r *report) note(results []result, limited bool) {
	r.noteLimit(results, limited)
	for _, enforcement := range slices.Sorted(maps.Keys(r.Passed)) {
		n := r.Passed[enforcement]
		switch enforcement {
		case byGrant:
			r.add("%d were admitted by a grant; they are not held against the limit.", n)
		case byShare:
			r.add("%d were admitted by a replica's share of the budget, while Redis did not answer; they are not held against the limit.", n)
		case byOther:
			r.add("%d passed with a value of %s that Tierlimit does not send; they are not held against the limit.", n, headerEnforcement)
		default:
			r.add("%d passed although no budget admitted them (%s: %s); they are not held against the limit.", n, headerEnforcement, enforcement)
		}
	}
	if i := slices.IndexFunc(results, func(o result) bool { return o.status >= 300 && o.status < 400 }); i >= 0 {
		r.add("The route redirects, to %.200q. Redirects are not followed: give the URL that they lead to.", results[i].header.Get("Location"))
	}
	if slices.ContainsFunc(results, func(o result) bool { return o.status == http.StatusForbidden && !isAdmitted(o) }) {
		r.add("A 403 may be a rejection that the proxy does not pass on as a 429: see docs/ingress.md.")
	}
}

// noteLimit says how far the load came with the limit.
func (r *report) noteLimit(results []result, limited bool) {
	counted := r.Admitted
	for _, n := range r.Passed {
		counted -= n
	}
	full := slices.ContainsFunc(r.Windows, func(w benchWindow) bool { return w.Most >= w.Limit })
	measured := counted == 0 || slices.ContainsFunc(r.Windows, func(w benchWindow) bool { return w.Unproved == "" })
	switch {
	case r.Answered > 0 && !limited && slices.ContainsFunc(results, func(o result) bool { e := enforcementOf(o); return e != "" && e != byOther }):
		r.add("No answer tells a limit of all replicas, but %s shows that Tierlimit was asked. Nothing can be said about the budget; give --limit.", headerEnforcement)
	case r.Answered > 0 && !limited:
		r.Unlimited = true
		r.add("No answer tells a limit (%s and %s): the route is not limited by Tierlimit, or a proxy drops these headers. Nothing can be said about the budget; give --limit.", headerLimit, headerWindow)
	case !limited || full || !measured:
		// The verdict on the window says it.
	case r.Rejected > 0:
		r.add("Requests were rejected before as many were admitted as the limit allows: the budget had been used before, or others share it.")
	case len(r.Passed) == 0:
		r.add("Nothing was rejected: the load did not use the budget up. Send more with --requests to see a rejection.")
	}
}
