// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// BenchmarkCheckAll asks a real redis-server over the loopback interface, 10,000 users in turn.
func BenchmarkCheckAll(b *testing.B) {
	cases := map[string]struct {
		limits  []Limit
		allowed bool
	}{
		"Admitted": {[]Limit{{MaxRequests, time.Minute}, {MaxRequests, day}}, true},
		"Rejected": {[]Limit{{1, time.Minute}, {100, day}}, false},
	}
	for name, tc := range cases {
		b.Run(name, func(b *testing.B) {
			const users = 10_000
			s := newSlidingWindow(b, redistest.Start(b).URL(), nil)
			ask := func(i int64) Decision {
				d, err := s.CheckAll(context.Background(), Subject{User: strconv.FormatInt(i%users, 10)}, tc.limits...)
				if err != nil {
					b.Error(err)
				}
				return d
			}
			for i := range int64(users) {
				ask(i)
			}
			var next atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if d := ask(next.Add(1)); d.Allowed != tc.allowed {
						b.Errorf("got %+v", d)
					}
				}
			})
		})
	}
}

// BenchmarkCheckAllWithoutRedis is what a check costs in the process itself.
func BenchmarkCheckAllWithoutRedis(b *testing.B) {
	s := over(answering{reply: []any{int64(0), int64(4), int64(99)}})
	subject := Subject{User: user, Tenant: "acme", Route: "export"}
	limits := []Limit{{5, time.Minute}, {100, day}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.CheckAll(context.Background(), subject, limits...); err != nil {
			b.Fatal(err)
		}
	}
}
