// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// TestSimulationSaysWhatDryRunSays makes the same requests to a tier that admits them all and to a tier in
// DryRun with other limits: simulating those limits on the log of the first must find the users and the
// requests that the second reports. The windows are short, so that they slide while the test runs.
func TestSimulationSaysWhatDryRunSays(t *testing.T) {
	server := redistest.Start(t)
	window := slidingWindow(t, server)
	trial := &tier.Tier{Name: "trial", DryRun: true, Limits: []limiter.Limit{{Requests: 3, Window: time.Second}, {Requests: 6, Window: 3 * time.Second}}}
	var table tier.Table
	table.Replace([]*tier.Tier{budget("real", 1_000_000, 10_000_000), trial})
	for attempt := range 10 {
		u := New(Options{Tiers: &table})
		h, _ := endpoint(t, window, u, &table)
		want, slowest := traffic(h, attempt)
		if !apart(t, window, want, 2*slowest, trial.Limits) {
			t.Logf("attempt %d: two requests were almost exactly a window apart", attempt)
			continue
		}
		got, err := u.Simulate(t.Context(), window, table.Lookup("real"), trial.Limits)
		if err != nil {
			t.Fatal(err)
		}
		rejected := map[string]int64{}
		for user := range want {
			name, _ := appendName(nil, limiter.Subject{User: user, Tenant: "real"})
			for _, row := range got.Users {
				if row.ID == idOf(u.hasher.sum(name)) {
					rejected[user] = row.Rejected
				}
			}
		}
		if diff := cmp.Diff(want, rejected); diff != "" {
			t.Errorf("requests rejected, -dry run +simulation\n%s", diff)
		}
		summary := Summarize(got)
		users, requests := int64(0), int64(0)
		for _, n := range want {
			requests += n
			if n > 0 {
				users++
			}
		}
		if users == 0 || users == int64(len(want)) {
			t.Errorf("%d of %d users were rejected, which tells nothing", users, len(want))
		}
		if summary.Users != int64(len(want)) || summary.Rejected != users || summary.RejectedRequests != requests {
			t.Errorf("%+v, want %d users rejected with %d requests", summary, users, requests)
		}
		if got := u.crowds()["trial"]; got.rejected != float64(users) || got.seen != float64(len(want)) {
			t.Errorf("the metrics say %+v, want %d of %d", got, users, len(want))
		}
		for _, d := range u.Decisions().Tiers {
			if n := d.Outcomes["dry_run_rejected"]; d.Tier == "trial" && n != requests {
				t.Errorf("%d requests were counted, want %d", n, requests)
			}
		}
		return
	}
	t.Error("this machine is too slow to keep requests away from the end of a window")
}

// traffic asks both tiers the same, in bursts 0.4 seconds apart, and returns how many requests of each user the
// dry run has reported, and the longest time in which both were asked. Tenants keep the logs of the two apart.
func traffic(h http.Handler, attempt int) (rejected map[string]int64, slowest time.Duration) {
	random := rand.New(rand.NewPCG(5, uint64(attempt)))
	rejected = map[string]int64{}
	start := time.Now()
	for burst := range 12 {
		time.Sleep(time.Until(start.Add(time.Duration(burst) * 400 * time.Millisecond)))
		for user := range 8 {
			name := fmt.Sprintf("user-%d-%d", attempt, user)
			rejected[name] += 0
			for range random.IntN(user/2 + 2) {
				asked := time.Now()
				for _, name := range []string{"real", "trial"} {
					r := httptest.NewRequest(http.MethodGet, fmt.Sprintf("/check?tier=%s&tenant=%s&user=user-%d-%d", name, name, attempt, user), nil)
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					if values := w.Header()["X-Tierlimit-Enforcement"]; len(values) == 1 && values[0] == "dry-run" {
						rejected[fmt.Sprintf("user-%d-%d", attempt, user)]++
					}
				}
				slowest = max(slowest, time.Since(asked))
			}
		}
	}
	return rejected, slowest
}

// apart returns whether no two requests of a user were within a margin of being a window apart: such a pair may
// count for the one tier and not for the other, which was asked a moment later.
func apart(t *testing.T, window *limiter.SlidingWindow, users map[string]int64, margin time.Duration, limits []limiter.Limit) bool {
	t.Helper()
	for user := range users {
		times, err := window.Times(t.Context(), limiter.Subject{User: user, Tenant: "real"}, tier.Day)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range times {
			for _, b := range times[i+1:] {
				for _, l := range limits {
					if (b.Sub(a) - l.Window).Abs() <= margin {
						return false
					}
				}
			}
		}
	}
	return true
}

// TestSimulationOnRedis reads logs as Redis holds them: days old, longer than one piece, of many users.
func TestSimulationOnRedis(t *testing.T) {
	server := redistest.Start(t)
	window := slidingWindow(t, server)
	var table tier.Table
	table.Replace([]*tier.Tier{budget("free", 60, 5000)})
	u := New(Options{Tiers: &table})
	h, _ := endpoint(t, window, u, &table)
	now := time.Now()
	seed := func(user string, ages ...time.Duration) {
		for _, w := range []time.Duration{tier.Minute, tier.Day} {
			var entries []redis.Z
			for i, age := range ages {
				if age < w {
					entries = append(entries, redis.Z{Score: float64(now.Add(-age).UnixMicro()), Member: fmt.Sprintf("%05d", i)})
				}
			}
			if len(entries) == 0 {
				continue
			}
			if err := server.Client.ZAdd(t.Context(), limiter.Subject{User: user}.Key(w), entries...).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	spread := make([]time.Duration, 3000)
	for i := range spread {
		spread[i] = 10 * time.Hour * time.Duration(len(spread)-i) / time.Duration(len(spread)) // one in 12 s: five in a minute
	}
	seed("steady", spread...)
	seed("burst", 5*time.Hour, 5*time.Hour, 5*time.Hour, 5*time.Hour, 5*time.Hour, 5*time.Hour)
	for _, user := range []string{"steady", "burst", "new"} {
		if code := ask(h, "tier=free&user="+user); code != http.StatusOK {
			t.Fatalf("%s: %d", user, code)
		}
	}
	for name, tc := range map[string]struct {
		reason            string
		perMinute, perDay int64
		want              map[string][3]int64 // requests, rejected, rejected now
	}{
		"Enough": {"nobody is rejected", 6, 5000, map[string][3]int64{"steady": {3001, 0, 0}, "burst": {7, 0, 0}, "new": {1, 0, 0}}},
		"Burst":  {"who comes all at once is", 5, 5000, map[string][3]int64{"steady": {3001, 0, 1}, "burst": {7, 1, 0}, "new": {1, 0, 0}}},
		"Day":    {"who comes all day is", 60, 2000, map[string][3]int64{"steady": {3001, 1001, 1}, "burst": {7, 0, 0}, "new": {1, 0, 0}}},
		"One":    {"everybody is now", 1, 1, map[string][3]int64{"steady": {3001, 3000, 1}, "burst": {7, 6, 1}, "new": {1, 0, 1}}},
	} {
		got, err := u.Simulate(t.Context(), window, table.Lookup("free"), budget("", tc.perMinute, tc.perDay).Limits)
		if err != nil {
			t.Fatal(err)
		}
		rows := map[string][3]int64{}
		for user := range tc.want {
			name, _ := appendName(nil, limiter.Subject{User: user})
			for _, row := range got.Users {
				if row.ID == idOf(u.hasher.sum(name)) {
					now := int64(0)
					if row.RejectedNow {
						now = 1
					}
					rows[user] = [3]int64{row.Requests, row.Rejected, now}
				}
			}
		}
		if diff := cmp.Diff(tc.want, rows); diff != "" {
			t.Errorf("%s: %s: -want +got\n%s", name, tc.reason, diff)
		}
	}
}
