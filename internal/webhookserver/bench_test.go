// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// BenchmarkCheck measures one check without the HTTP connection: the handler over a limiter that
// answers at once, and over a real Redis.
func BenchmarkCheck(b *testing.B) {
	minute := limiter.Limit{Requests: 5, Window: tier.Minute}
	instant := func(d limiter.Decision) Limiter {
		return limiterFunc(func(context.Context, limiter.Subject, ...limiter.Limit) (limiter.Decision, error) { return d, nil })
	}
	store := realLimiter(b, redistest.Start(b))
	for name, decide := range map[string]Limiter{
		"Admitted/instant": instant(limiter.Decision{Allowed: true, Limit: minute, Remaining: 4}),
		"Rejected/instant": instant(limiter.Decision{Limit: minute, RetryAfter: 42 * time.Second}),
		"Admitted/redis":   store,
	} {
		b.Run(name, func(b *testing.B) {
			e := newEndpoint(decide, nil, budget("free", 1_000_000, 10_000_000))
			var user atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				request := httptest.NewRequest(http.MethodGet, pathCheck+"?tier=free&user=u"+strconv.FormatInt(user.Add(1), 10), nil)
				for pb.Next() {
					e.ServeHTTP(httptest.NewRecorder(), request)
				}
			})
		})
	}
}
