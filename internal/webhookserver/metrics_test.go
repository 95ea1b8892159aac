// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

func TestMetrics(t *testing.T) {
	soon := time.Now().Add(time.Hour)
	e := newEndpoint(realLimiter(t, redistest.Start(t)), nil,
		budget("free", 1, 9), budget("trial", 1, 9, dryRunTier), budget("off", 1, 9, engaged(soon)), budget("was-off", 1, 9, engaged(time.Now())))
	for _, query := range []string{
		"user=secret-alice", "user=secret-alice", "user=secret-alice", // one admitted, two rejected
		"tier=trial&user=b", "tier=trial&user=b",
		"tier=off&user=c",
		"tier=gold&user=d",
		"tier=free&nonsense=1",
	} {
		e.ask(pathCheck + "?" + query)
	}
	want := `
# HELP tierlimit_checks_total Checks answered, by the tier applied, the outcome, and the window that the answer speaks of (minute or day, upstream-minute or upstream-day).
# TYPE tierlimit_checks_total counter
tierlimit_checks_total{outcome="admitted",tier="free",window="minute"} 2
tierlimit_checks_total{outcome="admitted",tier="trial",window="minute"} 1
tierlimit_checks_total{outcome="disabled",tier="off",window="minute"} 1
tierlimit_checks_total{outcome="dry_run_rejected",tier="trial",window="minute"} 1
tierlimit_checks_total{outcome="invalid",tier="",window=""} 1
tierlimit_checks_total{outcome="rejected",tier="free",window="minute"} 2
# HELP tierlimit_enforcement_disabled 1 while a kill switch lets every request pass: of all tiers (scope global, RATE_LIMIT_DISABLED) or of one (scope tier).
# TYPE tierlimit_enforcement_disabled gauge
tierlimit_enforcement_disabled{scope="global",tier=""} 0
tierlimit_enforcement_disabled{scope="tier",tier="free"} 0
tierlimit_enforcement_disabled{scope="tier",tier="off"} 1
tierlimit_enforcement_disabled{scope="tier",tier="trial"} 0
tierlimit_enforcement_disabled{scope="tier",tier="was-off"} 0
# HELP tierlimit_tiers RateLimitTiers in force.
# TYPE tierlimit_tiers gauge
tierlimit_tiers 4
# HELP tierlimit_unknown_tier_checks_total Checks that named a tier which does not exist and were answered by the default tier.
# TYPE tierlimit_unknown_tier_checks_total counter
tierlimit_unknown_tier_checks_total 1
`
	if err := testutil.GatherAndCompare(e.registry, strings.NewReader(want), "tierlimit_checks_total",
		"tierlimit_enforcement_disabled", "tierlimit_tiers", "tierlimit_unknown_tier_checks_total"); err != nil {
		t.Error(err)
	}
	for name, observations := range map[string]float64{"tierlimit_check_duration_seconds": 8, "tierlimit_store_duration_seconds": 6} {
		if got := value(t, e.registry, name, "", ""); got != observations {
			t.Errorf("%s: %v observations, want %v", name, got, observations)
		}
	}
	problems, err := testutil.GatherAndLint(e.registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	families, _ := e.registry.Gather()
	if strings.Contains(fmt.Sprint(families), "alice") {
		t.Error("a metric names a user")
	}
}

func TestStoreErrorReasons(t *testing.T) {
	for err, reason := range map[error]string{
		fmt.Errorf("x: %w", limiter.ErrReply):            "reply",
		fmt.Errorf("x: %w", context.DeadlineExceeded):    "timeout",
		fmt.Errorf("x: %w", os.ErrDeadlineExceeded):      "timeout",
		fmt.Errorf("x: %w", limiter.ErrCircuitOpen):      "circuit_open",
		errors.New("READONLY You can't write"):           "error",
		fmt.Errorf("dial tcp: %w", errors.New("refuse")): "error",
	} {
		decide := limiterFunc(func(context.Context, limiter.Subject, ...limiter.Limit) (limiter.Decision, error) {
			return limiter.Decision{}, err
		})
		e := newEndpoint(decide, nil, budget("free", 1, 1))
		e.ask(pathCheck)
		if got := value(t, e.registry, "tierlimit_store_errors_total", "reason", reason); got != 1 {
			t.Errorf("%v: not counted as %s", err, reason)
		}
	}
}

// TestOutageLog has the store fail many times: an outage is a few lines, without anybody's name.
func TestOutageLog(t *testing.T) {
	var failing error
	decide := limiterFunc(func(context.Context, limiter.Subject, ...limiter.Limit) (limiter.Decision, error) {
		return limiter.Decision{Allowed: true, Limit: limiter.Limit{Requests: 1, Window: tier.Minute}}, failing
	})
	var lines []string
	e := newEndpoint(decide, func(o *Options) {
		o.Log = funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	}, budget("free", 1, 1))
	now := time.Now()
	e.outage.Now = func() time.Time { return now }
	ask := func(err error, times int, each time.Duration) {
		failing = err
		for range times {
			now = now.Add(each)
			e.ask(pathCheck + "?user=alice")
		}
	}
	refused := errors.New("connection refused")
	ask(nil, 10, time.Second)
	for range 20 { // now and then, for 20 seconds
		ask(refused, 50, time.Millisecond)
		ask(nil, 95, 10*time.Millisecond)
	}
	ask(refused, 20, time.Second)
	ask(nil, 60, time.Second)
	ask(refused, 1, time.Second)
	wants := []string{`"failedChecks"=1`, `"failedChecks"=1011`, `decides again" "failedChecks"=1020`, `"failedChecks"=1`}
	for i, line := range lines {
		if i >= len(wants) || !strings.Contains(line, wants[i]) || strings.Contains(line, "alice") {
			t.Errorf("line %d: %s", i, line)
		}
	}
	if len(lines) != len(wants) {
		t.Errorf("%d lines, want %d:\n%s", len(lines), len(wants), strings.Join(lines, "\n"))
	}
}

// value returns the sum of a metric over all series with a label (any if the label is ""): the
// value of a counter or gauge, the number of observations of a histogram.
func value(t *testing.T, registry *prometheus.Registry, name, label, labelValue string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			matches := label == ""
			for _, pair := range metric.GetLabel() {
				matches = matches || pair.GetName() == label && pair.GetValue() == labelValue
			}
			if matches {
				sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}
