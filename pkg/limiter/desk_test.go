// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// inspect is what inspect.lua says, found out with a brute force log.
func (m model) inspect(now int64, subject Subject, last int, limits []Limit) State {
	state := State{Now: time.UnixMicro(now)}
	if g := m.grants[subject]; g != nil && g.expires > now {
		state.Grant = &Grant{Requests: g.requests, Used: int64(len(g.used)), ExpiresAt: time.UnixMicro(g.expires)}
	}
	for _, l := range limits {
		log := m.counting(now, logName{subject, l.Window})
		w := WindowState{Limit: l, Used: int64(len(log))}
		if len(log) > 0 {
			w.NextSlotAt = time.UnixMicro(log[max(int64(len(log))-l.Requests, 0)].at).Add(l.Window)
			w.EmptyAt = time.UnixMicro(log[len(log)-1].at).Add(l.Window)
		}
		for _, a := range slices.Backward(log[max(0, len(log)-last):]) {
			w.Last = append(w.Last, time.UnixMicro(a.at))
		}
		state.Windows = append(state.Windows, w)
	}
	return state
}

// The state that is told is that of a brute force log; and when the next slot is said to be free, a
// request is admitted, and a microsecond before it is not.
func TestInspectTellsTheState(t *testing.T) {
	seed, random := newRandom(t)
	server, s, c := start(t)
	subject := Subject{User: user, Tenant: "acme"}
	m := newModel()
	limits := []Limit{{3, time.Minute}, {20, time.Hour}}
	for i := range 400 {
		c.advance(time.Duration(random.Int64N(int64(20*time.Second))) / 1000 * 1000)
		if random.IntN(40) == 0 {
			limits = []Limit{{1 + random.Int64N(5), time.Minute}, {5 + random.Int64N(20), time.Hour}}
		}
		if random.IntN(50) == 0 {
			r := request{grant: 1 + random.Int64N(5), budgets: []Budget{{Subject: subject}}}
			m.grant(c.microseconds.Load(), r)
			must2(s.Grant(context.Background(), subject, r.grant, grantFor))(t)
		}
		must(s.CheckAll(context.Background(), subject, limits...))(t)
		m.check(c.microseconds.Load(), s.members.next.Load(), []Budget{{subject, limits}})
		last := random.IntN(8)
		before := changes(t, server)
		got := must(s.Inspect(context.Background(), subject, last, limits...))(t)
		if after := changes(t, server); after != before {
			t.Fatalf("seed %d, request %d: looking changed data", seed, i)
		}
		if diff := gocmp.Diff(m.inspect(c.microseconds.Load(), subject, last, limits), got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d, request %d, limits %v: -want +got:\n%s", seed, i, limits, diff)
		}
	}
}

func must2[A, B any](a A, _ B, err error) func(testing.TB) A { return must(a, err) }

func TestInspectOfNobody(t *testing.T) {
	_, s, c := start(t)
	got := must(s.Inspect(context.Background(), Subject{User: user}, 5, Limit{0, time.Minute}, Limit{5, day}))(t)
	want := State{Now: time.UnixMicro(c.microseconds.Load()), Windows: []WindowState{{Limit: Limit{0, time.Minute}}, {Limit: Limit{5, day}}}}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// A limit that was lowered to nothing: no slot will ever be free.
	admit(t, s, 2, Limit{5, day})
	got = must(s.Inspect(context.Background(), Subject{User: user}, 0, Limit{0, day}))(t)
	if w := got.Windows[0]; w.Used != 2 || !w.NextSlotAt.IsZero() || w.EmptyAt.IsZero() {
		t.Errorf("got %+v", w)
	}
}

// A reservation counts, and has no time of its own yet.
func TestInspectDoesNotTellTheTimesOfReservations(t *testing.T) {
	_, s, c := startApart(t)
	b := Budget{Subject{User: user}, []Limit{{5, day}}}
	admitted := must(s.CheckBudgets(context.Background(), b))(t)
	call := s.call("12345", []Budget{b})
	call.reserve = true
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must(s.store.do(ctx, call))(t)
	got := must(s.Inspect(context.Background(), b.Subject, 5, b.Limits...))(t)
	if w := got.Windows[0]; w.Used != 2 || len(w.Last) != 1 || w.Last[0].UnixMicro() != c.microseconds.Load() {
		t.Errorf("got %+v after %+v", w, admitted)
	}
	if times := must(s.Times(context.Background(), b.Subject, day))(t); len(times) != 1 {
		t.Errorf("times %v, want one", times)
	}
}

func TestResetClearsAndSaysHowMuch(t *testing.T) {
	server, s, c := start(t)
	minute, aDay := Limit{2, time.Minute}, Limit{4, day}
	subject := Subject{User: user}
	admit(t, s, 2, minute, aDay)
	c.advance(time.Minute)
	admit(t, s, 1, minute, aDay)
	if _, err := s.CheckAll(context.Background(), Subject{User: "other"}, minute); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff([]int64{1}, must(s.Reset(context.Background(), subject, time.Minute))(t)); diff != "" {
		t.Errorf("the minute counted: -want +got:\n%s", diff)
	}
	if got, want := check(t, s, minute, aDay), (verdict{Allowed: true, Limit: aDay}); got != want {
		t.Errorf("after the minute was cleared: got %+v, want %+v", got, want)
	}
	if diff := gocmp.Diff([]int64{4, 1}, must(s.Reset(context.Background(), subject, day, time.Minute))(t)); diff != "" {
		t.Errorf("both counted: -want +got:\n%s", diff)
	}
	if diff := gocmp.Diff([]string{Subject{User: "other"}.Key(time.Minute)}, keys(t, server)); diff != "" {
		t.Errorf("keys: -want +got:\n%s", diff)
	}
	if diff := gocmp.Diff([]int64{0, 0}, must(s.Reset(context.Background(), subject, time.Minute, day))(t)); diff != "" {
		t.Errorf("nothing was left: -want +got:\n%s", diff)
	}
}

// What this process remembers is forgotten at once, and of others after their time.
func TestResetAndGrantReachTheMemory(t *testing.T) {
	limit, subject := Limit{1, time.Hour}, Subject{User: user}
	cases := map[string]func(s *SlidingWindow) error{
		"Reset": func(s *SlidingWindow) error {
			_, err := s.Reset(context.Background(), subject, time.Hour)
			return err
		},
		"Grant": func(s *SlidingWindow) error {
			_, _, err := s.Grant(context.Background(), subject, 5, time.Hour)
			return err
		},
	}
	for name, letThrough := range cases {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			all := within(t, server.URL(), 2, patience)
			all[0].denials = newDenials(MaxDenyMemory)
			all[1].denials = newDenials(250 * time.Millisecond)
			clock := time.Now()
			all[1].denials.now = func() time.Time { return clock }
			admit(t, all[0], 1, limit)
			for _, s := range all {
				for _, remembered := range []bool{false, true} {
					if d := must(s.CheckAll(context.Background(), subject, limit))(t); d.Allowed || d.Remembered != remembered {
						t.Fatalf("got %+v, want a rejection", d)
					}
				}
			}
			if err := letThrough(all[0]); err != nil {
				t.Fatal(err)
			}
			if d := must(all[0].LookAll(context.Background(), subject, limit))(t); !d.Allowed {
				t.Errorf("the process that was told: %+v", d)
			}
			if d := must(all[1].LookAll(context.Background(), subject, limit))(t); d.Allowed {
				t.Errorf("another process has no memory: %+v", d)
			}
			clock = clock.Add(250 * time.Millisecond)
			if d := must(all[1].LookAll(context.Background(), subject, limit))(t); !d.Allowed {
				t.Errorf("another process, after its time: %+v", d)
			}
		})
	}
}

func TestTimesAreThoseOfTheLog(t *testing.T) {
	server, s, _ := start(t)
	random := rand.New(rand.NewPCG(1, 2))
	var want []time.Time
	var entries []redis.Z
	at := int64(1_796_040_000_000_000)
	for i := range 3*timesPiece + 7 {
		at += random.Int64N(3) // often several in one microsecond
		want = append(want, time.UnixMicro(at))
		entries = append(entries, redis.Z{Score: float64(at), Member: fmt.Sprintf("%05d", i)})
	}
	must(server.Client.ZAdd(context.Background(), key(day), entries...).Result())(t)
	if diff := gocmp.Diff(want, must(s.Times(context.Background(), Subject{User: user}, day))(t)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := must(s.Times(context.Background(), Subject{User: user}, time.Minute))(t); len(got) != 0 {
		t.Errorf("of an empty log: %v", got)
	}
}

func TestWhatCannotBeTold(t *testing.T) {
	_, s, _ := start(t)
	ctx, subject, limit := context.Background(), Subject{User: user}, Limit{5, time.Minute}
	cases := map[string]struct {
		ask  func() error
		want string
	}{
		"StateOfNobody":  {func() error { _, err := s.Inspect(ctx, Subject{}, 0, limit); return err }, "the user is empty"},
		"NoLimits":       {func() error { _, err := s.Inspect(ctx, subject, 0); return err }, "no limit given"},
		"TooManyLast":    {func() error { _, err := s.Inspect(ctx, subject, MaxLast+1, limit); return err }, "the last 1001 requests are outside 0 to 1000"},
		"ResetOfNobody":  {func() error { _, err := s.Reset(ctx, Subject{}, time.Minute); return err }, "the user is empty"},
		"ResetOfNothing": {func() error { _, err := s.Reset(ctx, subject); return err }, "no limit given"},
		"NoSuchWindow":   {func() error { _, err := s.Times(ctx, subject, time.Millisecond); return err }, "a window of 1ms is outside"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := tc.ask(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	limits := []Limit{{5, time.Minute}}
	number := int64(1)
	for name, reply := range map[string]any{
		"Nothing": nil, "Text": "OK", "Empty": []any{}, "NoWindow": []any{number, []any{}},
		"NoTime": []any{"1", []any{}, []any{number, number, number}}, "HalfAGrant": []any{number, []any{number}, []any{number, number, number}},
		"HalfAWindow": []any{number, []any{}, []any{number}}, "Letters": []any{number, []any{}, []any{"a", number, number}},
	} {
		t.Run(name, func(t *testing.T) {
			s := over(answering{reply: reply})
			if _, err := s.Inspect(context.Background(), Subject{User: user}, 0, limits...); !errors.Is(err, ErrReply) {
				t.Errorf("Inspect: %v", err)
			}
			if _, err := s.Times(context.Background(), Subject{User: user}, day); !errors.Is(err, ErrReply) {
				t.Errorf("Times: %v", err)
			}
			if _, err := s.Reset(context.Background(), Subject{User: user}, day, time.Minute); !errors.Is(err, ErrReply) {
				t.Errorf("Reset: %v", err)
			}
			if _, _, err := s.Grant(context.Background(), Subject{User: user}, 1, time.Hour); !errors.Is(err, ErrReply) {
				t.Errorf("Grant: %v", err)
			}
		})
	}
}
