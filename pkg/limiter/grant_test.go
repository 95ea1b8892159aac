// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

func grant(t testing.TB, s *SlidingWindow, requests int64, lasts time.Duration) (Grant, *Grant) {
	t.Helper()
	now, before, err := s.Grant(context.Background(), Subject{User: user}, requests, lasts)
	if err != nil {
		t.Fatal(err)
	}
	return now, before
}

// A user of 2 a minute and 3 a day gets 3 requests more.
func TestGrantComesOnTopOfTheLimits(t *testing.T) {
	server, s, c := start(t)
	minute, aDay := Limit{2, time.Minute}, Limit{3, day}
	admit(t, s, 2, minute, aDay)
	grant(t, s, 3, time.Hour)
	more := func(l Limit) Limit { return Limit{l.Requests + 3, l.Window} }
	steps := []struct {
		reason  string
		advance time.Duration
		want    verdict
		grant   *GrantUse
		minute  int64 // entries afterwards
		day     int64
	}{
		{"the minute is full: the first of the grant", 10 * time.Second, verdict{true, more(minute), 2, 0}, &GrantUse{3, 2, true}, 2, 2},
		{"the second", 0, verdict{true, more(minute), 1, 0}, &GrantUse{3, 1, true}, 2, 2},
		{"the minute has room, and the day is filled: one is left in the grant", time.Minute, verdict{true, more(aDay), 1, 0}, &GrantUse{3, 1, false}, 1, 3},
		{"the day is full: the last of the grant", 0, verdict{true, more(aDay), 0, 0}, &GrantUse{3, 0, true}, 1, 3},
		{"nothing is left, the tier says until when", 0, verdict{Limit: aDay, RetryAfter: day - 70*time.Second}, nil, 1, 3},
		{"the day has room again, as if there had been no grant", day, verdict{true, minute, 1, 0}, nil, 1, 1},
	}
	for _, step := range steps {
		c.advance(step.advance)
		d, err := s.CheckAll(context.Background(), Subject{User: user}, minute, aDay)
		if err != nil || verdictOf(d) != step.want {
			t.Fatalf("%s: got %+v, %v, want %+v", step.reason, d, err, step.want)
		}
		if diff := cmp.Diff(step.grant, d.Grant); diff != "" {
			t.Errorf("%s: grant: -want +got:\n%s", step.reason, diff)
		}
		if a, b := card(t, server, key(time.Minute)), card(t, server, key(day)); a != step.minute || b != step.day {
			t.Errorf("%s: the logs have %d and %d entries, want %d and %d", step.reason, a, b, step.minute, step.day)
		}
	}
}

func TestGrantEnds(t *testing.T) {
	minute := Limit{1, time.Minute}
	rejected := verdict{Limit: minute, RetryAfter: time.Minute}
	granted := verdict{Allowed: true, Limit: Limit{6, time.Minute}, Remaining: 4}
	subject := Subject{User: user}
	cases := map[string]struct {
		reason string
		after  func(t *testing.T, s *SlidingWindow, c *clock)
		want   verdict
	}{
		"InForce":   {"It lasts to its end.", func(_ *testing.T, _ *SlidingWindow, c *clock) { c.advance(59*time.Minute + 59*time.Second) }, granted},
		"Expired":   {"To the microsecond.", func(_ *testing.T, _ *SlidingWindow, c *clock) { c.advance(time.Hour) }, rejected},
		"TakenBack": {"At once.", func(t *testing.T, s *SlidingWindow, _ *clock) { must(s.Revoke(context.Background(), subject))(t) }, rejected},
		"OfAnother": {"Another route is another budget.", func(t *testing.T, s *SlidingWindow, _ *clock) { move(t, s, Subject{User: user, Route: "export"}) }, rejected},
		"OfATenant": {"So is another tenant.", func(t *testing.T, s *SlidingWindow, _ *clock) { move(t, s, Subject{User: user, Tenant: "acme"}) }, rejected},
		"OfAKind":   {"And another kind.", func(t *testing.T, s *SlidingWindow, _ *clock) { move(t, s, Subject{User: user, Kind: KindKey}) }, rejected},
		"LogCleared": {"A reset leaves the grant alone.", func(t *testing.T, s *SlidingWindow, _ *clock) {
			must(s.Reset(context.Background(), subject, time.Hour))(t)
		}, granted},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, s, c := start(t)
			grant(t, s, 5, time.Hour)
			tc.after(t, s, c)
			admit(t, s, 1, minute)
			if got := check(t, s, minute); got != tc.want {
				t.Errorf("%s got %+v, want %+v", tc.reason, got, tc.want)
			}
		})
	}
}

// move gives to a subject what the user of the tests had.
func move(t *testing.T, s *SlidingWindow, to Subject) {
	t.Helper()
	must(s.Revoke(context.Background(), Subject{User: user}))(t)
	if _, _, err := s.Grant(context.Background(), to, 5, time.Hour); err != nil {
		t.Fatal(err)
	}
}

func TestGrantExpiresInRedis(t *testing.T) {
	server := redistest.Start(t)
	s := newSlidingWindow(t, server.URL(), nil)
	name := Subject{User: user}.GrantKey(false)
	before := redisTime(t, server)
	g, _ := grant(t, s, 5, 2*time.Second)
	if got := g.ExpiresAt.UnixMilli(); got < before+2000 || got > redisTime(t, server)+2000 {
		t.Errorf("the grant expires at %v, want 2 s after %d", g.ExpiresAt, before)
	}
	if got := expiry(t, server, name); got < before+2000 || got > redisTime(t, server)+2000 {
		t.Errorf("its key vanishes at %d, want 2 s after %d", got, before)
	}
	admit(t, s, 6, Limit{1, time.Minute}) // using it does not prolong it
	eventually(t, "the key is gone", func() bool { return redisTime(t, server) > g.ExpiresAt.UnixMilli() })
	if diff := cmp.Diff([]string{key(time.Minute)}, keys(t, server)); diff != "" {
		t.Errorf("keys: -want +got:\n%s", diff)
	}
}

func TestGrantReplacesTheOneBefore(t *testing.T) {
	_, s, c := start(t)
	limit := Limit{1, day}
	first, none := grant(t, s, 5, time.Hour)
	if none != nil {
		t.Errorf("there was a grant before the first: %+v", none)
	}
	admit(t, s, 3, limit) // 2 of the grant
	c.advance(time.Minute)
	second, before := grant(t, s, 7, 2*time.Hour)
	want := &Grant{Requests: 5, Used: 2, ExpiresAt: first.ExpiresAt}
	if diff := cmp.Diff(want, before); diff != "" {
		t.Errorf("replaced: -want +got:\n%s", diff)
	}
	if want := (Grant{Requests: 7, ExpiresAt: first.ExpiresAt.Add(time.Hour + time.Minute)}); second != want {
		t.Errorf("got %+v, want %+v", second, want)
	}
	admit(t, s, 7, limit)
	if d := check(t, s, limit); d.Allowed {
		t.Errorf("more than the second grant was admitted: %+v", d)
	}
	taken := must(s.Revoke(context.Background(), Subject{User: user}))(t)
	if diff := cmp.Diff(&Grant{Requests: 7, Used: 7, ExpiresAt: second.ExpiresAt}, taken); diff != "" {
		t.Errorf("taken back: -want +got:\n%s", diff)
	}
	if taken = must(s.Revoke(context.Background(), Subject{User: user}))(t); taken != nil {
		t.Errorf("taken back twice: %+v", taken)
	}
	grant(t, s, 7, time.Hour)
	c.advance(time.Hour)
	if _, before = grant(t, s, 1, time.Hour); before != nil {
		t.Errorf("an expired grant was replaced: %+v", before)
	}
}

// The reply is lost, and the call made again.
func TestRepeatedGrantIsGivenOnce(t *testing.T) {
	_, s, _ := start(t)
	first, _ := grant(t, s, 5, time.Hour)
	admit(t, s, 3, Limit{1, day})
	s.store = executedTwice{s.store}
	_, before := grant(t, s, 7, time.Hour)
	if diff := cmp.Diff(&Grant{Requests: 5, Used: 2, ExpiresAt: first.ExpiresAt}, before); diff != "" {
		t.Errorf("replaced: -want +got:\n%s", diff)
	}
	admit(t, s, 7, Limit{1, day}) // each of them twice
	if d := check(t, s, Limit{1, day}); d.Allowed {
		t.Errorf("got %+v, want the grant to be used up", d)
	}
}

func TestRepeatedRevokeSaysWhatWasTakenBack(t *testing.T) {
	server, s, _ := start(t)
	first, _ := grant(t, s, 5, time.Hour)
	admit(t, s, 3, Limit{1, day})
	once := s.store
	s.store = executedTwice{once}
	taken := must(s.Revoke(context.Background(), Subject{User: user}))(t)
	if diff := cmp.Diff(&Grant{Requests: 5, Used: 2, ExpiresAt: first.ExpiresAt}, taken); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	name := Subject{User: user}.GrantKey(false)
	if left := must(server.Client.TTL(context.Background(), name).Result())(t); left > time.Minute || left <= 0 {
		t.Errorf("it is remembered for %v", left)
	}
	s.store = once
	if d := check(t, s, Limit{1, day}); d.Allowed {
		t.Errorf("what remembers it grants something: %+v", d)
	}
	if taken = must(s.Revoke(context.Background(), Subject{User: user}))(t); taken != nil {
		t.Errorf("taken back again: %+v", taken)
	}
	state := must(s.Inspect(context.Background(), Subject{User: user}, 0, Limit{1, day}))(t)
	if state.Grant != nil {
		t.Errorf("it is told as a grant: %+v", state.Grant)
	}
	grant(t, s, 1, time.Hour)
	if d := check(t, s, Limit{1, day}); !d.Allowed {
		t.Errorf("a new grant does not hold: %+v", d)
	}
}

// executedTwice is a store whose first reply is always lost.
type executedTwice struct{ store }

func (e executedTwice) do(ctx context.Context, c *call) (any, error) {
	if _, err := e.store.do(ctx, c); err != nil {
		return nil, err
	}
	c.again = true
	return e.store.do(ctx, c)
}

// A repeat finds itself in the grant, also when the window has room by then.
func TestRepeatedRequestIsChargedToTheGrantOnce(t *testing.T) {
	server, s, c := start(t)
	minute := Limit{1, time.Minute}
	admit(t, s, 1, minute)
	grant(t, s, 5, time.Hour)
	admit(t, s, 1, minute)
	c.advance(time.Minute)
	if got, want := again(t, s, minute), (verdict{Allowed: true, Limit: Limit{6, time.Minute}, Remaining: 5}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := card(t, server, key(time.Minute)); got != 1 {
		t.Errorf("the log has %d entries, want the one that has left", got)
	}
}

// 200 requests at once, by three processes: the limit and the grant, and not one more.
func TestGrantIsExact(t *testing.T) {
	cases := map[string]struct {
		reason string
		cap    int64 // of everybody; 0 is none
		want   int64
		used   int64 // of the grant
	}{
		"OwnLimit": {"The limit of 10 and the grant of 25.", 0, 35, 25},
		"Cap":      {"The cap of everybody holds, and what it rejects is charged to nobody.", 20, 20, 10},
	}
	for name, tc := range cases {
		for place, url := range map[string]func(t *testing.T) string{
			"Redis":   func(t *testing.T) string { return redistest.Start(t).URL() },
			"Cluster": func(t *testing.T) string { return redistest.StartCluster(t, 0).URL() },
		} {
			t.Run(name+place, func(t *testing.T) {
				t.Parallel()
				limiters := within(t, url(t), 3, patience)
				subject := Subject{User: user}
				if _, _, err := limiters[0].Grant(context.Background(), subject, 25, time.Hour); err != nil {
					t.Fatal(err)
				}
				budgets := []Budget{{subject, []Limit{{10, time.Hour}, {1000, day}}}}
				if tc.cap > 0 {
					budgets = append(budgets, Budget{everybody, []Limit{{tc.cap, time.Hour}}})
				}
				var admitted atomic.Int64
				var wait sync.WaitGroup
				for i := range 200 {
					wait.Go(func() {
						d, err := limiters[i%3].CheckBudgets(context.Background(), budgets...)
						if err != nil {
							t.Error(err)
						}
						if d.Allowed {
							admitted.Add(1)
						}
					})
				}
				wait.Wait()
				state := must(limiters[1].Inspect(context.Background(), subject, 0, budgets[0].Limits...))(t)
				if admitted.Load() != tc.want || state.Grant.Used != tc.used || state.Windows[0].Used != 10 || state.Windows[1].Used != 10 {
					t.Errorf("%s %d admitted, want %d; state %+v of grant %+v, want 10 in each window and %d", tc.reason, admitted.Load(), tc.want, state, state.Grant, tc.used)
				}
			})
		}
	}
}

func TestWhatCannotBeGranted(t *testing.T) {
	_, s, _ := start(t)
	cases := map[string]struct {
		subject  Subject
		requests int64
		lasts    time.Duration
		want     string
	}{
		"Nobody":      {Subject{}, 1, time.Hour, "the user is empty"},
		"Nothing":     {Subject{User: user}, 0, time.Hour, "a grant of 0 requests is outside 1 to 100000"},
		"TooMuch":     {Subject{User: user}, MaxGrant + 1, time.Hour, "a grant of 100001 requests is outside 1 to 100000"},
		"TooShort":    {Subject{User: user}, 1, time.Second - 1, "a grant for 999.999999ms is outside 1s to 744h0m0s"},
		"TooLong":     {Subject{User: user}, 1, MaxGrantTime + time.Second, "a grant for 744h0m1s is outside 1s to 744h0m0s"},
		"NotInWholeS": {Subject{User: user}, 1, 1500 * time.Millisecond, "a grant for 1.5s is not for a whole number of seconds"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, _, err := s.Grant(context.Background(), tc.subject, tc.requests, tc.lasts)
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
	if _, err := s.Revoke(context.Background(), Subject{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("nobody's grant was taken back: %v", err)
	}
}

// Something else has the name of the grant: an error says so, and nobody is rejected for it.
func TestKeyOfAGrantHoldsSomethingElse(t *testing.T) {
	server, s, _ := start(t)
	limit := Limit{2, time.Minute}
	admit(t, s, 1, limit)
	server.Client.Set(context.Background(), Subject{User: user}.GrantKey(false), "x", 0)
	for range 2 {
		if d, err := s.CheckAll(context.Background(), Subject{User: user}, limit); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("got %+v, %v", d, err)
		}
	}
}

// A member of either length cannot be taken for a field of the grant's own.
func TestFieldsOfAGrantAreNoMembers(t *testing.T) {
	server, s, _ := start(t)
	grant(t, s, 5, time.Hour)
	fields := must(server.Client.HKeys(context.Background(), Subject{User: user}.GrantKey(false)).Result())(t)
	if len(fields) != 4 {
		t.Errorf("fields %q, want 4", fields)
	}
	for _, field := range fields {
		for _, reservation := range []string{"", "?"} {
			for _, member := range []int{5, 8} {
				if len(field) == len(reservation)+member {
					t.Errorf("the field %q is as long as a member", field)
				}
			}
		}
	}
}
