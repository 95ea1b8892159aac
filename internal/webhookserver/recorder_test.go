// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// recorded is a Recorder that keeps everything.
type recorded struct {
	mu  sync.Mutex
	all []Decided
}

func (r *recorded) Record(d Decided) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, d)
}

// TestRecorder makes one check after the other, in all forms: each is recorded once, and what only looks is
// not.
func TestRecorder(t *testing.T) {
	r := &recorded{}
	window := realLimiter(t, redistest.Start(t)).(*limiter.SlidingWindow)
	e := newEndpoint(window, func(o *Options) { o.Recorder = r },
		budget("free", 1, 9), budget("trial", 1, 9, dryRunTier), budget("off", 1, 1, engaged(time.Time{})), budget("none", 0, 0))
	v := startEnvoy(t, e)
	backend := errorBackendOf(t, e, "tier=free")
	alice := limiter.Subject{User: "alice", Tenant: "acme", Route: "chat"}
	address := limiter.Subject{User: "203.0.113.7", Kind: limiter.KindAddress}
	http := func(target string, headers ...string) func() { return func() { e.ask(target, headers...) } }
	const whole = "/check?user=alice&tenant=acme&route=chat"
	start := time.Now()
	for _, step := range []struct {
		reason string
		do     func()
		want   []Decided
	}{
		{"by the default tier", http(whole), []Decided{{Subject: alice, Tier: "free", Outcome: "admitted"}}},
		{"over the budget", http(whole), []Decided{{Subject: alice, Tier: "free", Outcome: "rejected"}}},
		{"a tier that stands in for another is the one applied", http("/check?tier=gold&user=bob"), []Decided{{Subject: limiter.Subject{User: "bob"}, Tier: "free", Outcome: "admitted"}}},
		{"for nginx, by the address", http("/check/nginx?tier=trial", "X-Real-IP", "203.0.113.7"), []Decided{{Subject: address, Tier: "trial", Outcome: "admitted"}}},
		{"for Envoy over HTTP", http("/check/ext-authz;tier=trial", "X-Real-IP", "203.0.113.7"), []Decided{{Subject: address, Tier: "trial", Outcome: "dry_run_rejected"}}},
		{"over gRPC", func() { v.check(t, request("203.0.113.7", map[string]string{"tier": "trial"})) }, []Decided{{Subject: address, Tier: "trial", Outcome: "dry_run_rejected"}}},
		{"over gRPC, not understood", func() { v.check(t, request("203.0.113.7", map[string]string{"nonsense": "1"})) }, []Decided{{Outcome: "invalid"}}},
		{"by the cap of an upstream", http("/check?tier=trial&user=carol&upstream=none"), []Decided{{Subject: limiter.Subject{User: "carol"}, Tier: "trial", Outcome: "rejected", Upstream: true}}},
		{"by a grant", func() {
			if _, _, err := window.Grant(t.Context(), alice, 1, time.Hour); err != nil {
				t.Fatal(err)
			}
			e.ask(whole)
		}, []Decided{{Subject: alice, Tier: "free", Outcome: "granted"}}},
		{"by a kill switch", http("/check?tier=off&user=carol"), []Decided{{Subject: limiter.Subject{User: "carol"}, Tier: "off", Outcome: "disabled"}}},
		{"without a cap to apply there is no tier", http("/check?user=carol&upstream=gone"), []Decided{{Outcome: "no_tier"}}},
		{"by its method", http("/check?user=carol&methods=POST", "X-Forwarded-Method", "GET"), []Decided{{Outcome: "exempt"}}},
		{"the error backend only looks", func() { answerOf(backend, refusedRequest("203.0.113.7")) }, nil},
		{"what is no check is none", http("/nothing"), nil},
	} {
		r.all = nil
		step.do()
		if diff := cmp.Diff(step.want, r.all, cmpopts.IgnoreFields(Decided{}, "At")); diff != "" {
			t.Errorf("%s: -want +got\n%s", step.reason, diff)
		}
		for _, d := range r.all {
			if d.At.Before(start) || d.At.After(time.Now()) || !slices.Contains(Outcomes(), d.Outcome) {
				t.Errorf("%s: %+v is not of now, or no outcome", step.reason, d)
			}
		}
	}
}
