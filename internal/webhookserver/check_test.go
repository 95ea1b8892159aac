// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// TestAnswers asks every kind of check, in both forms, of a limiter on a real Redis.
func TestAnswers(t *testing.T) {
	server := redistest.Start(t)
	e := newEndpoint(realLimiter(t, server), nil,
		budget("free", 2, 3), budget("pro", 4, 100), budget("none", 0, 0), budget("tight-day", 2, 1),
		budget("trial", 1, 3, dryRunTier), budget("off", 2, 3, engaged(time.Time{})),
		budget("expired", 2, 3, engaged(time.Now().Add(-time.Second))),
		&tier.Tier{Name: "daily", Limits: []limiter.Limit{{Requests: 7, Window: tier.Day}}})
	cases := map[string]struct {
		reason string
		before int // admitted requests of the same user
		query  string
		want   said
	}{
		"Admitted": {
			reason: "an admitted request shows the window with fewest requests left",
			query:  "tier=free", want: said{Status: 200, Limit: "2", Remaining: "1", Window: "minute", Tier: "free"},
		},
		"AdmittedDayIsCloser": {
			reason: "the day is nearer its end than the minute",
			query:  "tier=tight-day", want: said{Status: 200, Limit: "1", Remaining: "0", Window: "day", Tier: "tight-day"},
		},
		"RejectedByMinute": {
			reason: "the shortest full window answers, and promises when to retry",
			before: 2, query: "tier=free", want: said{Status: 429, Limit: "2", Remaining: "0", Window: "minute", Tier: "free", RetryAfter: true, Body: true},
		},
		"RejectedByDay": {
			reason: "the minute has room, the day has not",
			before: 1, query: "tier=tight-day", want: said{Status: 429, Limit: "1", Remaining: "0", Window: "day", Tier: "tight-day", RetryAfter: true, Body: true},
		},
		"DefaultTier": {
			reason: "a check that names no tier is not an unknown tier",
			query:  "", want: said{Status: 200, Limit: "2", Remaining: "1", Window: "minute", Tier: "free"},
		},
		"UnknownTier": {
			reason: "an unknown tier is limited by the default tier, visibly",
			query:  "tier=gold", want: said{Status: 200, Limit: "2", Remaining: "1", Window: "minute", Tier: "free", UnknownTier: "gold"},
		},
		"UnknownTierRejected": {
			reason: "a rejection says so too",
			before: 2, query: "tier=gold", want: said{Status: 429, Limit: "2", Remaining: "0", Window: "minute", Tier: "free", UnknownTier: "gold", RetryAfter: true, Body: true},
		},
		"OtherTier": {
			reason: "usage follows the user into another tier, whose limit holds at once",
			before: 2, query: "tier=pro", want: said{Status: 200, Limit: "4", Remaining: "1", Window: "minute", Tier: "pro"},
		},
		"OneWindow": {
			reason: "a tier may limit the day only",
			query:  "tier=daily", want: said{Status: 200, Limit: "7", Remaining: "6", Window: "day", Tier: "daily"},
		},
		"LimitZero": {
			reason: "a limit of 0 admits nobody, and no wait would help",
			query:  "tier=none", want: said{Status: 429, Limit: "0", Remaining: "0", Window: "minute", Tier: "none", Body: true},
		},
		"DryRunAdmitted": {
			reason: "within the budget a dry run looks like enforcement",
			query:  "tier=trial", want: said{Status: 200, Limit: "1", Remaining: "0", Window: "minute", Tier: "trial"},
		},
		"DryRunOver": {
			reason: "over the budget a dry run lets the request pass and says so",
			before: 1, query: "tier=trial", want: said{Status: 200, Limit: "1", Remaining: "0", Window: "minute", Tier: "trial", Enforcement: "dry-run"},
		},
		"KillSwitch": {
			reason: "while the kill switch is engaged the whole limit remains, for ever",
			before: 3, query: "tier=off", want: said{Status: 200, Limit: "2", Remaining: "2", Window: "minute", Tier: "off", Enforcement: "disabled"},
		},
		"KillSwitchExpired": {
			reason: "an expired kill switch limits again by itself",
			before: 2, query: "tier=expired", want: said{Status: 429, Limit: "2", Remaining: "0", Window: "minute", Tier: "expired", RetryAfter: true, Body: true},
		},
		"Twice": {
			reason: "a parameter given twice is refused",
			query:  "tier=free&tier=pro", want: said{Status: 400, Body: true},
		},
	}
	for name, tc := range cases {
		for form, path := range map[string]string{"Plain": pathCheck, "Nginx": pathNginx} {
			t.Run(name+form, func(t *testing.T) {
				query := tc.query + "&user=" + name + form
				for range tc.before {
					if r := e.ask(path + "?" + query); r.Code != http.StatusOK {
						t.Fatalf("an earlier request was answered with %d", r.Code)
					}
				}
				want := tc.want
				if path == pathNginx {
					want.TrueCode = strconv.Itoa(want.Status)
					if want.Status != http.StatusOK {
						want.Status = http.StatusForbidden
					}
				}
				r := e.ask(path + "?" + query)
				if diff := cmp.Diff(want, whatWasSaid(r)); diff != "" {
					t.Errorf("%s:\n%s\n%s", tc.reason, diff, r.Body)
				}
			})
		}
	}
}

func TestNoTierToApply(t *testing.T) {
	cases := map[string]struct{ reason, query, want string }{
		"DefaultMissing": {"the body says which tier to create", "", `there is no RateLimitTier "free"`},
		"BothMissing":    {"the body says which tiers would do", "tier=gold", `neither a RateLimitTier "gold" nor the default tier "free"`},
		"DefaultNamed":   {"the tier asked for is the default tier", "tier=free", `there is no RateLimitTier "free"`},
	}
	e := newEndpoint(nil, nil, budget("pro", 1, 1))
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := e.ask(pathCheck + "?" + tc.query)
			if r.Code != http.StatusServiceUnavailable || !strings.Contains(problemOf(t, r).Detail, tc.want) {
				t.Errorf("%s: %d %s", tc.reason, r.Code, r.Body)
			}
			r = e.ask(pathNginx + "?" + tc.query)
			if got := whatWasSaid(r); got.Status != http.StatusForbidden || got.TrueCode != "503" {
				t.Errorf("nginx form: %+v", got)
			}
		})
	}
	e = newEndpoint(nil, func(o *Options) { o.Tiers = new(tier.Table) })
	if r := e.ask(pathCheck); r.Code != http.StatusServiceUnavailable || !strings.Contains(r.Body.String(), "not been loaded") {
		t.Errorf("before the tiers are loaded: %d %s", r.Code, r.Body)
	}
}

func TestProblemBody(t *testing.T) {
	decide := limiterFunc(func(context.Context, limiter.Subject, ...limiter.Limit) (limiter.Decision, error) {
		return limiter.Decision{Limit: limiter.Limit{Requests: 5, Window: time.Minute}, RetryAfter: 42 * time.Second}, nil
	})
	r := newEndpoint(decide, nil, budget("free", 5, 100)).ask(pathCheck + "?user=alice")
	limit := int64(5)
	want := problem{
		Type:   "https://iana.org/assignments/http-problem-types#quota-exceeded",
		Title:  "Too Many Requests",
		Status: 429,
		Detail: "The free tier admits 5 requests per minute. Retry after 42 seconds.",
		Tier:   "free", Window: "minute", Limit: &limit, RetryAfter: 42, Violated: []string{"minute"},
	}
	if diff := cmp.Diff(want, problemOf(t, r)); diff != "" {
		t.Error(diff)
	}
	if got := r.Header().Get("Retry-After"); got != "42" {
		t.Errorf("Retry-After: %q", got)
	}
	if strings.Contains(r.Body.String(), "alice") {
		t.Errorf("the body names the user: %s", r.Body)
	}
}

func problemOf(t *testing.T, r *httptest.ResponseRecorder) problem {
	t.Helper()
	if got := r.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type: %q", got)
	}
	var p problem
	if err := json.Unmarshal(r.Body.Bytes(), &p); err != nil {
		t.Fatalf("not JSON: %v: %s", err, r.Body)
	}
	return p
}

// TestStoreFailures asks while Redis is stopped, and with replies that are none.
func TestStoreFailures(t *testing.T) {
	server := redistest.Start(t)
	down := realLimiter(t, server)
	server.Stop()
	fails := func(err error) Limiter {
		return limiterFunc(func(context.Context, limiter.Subject, ...limiter.Limit) (limiter.Decision, error) {
			return limiter.Decision{}, err
		})
	}
	closed := said{Status: 503, Limit: "2", Remaining: "0", Window: "minute", Tier: "free", Body: true}
	open := said{Status: 200, Limit: "2", Remaining: "2", Window: "minute", Tier: "free", Enforcement: "failed-open"}
	cases := map[string]struct {
		reason  string
		limiter Limiter
		tier    *tier.Tier
		want    said
	}{
		"DownClosed":   {"unlimited spending is worse than an outage", down, budget("free", 2, 3), closed},
		"DownOpen":     {"the tier's owner prefers to let requests pass", down, budget("free", 2, 3, failOpenTier), open},
		"DownDryRun":   {"a dry run rejects nothing, ever", down, budget("free", 2, 3, dryRunTier), open},
		"DownDisabled": {"with the kill switch Redis is not asked", down, budget("free", 2, 3, engaged(time.Time{})), said{Status: 200, Limit: "2", Remaining: "2", Window: "minute", Tier: "free", Enforcement: "disabled"}},
		"ReplyClosed":  {"a reply that is none must not stop a paying user", fails(fmt.Errorf("x: %w", limiter.ErrReply)), budget("free", 2, 3), open},
		"ErrorClosed":  {"an error from Redis is not a reply", fails(errors.New("OOM command not allowed")), budget("free", 2, 3), closed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newEndpoint(tc.limiter, nil, tc.tier).ask(pathCheck + "?user=u")
			if diff := cmp.Diff(tc.want, whatWasSaid(r)); diff != "" {
				t.Errorf("%s:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestRecovery has Redis lose everything under a running endpoint.
func TestRecovery(t *testing.T) {
	server := redistest.Start(t)
	e := newEndpoint(realLimiter(t, server), nil, budget("free", 2, 3))
	ask := func() int { return e.ask(pathCheck + "?user=u").Code }
	if got := []int{ask(), ask(), ask()}; !cmp.Equal(got, []int{200, 200, 429}) {
		t.Fatalf("at first: %v", got)
	}
	server.Client.ScriptFlush(t.Context())
	if got := ask(); got != 429 {
		t.Errorf("after SCRIPT FLUSH: %d", got)
	}
	server.Client.FlushAll(t.Context())
	if got := ask(); got != 200 {
		t.Errorf("after FLUSHALL: %d", got)
	}
	server.Stop()
	if got := ask(); got != 503 {
		t.Errorf("while Redis is down: %d", got)
	}
	server.Restart()
	if got := []int{ask(), ask(), ask()}; !cmp.Equal(got, []int{200, 200, 429}) {
		t.Errorf("after a restart without data: %v", got)
	}
	server.Freeze()
	frozen := ask()
	server.Thaw()
	if frozen != 503 {
		t.Errorf("while Redis is frozen: %d", frozen)
	}
	if got := ask(); got != 429 {
		t.Errorf("after the thaw: %d", got)
	}
}

func TestGlobalKillSwitch(t *testing.T) {
	server := redistest.Start(t)
	e := newEndpoint(realLimiter(t, server), func(o *Options) { o.Disabled = true }, budget("free", 1, 2), budget("none", 0, 0))
	before := server.Client.Info(t.Context(), "commandstats").Val()
	for range 5 {
		want := said{Status: 200, Limit: "1", Remaining: "1", Window: "minute", Tier: "free", Enforcement: "disabled"}
		if diff := cmp.Diff(want, whatWasSaid(e.ask(pathCheck+"?user=u"))); diff != "" {
			t.Fatal(diff)
		}
	}
	if after := server.Client.Info(t.Context(), "commandstats").Val(); strings.Contains(after, "evalsha") || strings.Contains(before, "evalsha") {
		t.Errorf("Redis was asked: %s", after)
	}
	server.Stop()
	if got := e.ask(pathCheck + "?tier=none&user=u").Code; got != http.StatusOK {
		t.Errorf("with Redis stopped: %d", got)
	}
	e.tiers.Replace(nil)
	if got := whatWasSaid(e.ask(pathCheck + "?user=u")); got != (said{Status: 200, Enforcement: "disabled"}) {
		t.Errorf("without any tier: %+v", got)
	}
}
