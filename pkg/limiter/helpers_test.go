// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"flag"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

const (
	user = "user_8421"
	day  = 24 * time.Hour
)

// patience is the timeout of a check in tests that are not about timeouts, so that a slow machine
// does not fail them.
const patience = time.Minute

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0 takes another each time")

// clock is a time that only the test moves. The expiry of keys still follows the real time: a test
// with a clock uses windows that are much longer than the test.
type clock struct{ microseconds atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.microseconds.Store(time.Date(2026, time.November, 30, 12, 0, 0, 0, time.UTC).UnixMicro())
	return c
}

func (c *clock) advance(d time.Duration) { c.microseconds.Add(d.Microseconds()) }
func (c *clock) now() string             { return strconv.FormatInt(c.microseconds.Load(), 10) }

// newSlidingWindow returns a limiter over a client of its own. With a clock, that is its time.
func newSlidingWindow(t testing.TB, url string, c *clock) *SlidingWindow {
	t.Helper()
	client, err := NewClient(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	s, err := NewSlidingWindow(client, Options{Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	if c != nil {
		s.now = c.now
	}
	return s
}

// start returns a redis-server and a limiter over it that goes by the clock.
func start(t testing.TB) (*redistest.Server, *SlidingWindow, *clock) {
	t.Helper()
	server, c := redistest.Start(t), newClock()
	return server, newSlidingWindow(t, server.URL(), c), c
}

// verdict is a decision without its details, to be compared with ==.
type verdict struct {
	Allowed    bool
	Limit      Limit
	Remaining  int64
	RetryAfter time.Duration
}

func verdictOf(d Decision) verdict { return verdict{d.Allowed, d.Limit, d.Remaining, d.RetryAfter} }

// check asks and fails the test unless there is a decision.
func check(t testing.TB, s *SlidingWindow, limits ...Limit) verdict {
	t.Helper()
	d, err := s.CheckAll(context.Background(), Subject{User: user}, limits...)
	if err != nil {
		t.Fatalf("CheckAll(%v): %v", limits, err)
	}
	return verdictOf(d)
}

// admit asks n times and fails the test unless all are admitted.
func admit(t testing.TB, s *SlidingWindow, n int, limits ...Limit) {
	t.Helper()
	for i := range n {
		if d := check(t, s, limits...); !d.Allowed {
			t.Fatalf("request %d of %d, which prepare the test, was rejected: %+v", i+1, n, d)
		}
	}
}

// admitTogether asks n times at once, spread over the limiters, and returns how many were admitted.
func admitTogether(t testing.TB, n int, limiters []*SlidingWindow, limits ...Limit) int64 {
	t.Helper()
	var admitted atomic.Int64
	var wait sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		wait.Go(func() {
			<-begin
			d, err := limiters[i%len(limiters)].CheckAll(context.Background(), Subject{User: user}, limits...)
			if err != nil {
				t.Errorf("CheckAll(%v): %v", limits, err)
			}
			if d.Allowed {
				admitted.Add(1)
			}
		})
	}
	close(begin)
	wait.Wait()
	return admitted.Load()
}

// again asks once more with the member of the request before, as the pipeline does when it has lost
// the reply. No other request may have been asked of the limiter in between.
func again(t testing.TB, s *SlidingWindow, limits ...Limit) verdict {
	t.Helper()
	defer repeat(s)()
	return check(t, s, limits...)
}

// repeat makes the next request of the limiter a repeat of the one before, until undone.
func repeat(s *SlidingWindow) (undo func()) {
	once := s.store
	s.store = repeating{once}
	s.members.next.Add(^uint64(0))
	return func() { s.store = once }
}

// repeating is a store that takes every call for one that may have been executed before.
type repeating struct{ store }

func (r repeating) do(ctx context.Context, c *call) (any, error) {
	c.again = true
	return r.store.do(ctx, c)
}

func key(window time.Duration) string { return Subject{User: user}.Key(window) }

// card returns the number of entries, also of those that have left and are not removed yet.
func card(t testing.TB, server *redistest.Server, key string) int64 {
	t.Helper()
	return must(server.Client.ZCard(context.Background(), key).Result())(t)
}

// entries returns the times of the entries relative to the clock's start, oldest first.
func entries(t testing.TB, server *redistest.Server, key string) []time.Duration {
	t.Helper()
	first := newClock().microseconds.Load()
	times := []time.Duration{}
	for _, entry := range must(server.Client.ZRangeWithScores(context.Background(), key, 0, -1).Result())(t) {
		times = append(times, time.Duration(int64(entry.Score)-first)*time.Microsecond)
	}
	return times
}

// expiry is the moment at which a key vanishes, in milliseconds since the epoch.
func expiry(t testing.TB, server *redistest.Server, key string) int64 {
	t.Helper()
	return must(server.Client.PExpireTime(context.Background(), key).Result())(t).Milliseconds()
}

// redisTime is the server's time in milliseconds since the epoch.
func redisTime(t testing.TB, server *redistest.Server) int64 {
	t.Helper()
	return must(server.Client.Time(context.Background()).Result())(t).UnixMilli()
}

// commands returns how often the server executed which command during f, those of a script
// included and those that open a connection left out.
func commands(t testing.TB, server *redistest.Server, f func()) map[string]int64 {
	t.Helper()
	if err := server.Client.ConfigResetStat(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	f()
	calls := map[string]int64{}
	for line := range strings.Lines(info(t, server, "commandstats")) {
		// cmdstat_evalsha:calls=1,usec=...
		name, rest, found := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		number, _, _ := strings.Cut(rest, ",")
		if found && name != "hello" && name != "config|resetstat" {
			calls[name], _ = strconv.ParseInt(number, 10, 64)
		}
	}
	return calls
}

// changes returns how many changes of data the server counts since it was started.
func changes(t testing.TB, server *redistest.Server) string {
	t.Helper()
	_, rest, found := strings.Cut(info(t, server, "persistence"), "rdb_changes_since_last_save:")
	if !found {
		t.Fatal("INFO persistence does not say how many changes there were")
	}
	number, _, _ := strings.Cut(rest, "\r\n")
	return number
}

func info(t testing.TB, server *redistest.Server, section string) string {
	t.Helper()
	return must(server.Client.Info(context.Background(), section).Result())(t)
}

func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// keys returns the names of all keys, in order.
func keys(t testing.TB, server *redistest.Server) []string {
	t.Helper()
	names := must(server.Client.Keys(context.Background(), "*").Result())(t)
	slices.Sort(names)
	return names
}

// eventually waits until done, for as long as a very slow machine might need.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still not so after %v: %s", patience, what)
		}
	}
}
