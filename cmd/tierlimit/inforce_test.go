// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

func TestInForce(t *testing.T) {
	now := time.Now()
	limited := func(name string, engaged bool) *tier.Tier {
		return &tier.Tier{Name: name, Limits: []limiter.Limit{{Requests: 5, Window: time.Minute}}, KillSwitch: tier.KillSwitch{Engaged: engaged}}
	}
	many := make([]*tier.Tier, 10_000)
	for i := range many {
		many[i] = limited(fmt.Sprintf("tier-%05d", i), true)
	}
	parse := func(env string, args ...string) options {
		t.Helper()
		o, err := parseOptions(args, func(name string) string {
			if name == envDisabled {
				return env
			}
			return ""
		})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	local := []string{"--tiers", "config/samples"}
	for name, tc := range map[string]struct {
		reason  string
		options options
		tiers   []*tier.Tier
		want    map[string]any
	}{
		"Local": {
			reason:  "what a trial runs with",
			options: parse("", local...),
			tiers:   []*tier.Tier{limited("free", false)},
			want: map[string]any{"tiersFrom": "config/samples", "tiers": []string{"free: 5 per 1m0s"}, "defaultTier": "free",
				"store": "embedded: the memory of this process", "identity": "address", "auth": "none", "killSwitch": "off"},
		},
		"Cluster": {
			reason: "no secret is shown",
			options: parse("", "--redis-url", "rediss://user:geheim@redis.example:6380/2", "--identity", "api-key:X-Api-Key,address",
				"--auth-url", "https://auth.example/check?token=geheim", "--default-tier", "basic"),
			tiers: []*tier.Tier{limited("basic", false), limited("pro", true)},
			want: map[string]any{"tiersFrom": "the cluster", "defaultTier": "basic",
				"tiers": []string{"basic: 5 per 1m0s", "pro: 5 per 1m0s, KILL SWITCH ENGAGED: every request passes"},
				"store": "Redis redis.example:6380", "identity": "api-key:X-Api-Key,address", "auth": "https://auth.example",
				"killSwitch": "ENGAGED for pro"},
		},
		"Disabled": {
			reason:  "it must not be forgotten",
			options: parse("true", local...),
			tiers:   []*tier.Tier{limited("pro", true)},
			want: map[string]any{"tiersFrom": "config/samples", "tiers": []string{"pro: 5 per 1m0s, KILL SWITCH ENGAGED: every request passes"},
				"defaultTier": "free (MISSING: checks without a tier of their own are answered with 503)",
				"store":       "embedded: the memory of this process", "identity": "address", "auth": "none",
				"killSwitch": "ENGAGED FOR EVERY TIER by RATE_LIMIT_DISABLED: every request passes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var table tier.Table
			table.Replace(tc.tiers)
			tc.want["version"] = version()
			if diff := cmp.Diff(tc.want, pairs(tc.options.inForce(&table, now))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	t.Run("thousands of tiers are one readable line", func(t *testing.T) {
		var table tier.Table
		table.Replace(many)
		line := fmt.Sprint(parse("", local...).inForce(&table, now)...)
		if len(line) > 4096 || strings.Count(line, "and 9980 more") != 2 {
			t.Errorf("%d bytes: %.300s", len(line), line)
		}
	})
}

func pairs(keysAndValues []any) map[string]any {
	m := map[string]any{}
	for i := 0; i < len(keysAndValues); i += 2 {
		m[keysAndValues[i].(string)] = keysAndValues[i+1]
	}
	return m
}

// TestStartIsOneLine looks for what is in force in the log of a process, and for what must not be there.
func TestStartIsOneLine(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "geheim")
	p := start(t, []string{envRedisURL + "=redis://:geheim@" + server.Addr(), envHashKey + "=geheimer-schluessel"},
		"--tiers", "config/samples", "--log-format", "json", "--log-level", "debug", "--identity", "api-key:X-Api-Key,address")
	eventually(t, "the line is there", func() bool { return strings.Contains(p.log.String(), `"in force"`) })
	for range 8 {
		p.send("tier=free", "X-Api-Key", "sk-geheim")
	}
	eventually(t, "a rejection is logged when asked for", func() bool { return strings.Contains(p.log.String(), `"rejected"`) })
	var lines []map[string]any
	for line := range strings.Lines(p.log.String()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Errorf("not structured: %s", line)
		}
		if entry["msg"] == "in force" {
			lines = append(lines, entry)
		}
	}
	if len(lines) != 1 || lines[0]["killSwitch"] != "off" || len(lines[0]["tiers"].([]any)) != 3 || lines[0]["version"] != "v0.0.0-test" {
		t.Errorf("lines about what is in force: %v", lines)
	}
	if strings.Contains(p.log.String(), "geheim") {
		t.Errorf("a secret is in the log:\n%s", p.log)
	}
}
