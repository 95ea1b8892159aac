// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// explainCase is a check that is explained and then made.
type explainCase struct {
	reason   string
	options  func(*testing.T, *Options)
	tiers    []*tier.Tier
	before   int // checks
	query    string
	headers  []string
	away     error // Redis
	notReady bool
	want     string // in the reasons
	grant    int64  // requests on top, before the checks
}

func explainCases() map[string]explainCase {
	free, pro := budget("free", 2, 100), budget("pro", 5, 9)
	hour := time.Now().Add(time.Hour)
	sources := func(list string) func(*testing.T, *Options) {
		return func(t *testing.T, o *Options) { identifiedBy(t, list)(o) }
	}
	away := errors.New("connection refused")
	granted := func(grant int64, before int, want string, tiers ...*tier.Tier) explainCase {
		return explainCase{reason: "a grant", tiers: tiers, before: before, query: "user=u", want: want, grant: grant}
	}
	return map[string]explainCase{
		"GrantUnused":     granted(3, 0, "Admitted: of 2 requests per minute there are 1 left", free),
		"GrantNext":       granted(3, 1, "includes a grant of 3 requests, of which 3 are left", free),
		"GrantCharged":    granted(3, 2, "charged to a grant of 3 requests, of which 2 are left", free),
		"GrantLast":       granted(3, 4, "charged to a grant of 3 requests, of which 0 are left", free),
		"GrantSpent":      granted(3, 5, "The free tier admits 2 requests per minute", free),
		"GrantDay":        granted(3, 2, "charged to a grant", budget("free", 5, 2)),
		"GrantDryRun":     granted(3, 1, "charged to a grant", budget("free", 1, 100, dryRunTier)),
		"GrantZero":       granted(3, 0, "admits no requests", budget("free", 0, 0)),
		"Admitted":        {"a user with room", nil, []*tier.Tier{free}, 0, "user=u", nil, nil, false, "Admitted: of 2 requests per minute there are 1 left", 0},
		"LastOne":         {"the last that is admitted", nil, []*tier.Tier{free}, 1, "user=u", nil, nil, false, "there are 0 left", 0},
		"ByMinute":        {"the minute is used up", nil, []*tier.Tier{free}, 3, "user=u", nil, nil, false, "The free tier admits 2 requests per minute. Retry after", 0},
		"ByDay":           {"the day is used up", nil, []*tier.Tier{budget("free", 5, 1)}, 1, "user=u", nil, nil, false, "The free tier admits 1 requests per day", 0},
		"Zero":            {"no wait would help", nil, []*tier.Tier{budget("free", 0, 0)}, 0, "user=u", nil, nil, false, "admits no requests", 0},
		"DryRun":          {"a dry run rejects nobody", nil, []*tier.Tier{budget("free", 1, 100, dryRunTier)}, 2, "user=u", nil, nil, false, "mode Enforce would reject it", 0},
		"DryRunRoom":      {"a dry run charges", nil, []*tier.Tier{budget("free", 3, 100, dryRunTier)}, 1, "user=u", nil, nil, false, "mode DryRun", 0},
		"OwnSwitch":       {"of the tier", nil, []*tier.Tier{budget("free", 1, 1, engaged(time.Time{}))}, 2, "user=u", nil, nil, false, "The kill switch of tier free is engaged: it", 0},
		"ExpiringSwitch":  {"it says until when", nil, []*tier.Tier{budget("free", 1, 1, engaged(hour))}, 2, "user=u", nil, nil, false, "engaged until " + hour.UTC().Format(time.RFC3339), 0},
		"ExpiredSwitch":   {"an expired one is none", nil, []*tier.Tier{budget("free", 1, 1, engaged(time.Unix(1, 0)))}, 1, "user=u", nil, nil, false, "The free tier admits 1", 0},
		"GlobalSwitch":    {"RATE_LIMIT_DISABLED", func(_ *testing.T, o *Options) { o.Disabled = true }, []*tier.Tier{free}, 3, "user=u", nil, nil, false, "RATE_LIMIT_DISABLED", 0},
		"UnknownTier":     {"the default tier stands in", nil, []*tier.Tier{free}, 1, "user=u&tier=gold", nil, nil, false, `There is no RateLimitTier "gold": the default tier free stands in`, 0},
		"MissingTier":     {"nothing stands in", nil, []*tier.Tier{pro}, 0, "user=u&tier=gold", nil, nil, false, "create one of the two", 0},
		"MissingDefault":  {"nothing stands in", nil, []*tier.Tier{pro}, 0, "user=u", nil, nil, false, "create it.", 0},
		"NotLoaded":       {"the start", nil, nil, 0, "user=u", nil, nil, true, "The tiers have not been loaded yet", 0},
		"Upstream":        {"a cap with room", nil, []*tier.Tier{free, pro}, 1, "user=u&upstream=pro", nil, nil, false, "The cap of upstream pro applies too", 0},
		"UpstreamFull":    {"a cap without", nil, []*tier.Tier{budget("free", 50, 100), budget("pro", 2, 9)}, 3, "user=u&upstream=pro", nil, nil, false, "All callers of upstream pro together may make 2", 0},
		"UpstreamTenant":  {"a cap of each tenant", nil, []*tier.Tier{budget("free", 50, 100), budget("pro", 1, 9)}, 1, "user=u&upstream=pro&upstream-per=tenant&tenant=acme", nil, nil, false, "in your tenant", 0},
		"UpstreamDryRun":  {"a cap that is tried out is asked second", nil, []*tier.Tier{budget("free", 50, 100), budget("pro", 1, 9, dryRunTier)}, 2, "user=u&upstream=pro", nil, nil, false, "mode Enforce would reject it", 0},
		"UserDryRun":      {"and a user's beside an enforced cap", nil, []*tier.Tier{budget("free", 50, 100, dryRunTier), budget("pro", 3, 9)}, 1, "user=u&upstream=pro", nil, nil, false, "The tier free is in mode DryRun", 0},
		"UpstreamSwitch":  {"only the user's budget is left", nil, []*tier.Tier{free, budget("pro", 1, 9, engaged(time.Time{}))}, 1, "user=u&upstream=pro", nil, nil, false, "tier pro is engaged", 0},
		"NoUpstream":      {"no default stands in for a cap", nil, []*tier.Tier{free}, 0, "user=u&upstream=gold", nil, nil, false, "no default tier stands in for a cap", 0},
		"NoTenant":        {"a cap of each tenant needs one", nil, []*tier.Tier{free, pro}, 0, "user=u&upstream=pro&upstream-per=tenant", nil, nil, false, "give the parameter tenant", 0},
		"ByHeader":        {"an identity source", sources("header:X-User,address"), []*tier.Tier{free}, 1, "route=chat", []string{"x-user", "alice"}, nil, false, `The caller is user "alice", by the identity source "header:X-User"`, 0},
		"ByKey":           {"the hash of a key", sources("api-key:X-Api-Key"), []*tier.Tier{free}, 1, "", []string{"X-Api-Key", "k"}, nil, false, `The caller is key "`, 0},
		"ByAddress":       {"the proxy's header", sources("address"), []*tier.Tier{free}, 1, "", []string{"X-Real-IP", "203.0.113.7"}, nil, false, `The caller is ip "203.0.113.7", by the identity source "address"`, 0},
		"ByPeer":          {"the connection", sources("address"), []*tier.Tier{free}, 1, "", nil, nil, false, `The caller is ip "192.0.2.1"`, 0},
		"BadAddress":      {"no caller", nil, []*tier.Tier{free}, 0, "", []string{"X-Real-IP", "x"}, nil, false, "is not an IP address", 0},
		"NoCredentials":   {"401", sources("authorization"), []*tier.Tier{free}, 0, "", nil, nil, false, "carries no credentials", 0},
		"NoUser":          {"403", sources("header:X-User"), []*tier.Tier{free}, 0, "", nil, nil, false, "does not say who is calling", 0},
		"Exempt":          {"a method that does not count", nil, []*tier.Tier{free}, 0, "user=u&exempt=GET", []string{"X-Forwarded-Method", "GET"}, nil, false, "does not count", 0},
		"NotExempt":       {"another method", nil, []*tier.Tier{free}, 1, "user=u&exempt=GET", []string{"X-Forwarded-Method", "POST"}, nil, false, "with this method counts", 0},
		"UnknownName":     {"400 as a check has it", nil, []*tier.Tier{free}, 0, "user=u&teir=pro", nil, nil, false, `Unknown parameter "teir"`, 0},
		"Twice":           {"400 as a check has it", nil, []*tier.Tier{free}, 0, "user=u&user=v", nil, nil, false, "is given twice", 0},
		"BadAuth":         {"400 as a check has it", nil, []*tier.Tier{free}, 0, "user=u&auth=x", nil, nil, false, "use none", 0},
		"BadTier":         {"400 as a check has it", nil, []*tier.Tier{free}, 0, "user=u&tier=Free", nil, nil, false, "cannot be the name", 0},
		"FailClosed":      {"503", nil, []*tier.Tier{free}, 0, "user=u", nil, away, false, "failurePolicy FailClosed", 0},
		"FailOpen":        {"passes", nil, []*tier.Tier{budget("free", 2, 100, failOpenTier)}, 0, "user=u", nil, away, false, "passes uncounted", 0},
		"FailLocal":       {"a share", func(_ *testing.T, o *Options) { among(2)(o) }, []*tier.Tier{budget("free", 5, 100, failLocalTier)}, 1, "user=u", nil, away, false, "by its share", 0},
		"FailLocalOver":   {"a share that is used up", func(_ *testing.T, o *Options) { among(2)(o) }, []*tier.Tier{budget("free", 2, 100, failLocalTier)}, 2, "user=u", nil, away, false, "at this replica", 0},
		"AwayDryRun":      {"a dry run passes", nil, []*tier.Tier{budget("free", 2, 100, dryRunTier)}, 0, "user=u", nil, away, false, "passes uncounted", 0},
		"Circuit":         {"Redis is not asked", nil, []*tier.Tier{free}, 0, "user=u", nil, fmt.Errorf("x: %w", limiter.ErrCircuitOpen), false, "circuit open", 0},
		"NoDecision":      {"Redis answers something else", nil, []*tier.Tier{free}, 0, "user=u", nil, fmt.Errorf("x: %w", limiter.ErrReply), false, "no decision", 0},
		"AuthAllows":      {"the other service names the caller", guardedOptions(204, "X-Auth-Request-User", "bob"), []*tier.Tier{free}, 1, "", nil, nil, false, `The caller is user "bob", by the other auth service`, 0},
		"AuthRefuses":     {"its answer is the answer", guardedOptions(401, "WWW-Authenticate", "Basic"), []*tier.Tier{free}, 0, "", nil, nil, false, "answers 401", 0},
		"AuthAway":        {"503", guardedOptions(500, "X-A", "b"), []*tier.Tier{free}, 0, "", nil, nil, false, "cannot be identified now", 0},
		"WithoutXHeaders": {"sets that are switched off are off", func(_ *testing.T, o *Options) { o.Headers = HeaderSets{None: true} }, []*tier.Tier{free}, 3, "user=u", nil, nil, false, "admits 2 requests", 0},
	}
}

func guardedOptions(status int, header, value string) func(*testing.T, *Options) {
	return func(t *testing.T, o *Options) {
		guardedBy(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(header, value)
			w.WriteHeader(status)
		})(o)
	}
}

// TestExplainSaysWhatTheNextCheckAnswers explains a check, makes it and compares; and compares what
// explaining has left behind: nothing.
func TestExplainSaysWhatTheNextCheckAnswers(t *testing.T) {
	server := redistest.Start(t)
	for name, tc := range explainCases() {
		t.Run(name, func(t *testing.T) {
			server.Client.FlushAll(t.Context())
			decide := realLimiter(t, server)
			if tc.away != nil {
				decide = fixed(limiter.Decision{}, tc.away)
			}
			var log bytes.Buffer
			spans := tracetest.NewSpanRecorder()
			told := new(toldOf)
			e := newEndpoint(decide, func(o *Options) {
				o.Recorder = told
				o.Log = logr.FromSlogHandler(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
				o.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("")
				if tc.options != nil {
					tc.options(t, o)
				}
			}, tc.tiers...)
			if tc.notReady {
				e.Tiers = new(tier.Table)
			}
			if tc.grant > 0 {
				if _, _, err := decide.(*limiter.SlidingWindow).Grant(t.Context(), limiter.Subject{User: "u"}, tc.grant, time.Hour); err != nil {
					t.Fatal(err)
				}
			}
			for range tc.before {
				e.ask("/check?"+tc.query, tc.headers...)
			}

			header := http.Header{}
			for i := 0; i+1 < len(tc.headers); i += 2 {
				header[tc.headers[i]] = []string{tc.headers[i+1]}
			}
			asked := Asked{Query: tc.query, Header: header, Peer: "192.0.2.1"}
			before := traces(t, e, server, &log, spans)
			toldBefore := *told
			var got adminapi.Explanation
			for range 2 { // explaining is no charge, so the second says the same
				got = e.Explain(context.Background(), asked)
			}
			if diff := cmp.Diff(before, traces(t, e, server, &log, spans)); diff != "" {
				t.Errorf("explaining left something behind: -before +after:\n%s", diff)
			}
			if *told != toldBefore {
				t.Error("explaining was recorded as a check")
			}
			real := e.ask("/check?"+tc.query, tc.headers...)
			compareExplanation(t, got, real)
			if after := spans.Ended(); len(after) == 0 {
				t.Error("a check has made no span; this test would not notice one")
			}
			outcomes := value(t, e.registry, "tierlimit_checks_total", "outcome", got.Outcome)
			if outcomes == 0 {
				t.Errorf("the check was not counted as %s", got.Outcome)
			}
			if !strings.Contains(strings.Join(got.Reasons, "\n"), tc.want) {
				t.Errorf("%s: no reason says %q:\n%s", tc.reason, tc.want, strings.Join(got.Reasons, "\n"))
			}
		})
	}
}

// toldOf counts what it is told of.
type toldOf int

func (t *toldOf) Record(Decided) { *t++ }

// traces is all that a check leaves behind.
func traces(t *testing.T, e *endpoint, server *redistest.Server, log *bytes.Buffer, spans *tracetest.SpanRecorder) map[string]string {
	t.Helper()
	families, err := e.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var metrics bytes.Buffer
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&metrics, family); err != nil {
			t.Fatal(err)
		}
	}
	info, err := server.Client.Info(t.Context(), "persistence").Result()
	if err != nil {
		t.Fatal(err)
	}
	changes := regexp.MustCompile(`rdb_changes_since_last_save:\d+`).FindString(info)
	return map[string]string{"metrics": metrics.String(), "redis": changes, "log": log.String(),
		"spans": strconv.Itoa(len(spans.Ended())), "memory": fmt.Sprint(e.outage.Lasting(), e.missing.Lasting(), e.unidentified.Lasting(), e.full.Lasting())}
}

var waits = regexp.MustCompile(`;t=\d+`)

// compareExplanation compares with a real answer. Of waits only that the later is not longer.
func compareExplanation(t *testing.T, got adminapi.Explanation, real *httptest.ResponseRecorder) {
	t.Helper()
	if got.Status != real.Code {
		t.Errorf("status %d, the check got %d", got.Status, real.Code)
	}
	want := map[string]string{}
	for name, values := range real.Header() {
		if len(values) > 0 {
			want[name] = waits.ReplaceAllString(strings.Join(values, ", "), ";t=?")
		}
	}
	explained := map[string]string{}
	for name, value := range got.Headers {
		explained[name] = waits.ReplaceAllString(value, ";t=?")
	}
	for _, name := range []string{"Retry-After", "retry-after-ms"} {
		a, _ := strconv.Atoi(explained[name])
		b, _ := strconv.Atoi(want[name])
		if (a == 0) != (b == 0) || a < b {
			t.Errorf("%s: %d, the check got %d", name, a, b)
		}
		delete(explained, name)
		delete(want, name)
	}
	if diff := cmp.Diff(want, explained); diff != "" {
		t.Errorf("headers: -check +explained:\n%s", diff)
	}
	if limit, shown := want["X-RateLimit-Limit"]; shown {
		remaining := want["X-RateLimit-Remaining"]
		if fmt.Sprint(got.Limit, " ", got.Remaining, " ", got.Window) != limit+" "+remaining+" "+want["X-RateLimit-Window"] {
			t.Errorf("limit, remaining and window are %d, %d and %s", got.Limit, got.Remaining, got.Window)
		}
	}
	if (got.RetryAt != nil) != (got.RetryAfterSeconds > 0) {
		t.Errorf("RetryAt is %v, RetryAfterSeconds %d", got.RetryAt, got.RetryAfterSeconds)
	}
}

// What an explanation says of tiers and of the caller, beside the answer.
func TestExplanationShowsTiersAndCaller(t *testing.T) {
	server := redistest.Start(t)
	e := newEndpoint(realLimiter(t, server), nil, budget("free", 2, 100, failOpenTier, engaged(time.Unix(4e9, 0))), budget("pro", 5, 9, dryRunTier))
	got := e.Explain(t.Context(), Asked{Query: "user=203.0.113.7&tier=gold&tenant=acme&route=chat&upstream=pro", Kind: limiter.KindAddress})
	expiry := time.Unix(4e9, 0).UTC()
	want := adminapi.Explanation{
		Identity: &adminapi.Identity{Source: "parameter", Subject: adminapi.Subject{User: "203.0.113.7", Kind: "ip", Tenant: "acme", Route: "chat"}},
		Tier: &adminapi.Tier{Name: "free", Asked: "gold", Limits: []adminapi.Limit{{Window: "minute", Requests: 2}, {Window: "day", Requests: 100}}, Mode: "Enforce",
			FailurePolicy: "FailOpen", KillSwitch: &adminapi.KillSwitch{ExpiresAt: &expiry}},
		Upstream: &adminapi.Tier{Name: "pro", Limits: []adminapi.Limit{{Window: "minute", Requests: 5}, {Window: "day", Requests: 9}}, Mode: "DryRun", FailurePolicy: "FailClosed"},
	}
	if diff := cmp.Diff(want, adminapi.Explanation{Identity: got.Identity, Tier: got.Tier, Upstream: got.Upstream}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A grant is shown as the limiter tells it, with the request that is explained charged to it.
func TestExplainGrant(t *testing.T) {
	d := limiter.Decision{Allowed: true, Limit: limiter.Limit{Requests: 12, Window: tier.Minute}, Remaining: 10,
		Usage: []limiter.Usage{{Limit: limiter.Limit{Requests: 12, Window: tier.Minute}, Remaining: 10}},
		Grant: &limiter.GrantUse{Requests: 10, Remaining: 10, Charged: true}}
	e := newEndpoint(fixed(d, nil), nil, budget("free", 2, 100))
	got := e.Explain(t.Context(), Asked{Query: "user=u"})
	if diff := cmp.Diff(&adminapi.Grant{Requests: 10, Used: 1, Remaining: 9}, got.Grant); diff != "" || got.Remaining != 9 {
		t.Errorf("remaining %d, -want +got:\n%s", got.Remaining, diff)
	}
	if !slices.ContainsFunc(got.Reasons, func(r string) bool {
		return strings.Contains(r, "charged to a grant of 10 requests, of which 9 are left")
	}) {
		t.Errorf("%q", got.Reasons)
	}
}

// The tier for the rest of the admin API is that of a check.
func TestTierAsInACheck(t *testing.T) {
	e := newEndpoint(fixed(limiter.Decision{}, nil), nil, budget("free", 2, 100))
	for name, want := range map[string]string{"": "free default", "free": "free", "gold": "free for gold", "Gold": "error true", "-": "error true"} {
		tr, shown, err := e.Tier(name)
		var bad *BadTier
		got := fmt.Sprint("error ", errors.As(err, &bad))
		if err == nil {
			got = tr.Name
			if shown.Default {
				got += " default"
			}
			if shown.Asked != "" {
				got += " for " + shown.Asked
			}
		}
		if got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
	e.Tiers.Replace(nil)
	if _, _, err := e.Tier("gold"); err == nil || !strings.Contains(err.Error(), "create one of the two") {
		t.Errorf("%v", err)
	}
}
