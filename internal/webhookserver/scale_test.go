// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// manyTiers returns 10,000 tiers of n requests a minute.
func manyTiers(n int64) []*tier.Tier {
	tiers := make([]*tier.Tier, 10_000)
	for i := range tiers {
		tiers[i] = budget(fmt.Sprintf("tier-%05d", i), n, 10*n)
	}
	return tiers
}

// TestChecksWhileTiersAreReplaced has checks go on over HTTP while a table of 10,000 tiers is replaced
// again and again. Every check is answered by the tier that it names, of one set.
func TestChecksWhileTiersAreReplaced(t *testing.T) {
	admit := limiterFunc(func(_ context.Context, _ limiter.Subject, limits ...limiter.Limit) (limiter.Decision, error) {
		if limits[1].Requests != 10*limits[0].Requests {
			t.Errorf("limits of two sets in one check: %v", limits)
		}
		return limiter.Decision{Allowed: true, Limit: limits[0], Remaining: 1}, nil
	})
	e := newEndpoint(admit, nil, manyTiers(1)...)
	server := httptest.NewServer(e)
	defer server.Close()

	alone := checkMany(t, server)
	done := make(chan struct{})
	var writer sync.WaitGroup
	replacements := 0
	writer.Go(func() {
		for n := int64(2); ; n++ {
			select {
			case <-done:
				return
			default:
				e.tiers.Replace(manyTiers(n))
				replacements++
			}
		}
	})
	meanwhile := checkMany(t, server)
	close(done)
	writer.Wait()
	if replacements == 0 {
		t.Error("the table was not replaced meanwhile")
	}
	median := func(times []time.Duration) time.Duration { return times[len(times)/2] }
	t.Logf("%d checks alone: median %v, slowest %v", len(alone), median(alone), alone[len(alone)-1])
	t.Logf("%d checks during %d replacements: median %v (%.1f times), slowest %v", len(meanwhile), replacements,
		median(meanwhile), float64(median(meanwhile))/float64(median(alone)), meanwhile[len(meanwhile)-1])
}

// checkMany makes checks of different tiers over four connections and returns how long each took,
// shortest first.
func checkMany(t *testing.T, server *httptest.Server) []time.Duration {
	t.Helper()
	const callers, checks = 4, 500
	times := make([]time.Duration, callers*checks)
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for i := range checks {
				name := fmt.Sprintf("tier-%05d", (caller*checks+i)*7919%10_000)
				start := time.Now()
				response, err := client.Get(server.URL + pathCheck + "?user=u&tier=" + name)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				times[caller*checks+i] = time.Since(start)
				if got := response.Header.Get("X-Tierlimit-Tier"); err != nil || response.StatusCode != http.StatusOK || got != name {
					t.Errorf("tier %s: status %d by tier %q, error %v", name, response.StatusCode, got, err)
					return
				}
			}
		})
	}
	group.Wait()
	slices.Sort(times)
	return times
}
