// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

func TestCompile(t *testing.T) {
	minute := limiter.Limit{Requests: 5, Window: time.Minute}
	expiresAt := metav1.NewTime(time.Date(2026, 12, 1, 6, 0, 0, 0, time.UTC))
	budget := func(minute, day *int32) func(*v1alpha1.RateLimitTierSpec) {
		return func(s *v1alpha1.RateLimitTierSpec) {
			s.Requests = v1alpha1.RequestBudget{PerMinute: minute, PerDay: day}
		}
	}
	for name, tc := range map[string]struct {
		reason string
		spec   func(*v1alpha1.RateLimitTierSpec)
		want   *tier.Tier
		err    string
	}{
		"Defaults": {
			reason: "absent means Enforce and FailClosed, also where nobody has applied defaults",
			spec:   func(*v1alpha1.RateLimitTierSpec) {},
			want:   &tier.Tier{Name: "free", Limits: []limiter.Limit{minute}},
		},
		"ShortestWindowFirst": {
			reason: "the minute is asked before the day",
			spec:   budget(ptr.To[int32](5), ptr.To[int32](100)),
			want:   &tier.Tier{Name: "free", Limits: []limiter.Limit{minute, {Requests: 100, Window: 24 * time.Hour}}},
		},
		"DayOnly": {
			reason: "an absent window is not limited",
			spec:   budget(nil, ptr.To[int32](100)),
			want:   &tier.Tier{Name: "free", Limits: []limiter.Limit{{Requests: 100, Window: 24 * time.Hour}}},
		},
		"Zero": {
			reason: "0 is a limit, not the absence of one",
			spec:   budget(ptr.To[int32](0), nil),
			want:   &tier.Tier{Name: "free", Limits: []limiter.Limit{{Requests: 0, Window: time.Minute}}},
		},
		"DryRunFailOpen": {
			reason: "the other value of each enum",
			spec:   func(s *v1alpha1.RateLimitTierSpec) { s.Mode, s.FailurePolicy = v1alpha1.ModeDryRun, v1alpha1.FailOpen },
			want:   &tier.Tier{Name: "free", Limits: []limiter.Limit{minute}, DryRun: true, FailurePolicy: tier.FailOpen},
		},
		"FailLocal": {
			reason: "the third policy",
			spec:   func(s *v1alpha1.RateLimitTierSpec) { s.FailurePolicy = v1alpha1.FailLocal },
			want:   &tier.Tier{Name: "free", Limits: []limiter.Limit{minute}, FailurePolicy: tier.FailLocal},
		},
		"EnforceFailClosed": {
			reason: "as defaults are written out",
			spec: func(s *v1alpha1.RateLimitTierSpec) {
				s.Mode, s.FailurePolicy = v1alpha1.ModeEnforce, v1alpha1.FailClosed
			},
			want: &tier.Tier{Name: "free", Limits: []limiter.Limit{minute}},
		},
		"KillSwitch": {
			reason: "with its expiry",
			spec:   killSwitch("Redis migration", &expiresAt),
			want:   &tier.Tier{Name: "free", Limits: []limiter.Limit{minute}, KillSwitch: tier.KillSwitch{Engaged: true, ExpiresAt: expiresAt.Time}},
		},
		"KillSwitchOff": {
			reason: "engaged: false limits",
			spec: func(s *v1alpha1.RateLimitTierSpec) {
				s.KillSwitch = &v1alpha1.KillSwitch{Engaged: ptr.To(false)}
			},
			want: &tier.Tier{Name: "free", Limits: []limiter.Limit{minute}},
		},
		"KillSwitchUnsaid": {
			reason: "a switch that does not say so is not engaged",
			spec:   func(s *v1alpha1.RateLimitTierSpec) { s.KillSwitch = &v1alpha1.KillSwitch{} },
			want:   &tier.Tier{Name: "free", Limits: []limiter.Limit{minute}},
		},
		"NoBudget":      {reason: "never unlimited by mistake", spec: budget(nil, nil), err: "spec.requests is empty: set perMinute, perDay or both"},
		"Negative":      {reason: "no such budget", spec: budget(ptr.To[int32](-1), nil), err: "spec.requests.perMinute is -1: use 0 or more"},
		"Mode":          {reason: "unknown value", spec: mode("Off"), err: `spec.mode is "Off": use Enforce or DryRun`},
		"FailurePolicy": {reason: "unknown value", spec: func(s *v1alpha1.RateLimitTierSpec) { s.FailurePolicy = "Open" }, err: `spec.failurePolicy is "Open": use FailClosed, FailLocal or FailOpen`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Compile(object("free", tc.spec))
			message := ""
			if err != nil {
				message = err.Error()
			}
			if message != tc.err {
				t.Errorf("%s: error %q, want %q", tc.reason, message, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
