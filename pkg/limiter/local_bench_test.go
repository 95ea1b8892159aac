// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkLocal checks two budgets of 10,000 users in turn.
func BenchmarkLocal(b *testing.B) {
	for name, own := range map[string]int64{"Admitted": MaxRequests, "Rejected": 1} {
		b.Run(name, func(b *testing.B) {
			const users = 10_000
			l := newLocal(b, MaxLocalBytes, nil)
			everybody := Budget{Subject{User: "gpt-4o", Kind: "upstream"}, []Limit{{MaxRequests, time.Minute}}}
			ask := func(i int64) {
				if _, err := l.CheckBudgets(context.Background(),
					Budget{Subject{User: strconv.FormatInt(i%users, 10)}, []Limit{{own, time.Minute}, {MaxRequests, day}}}, everybody); err != nil {
					b.Error(err)
				}
			}
			for i := range int64(users) {
				ask(i)
			}
			var next atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					ask(next.Add(1))
				}
			})
		})
	}
}

// The memory that is counted is not less than what is taken.
func TestLocalMemory(t *testing.T) {
	for _, entries := range []int{1, 5, 60, 1000} {
		l := newLocal(t, 0, nil)
		heap := func() int64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := heap()
		for i := range max(60_000/entries, 100) {
			b := Budget{Subject{User: fmt.Sprintf("user_%06d", i)}, []Limit{{int64(entries), day}}}
			for range entries {
				if _, err := l.ask(true, []Budget{b}); err != nil {
					t.Fatal(err)
				}
			}
		}
		taken := heap() - before
		t.Logf("%d logs of %d: %d bytes taken, %d counted, %d a log", len(l.logs), entries, taken, l.Bytes(), taken/int64(len(l.logs)))
		if taken > l.Bytes()+l.Bytes()/30 { // the allocator rounds up by some percent
			t.Errorf("%d logs of %d entries take %d bytes, %d are counted", len(l.logs), entries, taken, l.Bytes())
		}
		runtime.KeepAlive(l)
	}
	l := newLocal(t, 0, nil)
	for range 5 {
		if _, err := l.ask(true, []Budget{{Subject{User: user}, []Limit{{5, time.Minute}, {100, day}}}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := l.Bytes() * 110_000; got > DefaultLocalBytes {
		t.Errorf("110,000 users with 5 requests each take %d bytes", got)
	}
}
