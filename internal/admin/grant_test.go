// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/openapitest"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

func TestGrant(t *testing.T) {
	d := newDesk(t, openapitest.Load(t), nil, budget("free", 2, 100))
	if got := d.spend(3, "user=u"); got != http.StatusTooManyRequests {
		t.Fatalf("%d", got)
	}
	g := answered[adminapi.GrantResult](d, http.MethodPut, "/admin/v1/grant?user=u&requests=3&for=1h")
	id := AuditID([]byte("k"), limiter.Subject{User: "u"})
	if g.Grant == nil || g.Grant.Requests != 3 || g.Grant.Remaining != 3 || g.Before != nil || g.AuditID != id || g.Tier != "free" || g.EverywhereAfterMilliseconds != 250 {
		t.Fatalf("%+v", g)
	}
	if got := d.spend(2, "user=u"); got != http.StatusOK {
		t.Errorf("with a grant: %d", got)
	}
	q := answered[adminapi.Quota](d, http.MethodGet, "/admin/v1/quota?user=u")
	want := adminapi.Grant{Requests: 3, Used: 2, Remaining: 1, ExpiresAt: g.Grant.ExpiresAt}
	if diff := cmp.Diff(&want, q.Grant); diff != "" || q.Windows[0].Used != 2 || q.Grant.ExpiresAt.Sub(q.Now) > time.Hour {
		t.Errorf("%+v, -want +got:\n%s", q, diff)
	}
	if e := answered[adminapi.Explanation](d, http.MethodGet, "/admin/v1/explain?user=u"); e.Grant == nil || !e.Grant.ExpiresAt.Equal(g.Grant.ExpiresAt) || e.Grant.Used != 3 || e.Status != http.StatusOK {
		t.Errorf("explained: %+v", e)
	}
	g = answered[adminapi.GrantResult](d, http.MethodPut, "/admin/v1/grant?user=u&requests=9&for=90s")
	if diff := cmp.Diff(&want, g.Before); diff != "" || g.Grant.Requests != 9 || g.Grant.Used != 0 {
		t.Errorf("%+v, -want +got:\n%s", g.Grant, diff)
	}
	g = answered[adminapi.GrantResult](d, http.MethodDelete, "/admin/v1/grant?user=u")
	if g.Grant != nil || g.Before == nil || g.Before.Requests != 9 {
		t.Errorf("%+v", g)
	}
	if got := d.spend(1, "user=u"); got != http.StatusTooManyRequests {
		t.Errorf("without the grant: %d", got)
	}
	if g := answered[adminapi.GrantResult](d, http.MethodDelete, "/admin/v1/grant?user=u"); g.Before != nil {
		t.Errorf("%+v", g)
	}
	if len(d.events) != 3 || d.events[0].Note != fmt.Sprintf("alice@example.com granted 3 requests until %s to user %s", want.ExpiresAt.Format(time.RFC3339), id) ||
		d.events[1].Reason != ReasonGranted || d.events[2].Reason != ReasonRevoked || d.events[2].Note != "alice@example.com took back a grant of 9 requests, of which 0 were used, from user "+id {
		t.Errorf("%+v", d.events)
	}
	if strings.Count(d.log.String(), "by=alice@example.com") != 3 || strings.Contains(d.log.String(), "user=u") {
		t.Errorf("log: %s", d.log)
	}
}

// TestGrantRefused looks at what may not change anything.
func TestGrantRefused(t *testing.T) {
	d := newDesk(t, openapitest.Load(t), nil, budget("free", 2, 100), budget("none", 0, 5), budget("never", 5, 0))
	for name, tc := range map[string]struct {
		query string
		code  int
		says  string
	}{
		"NoRequests":   {"user=u&for=1h", 400, `\"requests\" is missing`},
		"NoTime":       {"user=u&requests=1", 400, `\"for\" is missing`},
		"Zero":         {"user=u&for=1h&requests=0", 400, "from 1 to 100000"},
		"TooMany":      {"user=u&for=1h&requests=100001", 400, "from 1 to 100000"},
		"NoNumber":     {"user=u&for=1h&requests=1.5", 400, "whole number"},
		"Overflow":     {"user=u&for=1h&requests=99999999999999999999", 400, "whole number"},
		"Fraction":     {"user=u&for=1.5s&requests=1", 400, "whole seconds from 1s to 744h"},
		"TooShort":     {"user=u&for=0s&requests=1", 400, "whole seconds"},
		"Negative":     {"user=u&for=-1h&requests=1", 400, "whole seconds"},
		"TooLong":      {"user=u&for=745h&requests=1", 400, "whole seconds"},
		"NoUnit":       {"user=u&for=60&requests=1", 400, "whole seconds"},
		"Nobody":       {"for=1h&requests=1", 400, "say whose"},
		"MinuteOfZero": {"user=u&tier=none&for=1h&requests=1", 409, "The tier none admits no requests per minute, also with a grant"},
		"DayOfZero":    {"user=u&tier=never&for=1h&requests=1", 409, "The tier never admits no requests per day"},
		"Upstream":     {"kind=upstream&user=free&for=1h&requests=1", 400, "raise the limit of tier free"},
		"Unknown":      {"user=u&for=1h&requests=1&window=day", 400, "Unknown parameter"},
	} {
		if r := d.ask(http.MethodPut, "/admin/v1/grant?"+tc.query); r.Code != tc.code || !strings.Contains(r.Body.String(), tc.says) {
			t.Errorf("%s: %d %s, want %d with %q", name, r.Code, r.Body, tc.code, tc.says)
		}
	}
	if keys, err := d.server.Client.Keys(t.Context(), "*").Result(); err != nil || len(keys) > 0 || len(d.events) > 0 || d.log.Len() > 0 {
		t.Errorf("what was refused has left something: %v %v %v %s", keys, err, d.events, d.log)
	}
}

// TestRedisAway asks for everything while Redis is away, with an error that no one may see.
func TestRedisAway(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		says  string
		asked bool // Redis was, so that it may have done it
	}{
		"Refused": {errAway, "it answered with an error", true},
		"Timeout": {fmt.Errorf("redis://:s3cret@h: %w", context.DeadlineExceeded), "did not answer in time", true},
		"Circuit": {fmt.Errorf("limiter: %w", limiter.ErrCircuitOpen), "not asked for a moment", false},
		"Reply":   {fmt.Errorf("limiter: %w", limiter.ErrReply), "something else than was asked for", true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, openapitest.Load(t), func(o *Options) { o.Limiter = broken{tc.err} }, budget("free", 2, 100))
			for request, more := range map[string]string{
				"GET /admin/v1/quota?user=u": "Nothing was found out", "DELETE /admin/v1/quota?user=u": "Whether the change was made is not known",
				"PUT /admin/v1/grant?user=u&requests=1&for=1h": "Whether the change", "DELETE /admin/v1/grant?user=u": "Whether the change",
			} {
				if !tc.asked {
					more = "Nothing was changed"
				}
				method, target, _ := strings.Cut(request, " ")
				r := d.ask(method, target)
				if body := r.Body.String(); r.Code != http.StatusServiceUnavailable || !strings.Contains(body, tc.says) || !strings.Contains(body, more) || strings.Contains(body, "s3cret") {
					t.Errorf("%s: %d %s", request, r.Code, body)
				}
			}
			if len(d.events) > 0 {
				t.Errorf("%+v", d.events)
			}
			for _, reason := range []string{ReasonReset, ReasonGranted, ReasonRevoked} {
				if strings.Contains(d.log.String(), `msg="`+reason+` is not certain: Redis did not say whether it was done" by=alice@example.com`) != tc.asked {
					t.Errorf("the log does not tell of %s: %s", reason, d.log)
				}
			}
		})
	}
	d := newDesk(t, openapitest.Load(t), func(o *Options) { o.Limiter = broken{fmt.Errorf("limiter: %w: two of them", limiter.ErrInvalid)} }, budget("free", 2, 100))
	if r := d.ask(http.MethodGet, "/admin/v1/quota?user=u"); r.Code != http.StatusBadRequest || !strings.Contains(r.Body.String(), "Invalid check: two of them.") {
		t.Errorf("%d %s", r.Code, r.Body)
	}
}

// TestRealRedisAway stops it.
func TestRealRedisAway(t *testing.T) {
	d := newDesk(t, openapitest.Load(t), nil, budget("free", 2, 100))
	d.server.Stop()
	if r := d.ask(http.MethodGet, "/admin/v1/quota?user=u"); r.Code != http.StatusServiceUnavailable || !strings.Contains(r.Body.String(), "it cannot be reached") {
		t.Errorf("%d %s", r.Code, r.Body)
	}
}

// TestNotLoaded asks before there are tiers, and without a default tier.
func TestNotLoaded(t *testing.T) {
	for says, d := range map[string]*desk{
		"have not been loaded yet":           newDesk(t, openapitest.Load(t), nil),
		`there is no RateLimitTier \"free\"`: newDesk(t, openapitest.Load(t), nil, budget("pro", 1, 1)),
	} {
		for _, target := range []string{"DELETE /admin/v1/quota?user=u", "GET /admin/v1/simulate?per-minute=1"} {
			method, target, _ := strings.Cut(target, " ")
			if r := d.ask(method, target); r.Code != http.StatusServiceUnavailable || !strings.Contains(strings.ToLower(r.Body.String()), strings.ToLower(says)) {
				t.Errorf("%s: %d %s, want %q", target, r.Code, r.Body, says)
			}
		}
	}
}

// TestPaths looks at what is not in the document.
func TestPaths(t *testing.T) {
	d := newDesk(t, openapitest.Load(t), nil, budget("free", 2, 100))
	for request, want := range map[string]int{
		"GET /": 404, "GET /admin/v1": 404, "GET /admin/v1/quota/": 404, "GET /admin/v1%2Fquota?user=u": 404, "GET /check?user=u": 404,
		"HEAD /admin/v1/quota?user=u": 405, "POST /admin/v1/grant?user=u": 405, "OPTIONS /admin/v1/quota": 405, "DELETE /admin/v1/top": 405,
	} {
		method, target, _ := strings.Cut(request, " ")
		r := d.ask(method, target)
		if r.Code != want || r.Header().Get("Content-Type") != "application/problem+json" || (r.Header().Get("Allow") != "") != (want == 405) {
			t.Errorf("%s: %d %v %s", request, r.Code, r.Header(), r.Body)
		}
	}
}

// A caller who hangs up has asked for the change all the same, and it is told of.
func TestChangesAreMadeThoughTheCallerLeaves(t *testing.T) {
	d := newDesk(t, openapitest.Load(t), nil, budget("free", 2, 100))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequest(http.MethodPut, "/admin/v1/grant?user=u&requests=1&for=1h", nil).WithContext(ctx)
	recorder := httptest.NewRecorder()
	d.ServeHTTP(recorder, r)
	if recorder.Code != http.StatusOK || len(d.events) != 1 {
		t.Errorf("%d %s %v", recorder.Code, recorder.Body, d.events)
	}
}

func TestPrintable(t *testing.T) {
	for who, want := range map[string]string{"alice@example.com": "alice@example.com", "a\nb\x1b[31m": "a?b?[31m", strings.Repeat("é", 200): strings.Repeat("é", 126) + "..."} {
		if got := printable(who); got != want {
			t.Errorf("%q: %q", who, got)
		}
	}
	if errors.Is(errAway, limiter.ErrInvalid) {
		t.Error("the error of these tests is another")
	}
}
