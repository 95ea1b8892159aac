// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestServerKeepsItsAddressAndLosesItsData(t *testing.T) {
	s := Start(t)
	ctx := context.Background()
	if err := s.Client.Set(ctx, "a", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Freeze()
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	impatient := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true})
	defer impatient.Close()
	if err := impatient.Ping(short).Err(); err == nil {
		t.Error("a frozen server answers")
	}
	s.Thaw()
	wantValue(t, s.Client, "a", "1")
	s.Stop()
	if err := s.Client.Ping(ctx).Err(); err == nil {
		t.Error("a stopped server answers")
	}
	s.Restart()
	if n := s.Client.DBSize(ctx).Val(); n != 0 {
		t.Errorf("%d keys after a crash, want 0", n)
	}
}

func wantValue(t *testing.T, client redis.Cmdable, key, want string) {
	t.Helper()
	if got, err := client.Get(context.Background(), key).Result(); got != want {
		t.Errorf("%s is %q (%v), want %q", key, got, err, want)
	}
}

// writer increments keys in turn, all the time.
type writer struct {
	stop                 context.CancelFunc
	wait                 sync.WaitGroup
	acknowledged, failed atomic.Int64
	lastError            atomic.Value
}

func startWriter(t *testing.T, client redis.Cmdable, keys ...string) *writer {
	t.Helper()
	w := &writer{}
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	w.wait.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if err := client.Incr(context.Background(), keys[i%len(keys)]).Err(); err != nil {
				w.failed.Add(1)
				w.lastError.Store(err.Error())
				continue
			}
			w.acknowledged.Add(1)
		}
	})
	t.Cleanup(w.end)
	w.goesOn(t)
	return w
}

func (w *writer) end() {
	w.stop()
	w.wait.Wait()
}

// goesOn waits until more has been written.
func (w *writer) goesOn(t *testing.T) {
	t.Helper()
	before := w.acknowledged.Load()
	for range 1200 {
		if w.acknowledged.Load() > before+20 {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	t.Fatalf("nothing is written any more; the last error is %v", w.lastError.Load())
}
