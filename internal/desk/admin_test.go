// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk_test

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

// now is the time at which the admin API of a test answers.
var now = time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)

func after(d time.Duration) *time.Time {
	t := now.Add(d)
	return &t
}

// admin is an admin API that answers what a test says, with the types that the real one answers with.
type admin struct {
	*httptest.Server
	mu       sync.Mutex
	breakOff bool           // end the connection instead of an answer
	answers  map[string]any // by method and path; an adminapi.Problem is answered with its status
	asked    []asked
}

// asked is one request.
type asked struct {
	Method, Path, Query string
	Bearer, Certificate string // the credentials that came along
}

// startAdmin runs an admin API: over TLS as in a cluster, or plainly as in local mode.
func startAdmin(t *testing.T, secure bool, answers map[string]any) *admin {
	t.Helper()
	a := &admin{answers: answers}
	a.Server = httptest.NewUnstartedServer(a)
	if secure {
		a.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, NextProtos: []string{"http/1.1"}}
		a.StartTLS()
	} else {
		a.Start()
	}
	t.Cleanup(a.Close)
	return a
}

func (a *admin) address() string { return a.Listener.Addr().String() }

// requests returns what was asked, and forgets it.
func (a *admin) requests() []asked {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.asked
	a.asked = nil
	return all
}

// ServeHTTP answers one request.
func (a *admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	one := asked{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Bearer: r.Header.Get("Authorization")}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		one.Certificate = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	a.mu.Lock()
	a.asked = append(a.asked, one)
	answer, ok := a.answers[r.Method+" "+r.URL.Path]
	breakOff := a.breakOff
	a.mu.Unlock()
	if breakOff {
		panic(http.ErrAbortHandler)
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	if problem, ok := answer.(adminapi.Problem); ok {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(problem.Status)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// Keys of answers.
const (
	getQuota      = "GET " + adminapi.PathQuota
	deleteQuota   = "DELETE " + adminapi.PathQuota
	getExplain    = "GET " + adminapi.PathExplain
	putGrant      = "PUT " + adminapi.PathGrant
	deleteGrant   = "DELETE " + adminapi.PathGrant
	getTop        = "GET " + adminapi.PathTop
	getDecisions  = "GET " + adminapi.PathDecisions
	getSimulation = "GET " + adminapi.PathSimulate
)

var (
	user8421 = adminapi.Subject{User: "8421"}
	freeTier = adminapi.Tier{Name: "free", Mode: "Enforce", FailurePolicy: "FailClosed",
		Limits: []adminapi.Limit{{Window: "minute", Requests: 5}, {Window: "day", Requests: 100}}}
	blocked = adminapi.Quota{
		Now: now, Subject: user8421, AuditID: "3f9a21c0d2e4b517", Tier: freeTier, BlockedBy: "minute", BlockedUntil: after(11500 * time.Millisecond),
		Windows: []adminapi.Window{
			{Limit: freeTier.Limits[0], WindowSeconds: 60, Used: 5, NextSlotAt: after(11500 * time.Millisecond), EmptyAt: after(58 * time.Second), LastRequests: []time.Time{*after(-2 * time.Second), *after(-9 * time.Second)}},
			{Limit: freeTier.Limits[1], WindowSeconds: 86400, Used: 42, Remaining: 58, NextSlotAt: after(3 * time.Hour), EmptyAt: after(24*time.Hour - 2*time.Second), LastRequests: []time.Time{*after(-2 * time.Second)}},
		},
		Grant:  &adminapi.Grant{Requests: 100, Used: 100, ExpiresAt: *after(time.Hour)},
		SeenAs: []adminapi.Seen{{Subject: adminapi.Subject{User: "8421", Tenant: "acme"}, Tier: "pro"}},
	}
)
