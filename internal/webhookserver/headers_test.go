// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// fixed is a Limiter that always decides the same.
func fixed(d limiter.Decision, err error) limiterFunc {
	return func(context.Context, limiter.Subject, ...limiter.Limit) (limiter.Decision, error) { return d, err }
}

func TestRateLimitHeaders(t *testing.T) {
	minute, day := limiter.Limit{Requests: 5, Window: tier.Minute}, limiter.Limit{Requests: 100, Window: tier.Day}
	const policy = `"minute";q=5;w=60, "day";q=100;w=86400`
	cases := map[string]struct {
		reason string
		decide limiterFunc
		tier   *tier.Tier
		want   map[string]string
	}{
		"Admitted": {
			reason: "both windows, and no promise of when more is to be had",
			decide: fixed(limiter.Decision{Allowed: true, Limit: minute, Remaining: 4, Usage: []limiter.Usage{{Limit: minute, Remaining: 4}, {Limit: day, Remaining: 99}}}, nil),
			want: map[string]string{"RateLimit-Policy": policy, "RateLimit": `"minute";r=4, "day";r=99`,
				"X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "4", "X-RateLimit-Window": "minute"},
		},
		"Rejected": {
			reason: "the window that rejected, and for how long; the others were not looked at",
			decide: fixed(limiter.Decision{Limit: day, RetryAfter: 42 * time.Second, Wait: 41*time.Second + 200*time.Millisecond + time.Microsecond}, nil),
			want: map[string]string{"RateLimit-Policy": policy, "RateLimit": `"day";r=0;t=42`, "Retry-After": "42", "retry-after-ms": "41201",
				"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "0", "X-RateLimit-Window": "day"},
		},
		"RejectedForEver": {
			reason: "no wait helps against a budget of 0",
			decide: fixed(limiter.Decision{Limit: limiter.Limit{Window: tier.Minute}}, nil),
			tier:   budget("free", 0, 100),
			want: map[string]string{"RateLimit-Policy": `"minute";q=0;w=60, "day";q=100;w=86400`, "RateLimit": `"minute";r=0`,
				"X-RateLimit-Limit": "0", "X-RateLimit-Remaining": "0", "X-RateLimit-Window": "minute"},
		},
		"DryRun": {
			reason: "nothing remains, and nobody has to wait",
			decide: fixed(limiter.Decision{Limit: minute, RetryAfter: time.Second, Wait: time.Second}, nil),
			tier:   budget("free", 5, 100, dryRunTier),
			want: map[string]string{"RateLimit-Policy": policy, "RateLimit": `"minute";r=0`,
				"X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "0", "X-RateLimit-Window": "minute"},
		},
		"Disabled": {
			reason: "all remains",
			tier:   budget("free", 5, 100, engaged(time.Time{})),
			want: map[string]string{"RateLimit-Policy": policy, "RateLimit": `"minute";r=5, "day";r=100`,
				"X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "5", "X-RateLimit-Window": "minute"},
		},
		"FailedClosed": {
			reason: "what remains is not known",
			decide: fixed(limiter.Decision{}, errors.New("away")),
			want:   map[string]string{"RateLimit-Policy": policy, "X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "0", "X-RateLimit-Window": "minute"},
		},
		"OneWindow": {
			reason: "only windows that the tier has",
			decide: fixed(limiter.Decision{Allowed: true, Limit: day, Remaining: 99, Usage: []limiter.Usage{{Limit: day, Remaining: 99}}}, nil),
			tier:   &tier.Tier{Name: "free", Limits: []limiter.Limit{day}},
			want: map[string]string{"RateLimit-Policy": `"day";q=100;w=86400`, "RateLimit": `"day";r=99`,
				"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "99", "X-RateLimit-Window": "day"},
		},
	}
	sets := map[string]struct {
		list  string
		names []string
	}{
		"all":            {"x-ratelimit,ratelimit,retry-after-ms", ClientHeaders},
		"x-ratelimit":    {"x-ratelimit", []string{"Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Window"}},
		"ratelimit":      {"ratelimit", []string{"Retry-After", "RateLimit-Policy", "RateLimit"}},
		"retry-after-ms": {"retry-after-ms", []string{"Retry-After", "retry-after-ms"}},
		"none":           {"none", []string{"Retry-After"}},
	}
	for name, tc := range cases {
		for set, chosen := range sets {
			t.Run(name+"/"+set, func(t *testing.T) {
				parsed, err := ParseHeaderSets(chosen.list)
				if err != nil {
					t.Fatal(err)
				}
				if tc.tier == nil {
					tc.tier = budget("free", 5, 100)
				}
				got := map[string]string{}
				for header, values := range newEndpoint(tc.decide, func(o *Options) { o.Headers = parsed }, tc.tier).ask("/check?user=u").Header() {
					if strings.Contains(strings.ToLower(header), "ratelimit") || strings.HasPrefix(strings.ToLower(header), "retry-after") {
						got[header] = strings.Join(values, "|")
					}
				}
				want := map[string]string{}
				for header, value := range tc.want {
					if slices.Contains(chosen.names, header) {
						want[header] = value
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
				}
			})
		}
	}
}

func TestParseHeaderSets(t *testing.T) {
	for list, want := range map[string]string{
		"":                     `"" is not one of`,
		"x-ratelimit,none":     `"none" is not one of`,
		"X-RateLimit":          `"X-RateLimit" is not one of`,
		"ratelimit,,":          `"" is not one of`,
		"ratelimit":            "",
		"ratelimit, ratelimit": "",
	} {
		if _, err := ParseHeaderSets(list); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", list, err, want)
		}
	}
}

// Every header that an answer can have is either listed for proxies to pass on, or not meant for
// the client, or one that every answer of HTTP has.
func TestClientHeadersAreComplete(t *testing.T) {
	a := answer{status: 429, quota: quota{Limit: limiter.Limit{Requests: 1, Window: tier.Minute}}, retryAfter: time.Second, wait: time.Second,
		policy: []quota{{Limit: limiter.Limit{Requests: 1, Window: tier.Minute}}}, usage: []usage{{}}, tier: "a", unknownTier: "b", enforcement: dryRun, challenge: "Bearer"}
	header := http.Header{}
	a.headers(header, AllHeaders)
	known := append([]string{"Cache-Control", "Content-Type", "WWW-Authenticate"}, ClientHeaders...)
	for name := range header {
		if !slices.Contains(known, name) {
			t.Errorf("%s is not listed", name)
		}
	}
	for _, name := range ClientHeaders {
		if _, sent := header[name]; !sent {
			t.Errorf("%s is listed and never sent", name)
		}
	}
}
