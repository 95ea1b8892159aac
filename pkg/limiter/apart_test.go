// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

var everybody = Subject{User: "gpt-4o", Kind: KindUpstream}

// startApart returns a limiter that decides on several budgets as in a Redis Cluster.
func startApart(t testing.TB) (*redistest.Server, *SlidingWindow, *clock) {
	t.Helper()
	server, s, c := start(t)
	s.apart = true
	return server, s, c
}

// faulty is a store that fails some calls.
type faulty struct {
	store
	calls  atomic.Int64
	before func(n int64) error // returns why call n is not made
	after  func(n int64) error // returns why the reply to call n is lost
}

func (f *faulty) do(ctx context.Context, c *call) (any, error) {
	n := f.calls.Add(1)
	if f.before != nil {
		if err := f.before(n); err != nil {
			return nil, err
		}
	}
	reply, err := f.store.do(ctx, c)
	if f.after != nil {
		if lost := f.after(n); lost != nil {
			return nil, lost
		}
	}
	return reply, err
}

func TestBudgetsApartAreDecidedLikeBudgetsTogether(t *testing.T) {
	seed, random := newRandom(t)
	_, together, c := start(t)
	_, apart, _ := start(t)
	apart.apart, apart.now = true, c.now
	shared := []Limit{{6, time.Minute}, {25, time.Hour}}
	for i := range 400 {
		c.advance(time.Duration(random.Int64N(int64(20*time.Second))) / 1000 * 1000)
		limits := []Limit{{1 + random.Int64N(5), time.Minute}, {1 + random.Int64N(20), time.Hour}}
		budgets := []Budget{{Subject{User: fmt.Sprint("user", random.IntN(3))}, limits}, {everybody, shared}}
		ask := (*SlidingWindow).CheckBudgets
		if random.IntN(4) == 0 {
			ask = (*SlidingWindow).LookBudgets
		}
		want := must(ask(together, context.Background(), budgets...))(t)
		got := must(ask(apart, context.Background(), budgets...))(t)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d, request %d %+v: -together +apart:\n%s", seed, i, budgets, diff)
		}
	}
}

func TestRejectionApartIsChargedToNone(t *testing.T) {
	server, s, c := startApart(t)
	s.timeout = time.Second
	minute, shared := Limit{5, time.Minute}, Limit{1, time.Minute}
	budgets := func(user string) []Budget {
		return []Budget{{Subject{User: user}, []Limit{minute}}, {everybody, []Limit{shared}}}
	}
	must(s.CheckBudgets(context.Background(), budgets("a")...))(t)
	before := expiry(t, server, Subject{User: "a"}.ClusterKey(time.Minute))
	c.advance(time.Second)
	for _, user := range []string{"a", "b"} {
		got := must(s.CheckBudgets(context.Background(), budgets(user)...))(t)
		if want := (verdict{Limit: shared, RetryAfter: 59 * time.Second}); verdictOf(got) != want || got.Budget != 1 {
			t.Errorf("%s: got %+v, want %+v", user, got, want)
		}
	}
	log := Subject{User: "a"}.ClusterKey(time.Minute)
	want := []string{everybody.ClusterKey(time.Minute), log}
	if diff := cmp.Diff(want, keys(t, server)); diff != "" {
		t.Errorf("keys: -want +got:\n%s", diff)
	}
	if got := expiry(t, server, log); got != before {
		t.Errorf("the key of the user vanishes at %d, want %d as before the rejected request", got, before)
	}
	if got := card(t, server, log); got != 1 {
		t.Errorf("the user has %d entries, want 1", got)
	}
}

func TestReservationExpiresByItself(t *testing.T) {
	server, s, _ := startApart(t)
	s.timeout = time.Second // a lease of 3 s
	gone := errors.New("the process is gone")
	s.store = &faulty{store: s.store, before: func(n int64) error {
		if n > 1 {
			return gone
		}
		return nil
	}}
	before := redisTime(t, server)
	if d, err := s.CheckBudgets(context.Background(), Budget{Subject{User: user}, []Limit{{5, day}}}, Budget{everybody, []Limit{{5, day}}}); !errors.Is(err, gone) {
		t.Fatalf("got %+v, %v", d, err)
	}
	most := redisTime(t, server) + 4000
	if got := expiry(t, server, Subject{User: user}.ClusterKey(day)); got < before+4000 || got > most {
		t.Errorf("a key with nothing but a reservation vanishes at %d, want %d to %d: the lease and a second", got, before+4000, most)
	}
}

// A process that ends between the steps charges nothing for long, and never too little.
func TestEndBetweenTheStepsGivesTheChargeBack(t *testing.T) {
	minute, shared := Limit{2, time.Minute}, Limit{2, time.Minute}
	budgets := []Budget{{Subject{User: user}, []Limit{minute, {50, day}}}, {everybody, []Limit{shared}}}
	gone := errors.New("the process is gone")
	for name, tc := range map[string]struct {
		reason string
		calls  int64 // that the process still makes
		reply  bool  // whether it still gets the reply to the last
		meet   int64 // entries that count meanwhile
		shared int64
	}{
		"BeforeAnything":      {reason: "Nothing was reserved.", calls: 0},
		"UserReserved":        {reason: "The user's reservation counts until it lapses.", calls: 1, reply: true, meet: 1},
		"UserReservedUnheard": {reason: "Also if the reply was lost.", calls: 1, meet: 1},
		"BothReserved":        {reason: "So do both.", calls: 2, reply: true, meet: 1, shared: 1},
		"BothReservedUnheard": {reason: "Also if the reply was lost.", calls: 2, meet: 1, shared: 1},
	} {
		t.Run(name, func(t *testing.T) {
			server, s, c := startApart(t)
			s.timeout = time.Second
			healthy := s.store
			s.store = &faulty{store: healthy,
				before: func(n int64) error {
					if n > tc.calls {
						return gone
					}
					return nil
				},
				after: func(n int64) error {
					if n == tc.calls && !tc.reply {
						return gone
					}
					return nil
				}}
			if d, err := s.CheckBudgets(context.Background(), budgets...); !errors.Is(err, gone) || d.Allowed {
				t.Fatalf("%s got %+v, %v", tc.reason, d, err)
			}
			other := newSlidingWindow(t, server.URL(), c)
			other.apart = true
			remaining := func() (user, all int64) {
				d := must(other.LookBudgets(context.Background(), budgets...))(t)
				return d.Usage[0].Remaining, d.Usage[2].Remaining
			}
			if user, all := remaining(); user != 2-tc.meet || all != 2-tc.shared {
				t.Errorf("%s meanwhile the user has %d remaining, all have %d; want %d and %d", tc.reason, user, all, 2-tc.meet, 2-tc.shared)
			}
			c.advance(s.lease())
			if user, all := remaining(); user != 2 || all != 2 {
				t.Errorf("%s after the lease the user has %d remaining, all have %d; want 2 and 2", tc.reason, user, all)
			}
		})
	}
}

// A step that fails while the process lives is taken back at once.
func TestFailedStepIsTakenBack(t *testing.T) {
	broken := errors.New("broken")
	budgets := []Budget{{Subject{User: user}, []Limit{{2, time.Minute}, {50, day}}}, {everybody, []Limit{{2, time.Minute}}}}
	for name, tc := range map[string]struct {
		reason string
		fail   int64
		lost   bool // the call is made, its reply lost
	}{
		"SecondReservation":     {"The first is released.", 2, false},
		"SecondReservationLost": {"Both are released.", 2, true},
		"Charge":                {"The charge that was made is taken back.", 3, false},
		"ChargeLost":            {"Both charges are taken back.", 4, true},
	} {
		t.Run(name, func(t *testing.T) {
			server, s, _ := startApart(t)
			fail := func(n int64) error {
				if n == tc.fail {
					return broken
				}
				return nil
			}
			f := &faulty{store: s.store}
			if f.before = fail; tc.lost {
				f.before, f.after = nil, fail
			}
			s.store = f
			if d, err := s.CheckBudgets(context.Background(), budgets...); err == nil || d.Allowed {
				t.Fatalf("%s got %+v, %v", tc.reason, d, err)
			}
			eventually(t, "all logs are empty", func() bool { return len(keys(t, server)) == 0 })
		})
	}
}

func TestLapsedReservationIsNotCharged(t *testing.T) {
	cases := map[string]struct {
		reason string
		times  int64 // that reservations lapse before the charges
		err    error
		kept   int64 // entries of the user
	}{
		"Once":  {"The request is decided anew, and charged once.", 1, nil, 1},
		"Twice": {"That is too slow, and nothing is left of it.", 2, errLapsed, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server, s, c := startApart(t)
			s.timeout = time.Second
			budgets := []Budget{{Subject{User: user}, []Limit{{2, time.Minute}}}, {everybody, []Limit{{2, time.Minute}}}}
			s.store = &faulty{store: s.store, after: func(n int64) error {
				const attempt = 6 // calls: two reservations, two charges, two releases
				if n%attempt == 2 && n/attempt < tc.times {
					c.advance(s.lease())
				}
				return nil
			}}
			d, err := s.CheckBudgets(context.Background(), budgets...)
			if !errors.Is(err, tc.err) || d.Allowed != (tc.err == nil) {
				t.Fatalf("%s got %+v, %v", tc.reason, d, err)
			}
			for _, b := range budgets {
				if got := card(t, server, b.Subject.ClusterKey(time.Minute)); got != tc.kept {
					t.Errorf("%s %+v has %d entries, want %d", tc.reason, b.Subject, got, tc.kept)
				}
			}
		})
	}
}

// Requests of one user that the shared budget rejects reserve the user's own for a moment. That is no
// reason to reject another of them by it.
func TestSharedBudgetIsNamedHoweverManyAskAtOnce(t *testing.T) {
	const callers, each = 8, 40
	server, s, _ := startApart(t)
	s.now = func() string { return "" }
	own, shared := Budget{Subject{User: user}, []Limit{{1, time.Hour}}}, Budget{everybody, []Limit{{1, time.Hour}}}
	must(s.CheckBudgets(context.Background(), Budget{Subject{User: "other"}, own.Limits}, shared))(t)
	var wait sync.WaitGroup
	for range callers {
		wait.Go(func() {
			for range each {
				if d, err := s.CheckBudgets(context.Background(), own, shared); err != nil || d.Allowed || d.Budget != 1 {
					t.Errorf("got %+v, %v, want a rejection by the shared budget", d, err)
					return
				}
			}
		})
	}
	wait.Wait()
	if got := card(t, server, own.Subject.ClusterKey(time.Hour)); got != 0 {
		t.Errorf("%d entries of the user, want none", got)
	}
}

// Whatever is reserved, and for how long: Redis answers, and that is no reason to call it away.
func TestUndecidedBudgetsDoNotOpenTheCircuit(t *testing.T) {
	_, s, _ := startApart(t)
	s.timeout = 100 * time.Millisecond
	s.now = func() string { return "" }
	own := Budget{Subject{User: user}, []Limit{{1, time.Hour}}}
	orphan := s.call(s.members.make([]Budget{own}), []Budget{own})
	orphan.reserve = true
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if d, err := s.once(ctx, orphan, []Budget{own}); err != nil || !d.Allowed {
		t.Fatalf("preparing: %+v, %v", d, err)
	}
	var wait sync.WaitGroup
	for range 4 * tripAfter {
		wait.Go(func() {
			d, err := s.CheckBudgets(context.Background(), own, Budget{everybody, []Limit{{5, time.Hour}}})
			if err == nil || errors.Is(err, ErrCircuitOpen) {
				t.Errorf("got %+v, %v, want that it is not decided", d, err)
			}
		})
	}
	wait.Wait()
	if s.CircuitOpen() {
		t.Error("the circuit is open, and Redis answers")
	}
}

// An operator clears a user's log, or takes the grant away, while a request of the user is between its two
// phases: that is no outage.
func TestClearedBetweenThePhases(t *testing.T) {
	own, shared := Budget{Subject{User: user}, []Limit{{1, time.Hour}, {9, day}}}, Budget{everybody, []Limit{{100, time.Hour}}}
	cases := map[string]struct {
		reason   string
		before   int // requests
		clear    func(s *SlidingWindow) error
		used     int64 // afterwards, of the user's hour
		everyone int64
		allowed  bool
	}{
		"Reset": {"The request is decided anew, and charged once.", 0, func(s *SlidingWindow) error {
			_, err := s.Reset(context.Background(), own.Subject, time.Hour, day)
			return err
		}, 1, 1, true},
		"ResetOfAll": {"Also if it is the shared log.", 0, func(s *SlidingWindow) error {
			_, err := s.Reset(context.Background(), everybody, time.Hour)
			return err
		}, 1, 1, true},
		"Revoked": {"Without the grant the user has no room.", 1, func(s *SlidingWindow) error {
			_, err := s.Revoke(context.Background(), own.Subject)
			return err
		}, 1, 1, false},
		"Replaced": {"The new grant is charged.", 1, func(s *SlidingWindow) error {
			_, _, err := s.Grant(context.Background(), own.Subject, 3, time.Hour)
			return err
		}, 1, 2, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, s, _ := startApart(t)
			if tc.before > 0 {
				grant(t, s, 5, time.Hour)
			}
			for range tc.before {
				must(s.CheckBudgets(context.Background(), own, shared))(t)
			}
			once := s.store
			operator := *s
			s.store = &clearing{store: once, clear: func() {
				if err := tc.clear(&operator); err != nil {
					t.Error(err)
				}
			}}
			d, err := s.CheckBudgets(context.Background(), own, shared)
			if err != nil || d.Allowed != tc.allowed {
				t.Errorf("%s got %+v, %v", tc.reason, d, err)
			}
			s.store = once
			mine := must(s.Inspect(context.Background(), own.Subject, 0, own.Limits...))(t)
			all := must(s.Inspect(context.Background(), everybody, 0, shared.Limits...))(t)
			if mine.Windows[0].Used != tc.used || mine.Windows[1].Used != tc.used || all.Windows[0].Used != tc.everyone {
				t.Errorf("%s the user has used %+v, all %+v, want %d and %d", tc.reason, mine.Windows, all.Windows, tc.used, tc.everyone)
			}
			if name == "Replaced" && mine.Grant.Used != 1 {
				t.Errorf("of the new grant %d were used, want 1", mine.Grant.Used)
			}
		})
	}
}

// clearing is a store that clears something before the first charge.
type clearing struct {
	store
	clear func()
	once  sync.Once
}

func (c *clearing) do(ctx context.Context, call *call) (any, error) {
	if call.script == settle && call.args[1] == "charge" {
		c.once.Do(c.clear)
	}
	return c.store.do(ctx, call)
}
