// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

func TestRejectionsAreLoggedWhenAskedFor(t *testing.T) {
	const checks = 200
	for name, tc := range map[string]struct {
		reason  string
		level   slog.Level
		allowed bool
		logs    bool
	}{
		"Info":     {reason: "nothing per request by default", level: slog.LevelInfo},
		"Admitted": {reason: "only rejections are news", level: slog.LevelDebug, allowed: true},
		"Debug":    {reason: "it was asked for", level: slog.LevelDebug, logs: true},
	} {
		t.Run(name, func(t *testing.T) {
			decide := limiterFunc(func(_ context.Context, _ limiter.Subject, limits ...limiter.Limit) (limiter.Decision, error) {
				return limiter.Decision{Allowed: tc.allowed, Limit: limits[0], RetryAfter: time.Second, Wait: time.Second}, nil
			})
			var log bytes.Buffer
			e := newEndpoint(decide, func(o *Options) {
				o.Log = logr.FromSlogHandler(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: tc.level}))
			}, budget("free", 5, 100))
			for range checks {
				e.ask("/check?tier=free&user=alice&tenant=acme")
			}
			e.ask("/check?tier=free&user=bob")
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			if !tc.logs {
				if log.Len() > 0 {
					t.Errorf("%s: logged %s", tc.reason, log.String())
				}
				return
			}
			if len(lines) < maxRejectionsLogged || len(lines) > checks/2 {
				t.Errorf("%d lines for %d rejections, want a sample of about %d a second", len(lines), checks, maxRejectionsLogged)
			}
			if strings.Contains(log.String(), "alice") || strings.Contains(log.String(), "acme") {
				t.Errorf("the log names the caller: %s", log.String())
			}
			var first struct{ Msg, Tier, Window, RetryAfter, CallerHash string }
			if err := json.Unmarshal([]byte(lines[0]), &first); err != nil {
				t.Fatal(err)
			}
			if first.Msg != "rejected" || first.Tier != "free" || first.Window != "minute" || first.RetryAfter != "1s" || len(first.CallerHash) != 16 {
				t.Errorf("logged %s", lines[0])
			}
		})
	}
}

// TestRejectionLogCountsWhatItLeavesOut has the sample filled again after a flood.
func TestRejectionLogCountsWhatItLeavesOut(t *testing.T) {
	decide := limiterFunc(func(_ context.Context, _ limiter.Subject, limits ...limiter.Limit) (limiter.Decision, error) {
		return limiter.Decision{Limit: limits[0], RetryAfter: time.Second, Wait: time.Second}, nil
	})
	var log bytes.Buffer
	e := newEndpoint(decide, func(o *Options) {
		o.Log = logr.FromSlogHandler(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}, budget("free", 5, 100))
	rejections := 0
	for ; rejections < 100; rejections++ {
		e.ask("/check?tier=free&user=" + fmt.Sprint("user", rejections))
	}
	time.Sleep(2 * time.Second / maxRejectionsLogged)
	e.ask("/check?tier=free&user=last")
	var logged, unlogged int
	hashes := map[string]bool{}
	for line := range strings.Lines(log.String()) {
		var entry struct {
			CallerHash string
			Unlogged   int
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		logged, unlogged = logged+1, unlogged+entry.Unlogged
		hashes[entry.CallerHash] = true
	}
	if logged+unlogged != rejections+1 {
		t.Errorf("%d lines that speak of %d more, want %d together", logged, unlogged, rejections+1)
	}
	if len(hashes) != logged {
		t.Errorf("%d hashes of %d callers", len(hashes), logged)
	}
}
