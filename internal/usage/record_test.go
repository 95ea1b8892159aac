// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// TestRecordTakesNoMemory records users of whom everyone is another, after memory has grown.
func TestRecordTakesNoMemory(t *testing.T) {
	u, c, _ := newUsage(t, "free")
	users := make([]string, 200_000)
	for i := range users {
		users[i] = fmt.Sprint("user-", i)
	}
	i := 0
	record := func() {
		c.check(u, users[i%len(users)], "free", "admitted")
		if i++; i%1000 == 0 {
			c.advance(time.Second)
		}
	}
	for range 2 * len(users) {
		record()
	}
	if n := testing.AllocsPerRun(100_000, record); n != 0 {
		t.Errorf("%v allocations a check, want none", n)
	}
}

// TestMemoryIsBounded sends the longest names that are kept, each another, for more than a minute.
func TestMemoryIsBounded(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	u, c, _ := newUsage(t, "free")
	long := strings.Repeat("x", 110)
	for i := range 300_000 {
		u.Record(webhookserver.Decided{At: c.now, Tier: "free", Outcome: "admitted",
			Subject: limiter.Subject{User: fmt.Sprintf("%010d", i) + long, Tenant: long}})
		if i%1000 == 0 {
			c.advance(time.Second)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if took := int64(after.HeapAlloc) - int64(before.HeapAlloc); took > 20<<20 {
		t.Errorf("%d bytes are kept, want 20 MiB at the most", took)
	} else {
		t.Logf("%d bytes are kept", took)
	}
	runtime.KeepAlive(u)
}

// TestConcurrently records and asks at once, for the race detector, and counts all.
func TestConcurrently(t *testing.T) {
	var table tier.Table
	table.Replace([]*tier.Tier{budget("free", 1, 2), budget("pro", 1, 2)})
	u := New(Options{Tiers: &table})
	const workers, each = 4, 5000
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			for range each {
				u.Record(webhookserver.Decided{At: time.Now(), Tier: []string{"free", "pro", "gone"}[random.IntN(3)], Outcome: "rejected",
					Subject: limiter.Subject{User: fmt.Sprint(random.IntN(1000))}})
			}
		})
	}
	group.Go(func() {
		for range 50 {
			u.Top(ByUsed, "", 10)
			u.Decisions()
			u.SeenAs("1")
			u.crowds()
			u.seenBy("free", 100)
		}
	})
	group.Wait()
	sum := int64(0)
	for _, t := range u.Decisions().Tiers {
		sum += t.Outcomes["rejected"]
	}
	if sum != workers*each {
		t.Errorf("%d of %d checks are counted", sum, workers*each)
	}
}

// endpoint is a check endpoint with a recorder.
func endpoint(t testing.TB, decide webhookserver.Limiter, u webhookserver.Recorder, table *tier.Table) (*webhookserver.Handler, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	return webhookserver.NewHandler(webhookserver.Options{Tiers: table, Limiter: decide, DefaultTier: "free", Recorder: u, Log: logr.Discard(),
		Metrics: webhookserver.NewMetrics(registry, table, false, func() int64 { return 1 })}), registry
}

func slidingWindow(t testing.TB, server *redistest.Server) *limiter.SlidingWindow {
	t.Helper()
	client, err := limiter.NewClient(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	window, err := limiter.NewSlidingWindow(client, limiter.Options{Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return window
}

func ask(h http.Handler, query string, headers ...string) int {
	r := httptest.NewRequest(http.MethodGet, "/check?"+query, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// TestDecisionsAreThoseOfTheMetrics compares with tierlimit_checks_total after checks of many kinds, with Redis
// and without.
func TestDecisionsAreThoseOfTheMetrics(t *testing.T) {
	server := redistest.Start(t)
	var table tier.Table
	tiers := []*tier.Tier{budget("free", 3, 100), budget("trial", 2, 100), budget("off", 1, 1), budget("local", 2, 100), budget("open", 2, 100), budget("cap", 20, 50)}
	tiers[1].DryRun = true
	tiers[2].KillSwitch.Engaged = true
	tiers[3].FailurePolicy = tier.FailLocal
	tiers[4].FailurePolicy = tier.FailOpen
	table.Replace(tiers)
	u := New(Options{Tiers: &table})
	h, registry := endpoint(t, slidingWindow(t, server), u, &table)
	all := func() {
		for i := range 5 {
			for _, name := range []string{"free", "trial", "off", "local", "open", "gold"} {
				ask(h, fmt.Sprintf("tier=%s&user=u%d", name, i%2))
				ask(h, fmt.Sprintf("tier=%s&user=u%d&upstream=cap", name, i))
			}
			ask(h, "nonsense=1")
			ask(h, "user=u&upstream=none")
			ask(h, "user=u&methods=POST", "X-Forwarded-Method", "GET")
		}
	}
	all()
	server.Stop()
	all()
	got := map[string]float64{}
	for _, t := range u.Decisions().Tiers {
		for outcome, n := range t.Outcomes {
			got[t.Tier+" "+outcome] += float64(n)
		}
	}
	want := map[string]float64{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for _, family := range families {
		if family.GetName() != "tierlimit_checks_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, pair := range metric.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			want[labels["tier"]+" "+labels["outcome"]] += metric.GetCounter().GetValue()
			kinds[labels["outcome"]] = true
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-metrics +decisions\n%s", diff)
	}
	if len(kinds) < 9 {
		t.Errorf("only %d outcomes were tried: %v", len(kinds), kinds)
	}
}

// instant is a limiter that answers at once.
type instant struct{ limiter.Decision }

func (i instant) CheckBudgets(context.Context, ...limiter.Budget) (limiter.Decision, error) {
	return i.Decision, nil
}

func (i instant) LookBudgets(context.Context, ...limiter.Budget) (limiter.Decision, error) {
	return i.Decision, nil
}

// BenchmarkCheck measures one check without the HTTP connection and without Redis, with and without a
// recorder, of few users and of more than are kept.
func BenchmarkCheck(b *testing.B) {
	decide := instant{limiter.Decision{Allowed: true, Limit: limiter.Limit{Requests: 5, Window: tier.Minute}, Remaining: 4}}
	for _, users := range []int{100, 100_000} {
		requests := make([]*http.Request, users)
		for i := range requests {
			requests[i] = httptest.NewRequest(http.MethodGet, fmt.Sprint("/check?tier=free&user=user-", i), nil)
		}
		for _, with := range []string{"Without", "With"} {
			b.Run(fmt.Sprintf("%dUsers/%s", users, with), func(b *testing.B) {
				var table tier.Table
				table.Replace([]*tier.Tier{budget("free", 1_000_000, 10_000_000)})
				var recorder webhookserver.Recorder
				if with == "With" {
					recorder = New(Options{Tiers: &table})
				}
				h, _ := endpoint(b, decide, recorder, &table)
				var worker atomic.Int64
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for i := int(worker.Add(1)) * 7919; pb.Next(); i++ {
						h.ServeHTTP(httptest.NewRecorder(), requests[i%users])
					}
				})
			})
		}
	}
}

// BenchmarkRecord measures the recorder alone: one user by all processors, few users, and more than are kept.
func BenchmarkRecord(b *testing.B) {
	for _, users := range []int{1, 100, 100_000} {
		b.Run(fmt.Sprintf("%dUsers", users), func(b *testing.B) {
			var table tier.Table
			table.Replace([]*tier.Tier{budget("free", 1, 2)})
			u := New(Options{Tiers: &table})
			names := make([]string, users)
			for i := range names {
				names[i] = fmt.Sprint("user-", i)
			}
			now := time.Now()
			var worker atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := int(worker.Add(1)) * 7919; pb.Next(); i++ {
					u.Record(webhookserver.Decided{At: now.Add(time.Duration(i) * 20 * time.Microsecond), Tier: "free", Outcome: "admitted",
						Subject: limiter.Subject{User: names[i%users]}})
				}
			})
		})
	}
}
