// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// remembering returns a limiter with a deny memory of a second, over its own redis-server, and what
// moves its time. The logs go by Redis's time.
func remembering(t testing.TB) (*redistest.Server, *SlidingWindow, func(time.Duration)) {
	t.Helper()
	server := redistest.Start(t)
	s := newSlidingWindow(t, server.URL(), nil)
	s.denials = newDenials(time.Second)
	now := time.Now()
	s.denials.now = func() time.Time { return now }
	return server, s, func(d time.Duration) { now = now.Add(d) }
}

func TestRepeatOffenderCostsRedisNothing(t *testing.T) {
	server, s, pass := remembering(t)
	limits := []Limit{{1, time.Minute}, {100, day}}
	admit(t, s, 1, limits...)
	first, err := s.CheckAll(context.Background(), Subject{User: user}, limits...)
	if err != nil || first.Allowed || first.Remembered {
		t.Fatalf("got %+v, %v, want a rejection by Redis", first, err)
	}
	pass(999 * time.Millisecond)
	executed := commands(t, server, func() {
		for name, ask := range map[string]func(context.Context, Subject, ...Limit) (Decision, error){"check": s.CheckAll, "look": s.LookAll} {
			got, err := ask(context.Background(), Subject{User: user}, limits...)
			if err != nil {
				t.Fatal(err)
			}
			want := rejected((first.Wait - 999*time.Millisecond).Microseconds() + 1)
			want.Limit, want.Remembered = limits[0], true
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", name, diff)
			}
		}
	})
	if diff := cmp.Diff(map[string]int64{}, executed); diff != "" {
		t.Errorf("commands that Redis executed: -want +got:\n%s", diff)
	}
	pass(time.Millisecond)
	if d, err := s.CheckAll(context.Background(), Subject{User: user}, limits...); err != nil || d.Remembered {
		t.Errorf("got %+v, %v, want that Redis is asked when the time is over", d, err)
	}
}

func TestRememberedRejectionHoldsForNobodyElse(t *testing.T) {
	minute, aDay := Limit{1, time.Minute}, Limit{100, day}
	cases := map[string]struct {
		reason string
		budget Budget
	}{
		"LimitRaised":  {"A raised limit holds at once.", Budget{Subject{User: user}, []Limit{{2, time.Minute}, aDay}}},
		"LimitRemoved": {"So does one that is gone.", Budget{Subject{User: user}, []Limit{aDay}}},
		"TierMoved":    {"And those of another tier.", Budget{Subject{User: user}, []Limit{{60, time.Minute}, {5000, day}}}},
		"OtherUser":    {"Another user was not rejected.", Budget{Subject{User: "other"}, []Limit{minute, aDay}}},
		"OtherKind":    {"Nor was an address of the same name.", Budget{Subject{User: user, Kind: KindAddress}, []Limit{minute, aDay}}},
		"OtherTenant":  {"Nor the user of another tenant.", Budget{Subject{User: user, Tenant: "acme"}, []Limit{minute, aDay}}},
		"OtherRoute":   {"Nor the user on another route.", Budget{Subject{User: user, Route: "chat"}, []Limit{minute, aDay}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, s, _ := remembering(t)
			admit(t, s, 1, minute, aDay)
			if d := check(t, s, minute, aDay); d.Allowed {
				t.Fatalf("the minute is full: %+v", d)
			}
			got, err := s.CheckBudgets(context.Background(), tc.budget)
			if err != nil || !got.Allowed {
				t.Errorf("%s got %+v, %v", tc.reason, got, err)
			}
		})
	}
}

func TestClearedLogIsNoticedWhenTheMemoryIsOver(t *testing.T) {
	server, s, pass := remembering(t)
	limit := Limit{1, time.Minute}
	admit(t, s, 1, limit)
	check(t, s, limit)
	server.Client.Del(context.Background(), key(time.Minute))
	pass(time.Second)
	if d := check(t, s, limit); !d.Allowed {
		t.Errorf("got %+v after the log was cleared and the memory over", d)
	}
}

func TestMemoryEndsWithTheWait(t *testing.T) {
	_, s, pass := remembering(t)
	limit := Limit{1, time.Minute}
	sent := s.denials.now()
	s.denials.remember(Budget{Subject{User: user}, []Limit{limit}}, Decision{Limit: limit, Wait: 30 * time.Millisecond}, sent)
	pass(30*time.Millisecond - 1)
	if _, ok := s.denials.recall([]Budget{{Subject{User: user}, []Limit{limit}}}); !ok {
		t.Error("forgotten before the wait is over")
	}
	pass(1)
	if d, ok := s.denials.recall([]Budget{{Subject{User: user}, []Limit{limit}}}); ok {
		t.Errorf("still rejected when the wait is over: %+v", d)
	}
}

// The answer of Redis may have been under way for long: who is told to wait must not come too soon,
// and who comes in time must not be kept out.
func TestSlowReplyNeitherShortensTheWaitNorProlongsTheMemory(t *testing.T) {
	_, s, pass := remembering(t)
	limit := Limit{1, time.Minute}
	budgets := []Budget{{Subject{User: user}, []Limit{limit}}}
	sent := s.denials.now()
	pass(400 * time.Millisecond) // the reply
	s.denials.remember(budgets[0], Decision{Limit: limit, Wait: 900 * time.Millisecond}, sent)
	got, ok := s.denials.recall(budgets)
	if !ok || got.Wait < 900*time.Millisecond || got.RetryAfter != time.Second {
		t.Errorf("right after the reply: %+v, %v, want at least the wait that it had", got, ok)
	}
	pass(500 * time.Millisecond)
	if got, ok := s.denials.recall(budgets); ok {
		t.Errorf("a wait after sending: %+v, want that Redis is asked, it may have room", got)
	}
}

func TestSharedBudgetIsRememberedForEverybody(t *testing.T) {
	server, s, _ := remembering(t)
	shared := Budget{Subject{User: "gpt-4o", Kind: KindUpstream}, []Limit{{1, time.Minute}}}
	ask := func(user string) Decision {
		t.Helper()
		return must(s.CheckBudgets(context.Background(), Budget{Subject{User: user}, []Limit{{5, time.Minute}}}, shared))(t)
	}
	ask("a")
	if d := ask("b"); d.Allowed || d.Remembered || d.Budget != 1 {
		t.Fatalf("got %+v, want a rejection by the shared budget in Redis", d)
	}
	executed := commands(t, server, func() {
		if d := ask("c"); d.Allowed || !d.Remembered || d.Budget != 1 || d.Limit != shared.Limits[0] {
			t.Errorf("got %+v, want a remembered rejection by the shared budget", d)
		}
	})
	if diff := cmp.Diff(map[string]int64{}, executed); diff != "" {
		t.Errorf("commands that Redis executed: -want +got:\n%s", diff)
	}
}

func TestNothingIsRememberedUnlessAsked(t *testing.T) {
	_, s, _ := start(t)
	admit(t, s, 1, Limit{1, time.Minute})
	for range 3 {
		if d, err := s.Check(context.Background(), user, 1, time.Minute); err != nil || d.Allowed || d.Remembered {
			t.Errorf("got %+v, %v", d, err)
		}
	}
}

func TestLongNamesAreNotRemembered(t *testing.T) {
	_, s, _ := remembering(t)
	long := strings.Repeat("x", maxKeyPart+1)
	for name, subject := range map[string]Subject{"User": {User: long}, "Tenant": {User: user, Tenant: long}, "Route": {User: user, Route: long}} {
		for i := range 3 {
			d := must(s.CheckAll(context.Background(), subject, Limit{1, time.Minute}))(t)
			if d.Allowed != (i == 0) || d.Remembered {
				t.Errorf("%s: request %d: %+v", name, i+1, d)
			}
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	const users, most = 1_000_000, 40 << 20
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	d := newDenials(MaxDenyMemory)
	limits := []Limit{{5, time.Minute}, {100, day}}
	for i := range users {
		d.remember(Budget{Subject{User: "somebody with quite a long name " + strconv.Itoa(i)}, limits}, Decision{Limit: limits[0], Wait: time.Minute}, d.now())
	}
	if grown := heap() - before; grown > most {
		t.Errorf("%d rejected users take %d bytes, want at most %d", users, grown, most)
	}
	last := []Budget{{Subject{User: "somebody with quite a long name " + strconv.Itoa(users-1)}, limits}}
	if _, ok := d.recall(last); !ok {
		t.Error("the last one is not remembered")
	}
}

// Whoever waits as told is admitted, also if told from memory.
func TestRememberedRetryAfterIsHonest(t *testing.T) {
	server := redistest.Start(t)
	s := newSlidingWindow(t, server.URL(), nil)
	s.denials = newDenials(MaxDenyMemory)
	limit := Limit{3, 2 * time.Second}
	for round := range 3 {
		admit(t, s, 3, limit)
		check(t, s, limit)
		time.Sleep(time.Duration(100*round) * time.Millisecond)
		d, err := s.CheckAll(context.Background(), Subject{User: user}, limit)
		if err != nil || !d.Remembered {
			t.Fatalf("got %+v, %v, want a remembered rejection", d, err)
		}
		time.Sleep(d.Wait)
		admit(t, s, 1, limit)
		time.Sleep(limit.Window)
	}
}
