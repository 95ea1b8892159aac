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
)

// newLocal returns a Local that goes by the clock.
func newLocal(t testing.TB, maxBytes int64, c *clock) *Local {
	t.Helper()
	l, err := NewLocal(LocalOptions{MaxBytes: maxBytes})
	if err != nil {
		t.Fatal(err)
	}
	if c != nil {
		l.now = c.microseconds.Load
	}
	return l
}

// verify compares what a Local has counted of itself with what it holds.
func (l *Local) verify(t testing.TB) {
	t.Helper()
	bytes := int64(0)
	for _, log := range l.logs {
		bytes += log.bytes()
	}
	if bytes != l.bytes || bytes > l.maxBytes || len(l.logs) != len(l.expiries) {
		t.Fatalf("%d bytes counted, %d taken, at most %d; %d logs, %d of them in the heap", l.bytes, bytes, l.maxBytes, len(l.logs), len(l.expiries))
	}
}

func TestLocalRefusesWhatRedisIsNotAsked(t *testing.T) {
	l := newLocal(t, 0, nil)
	ok := Budget{Subject{User: user}, []Limit{{5, time.Minute}}}
	for name, budgets := range map[string][]Budget{
		"None":       nil,
		"NoUser":     {{Subject{}, ok.Limits}},
		"NoLimit":    {{ok.Subject, nil}},
		"SubjectTwo": {ok, {ok.Subject, []Limit{{100, day}}}},
	} {
		if d, err := l.CheckBudgets(context.Background(), budgets...); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %+v, %v", name, d, err)
		}
	}
	zero := Budget{Subject{User: "x", Kind: "upstream"}, []Limit{{5, time.Minute}, {0, day}}}
	if got, err := l.CheckBudgets(context.Background(), ok, zero); err != nil || !cmp.Equal(got, Decision{Limit: Limit{0, day}, Budget: 1}) {
		t.Errorf("a limit of 0: %+v, %v", got, err)
	}
	if len(l.logs) != 0 {
		t.Errorf("%d logs", len(l.logs))
	}
	for _, bytes := range []int64{-1, MaxLocalBytes + 1} {
		if _, err := NewLocal(LocalOptions{MaxBytes: bytes}); err == nil {
			t.Errorf("a memory of %d bytes is accepted", bytes)
		}
	}
}

// Two budgets are one decision, also among many users at once.
func TestLocalIsExactUnderConcurrency(t *testing.T) {
	const users, calls, own, shared = 20, 50, 10, 60
	l := newLocal(t, 0, nil)
	everybody := Budget{Subject{User: "gpt-4o", Kind: "upstream"}, []Limit{{shared, day}}}
	var admitted [users]atomic.Int64
	var wait sync.WaitGroup
	for i := range users * calls {
		wait.Go(func() {
			d, err := l.CheckBudgets(context.Background(), Budget{Subject{User: fmt.Sprint(i % users)}, []Limit{{own, day}}}, everybody)
			if err != nil {
				t.Error(err)
			}
			if d.Allowed {
				admitted[i%users].Add(1)
			}
		})
	}
	wait.Wait()
	total := int64(0)
	for i := range admitted {
		got := admitted[i].Load()
		total += got
		if log := l.logs[Subject{User: fmt.Sprint(i)}.Key(day)]; got > own || got > 0 && int64(log.count) != got || got == 0 && log != nil {
			t.Errorf("user %d: %d admitted, of at most %d; the log is %+v", i, got, own, log)
		}
	}
	if total != shared {
		t.Errorf("%d admitted in all, want %d", total, shared)
	}
	l.verify(t)
}

func TestLocalIsBounded(t *testing.T) {
	const most = 10_000
	minute := []Limit{{3, time.Minute}}
	ask := func(t *testing.T, l *Local, user string) (Decision, error) {
		t.Helper()
		d, err := l.CheckBudgets(context.Background(), Budget{Subject{User: user}, minute})
		if err != nil && (!errors.Is(err, ErrFull) || !cmp.Equal(d, Decision{})) {
			t.Fatalf("%+v, %v", d, err)
		}
		l.verify(t)
		return d, err
	}
	c := newClock()
	l := newLocal(t, most, c)
	users := 0
	for ; users < most; users++ {
		if _, err := ask(t, l, fmt.Sprint(users)); err != nil {
			break
		}
		c.advance(time.Second / 10)
	}
	if users < 20 || users == most {
		t.Fatalf("%d users fit into %d bytes", users, most)
	}
	if d, err := ask(t, l, "0"); err != nil || !d.Allowed || d.Remaining != 1 {
		t.Errorf("a user who is known already: %+v, %v", d, err)
	}
	// Whatever is refused for lack of memory is refused as a whole.
	many := Budget{Subject{User: "1"}, []Limit{{3, time.Minute}, {100, day}}}
	if _, err := l.CheckBudgets(context.Background(), many); !errors.Is(err, ErrFull) {
		t.Errorf("a new window of a known user: %v", err)
	}
	if d, err := l.LookBudgets(context.Background(), many); err != nil || d.Usage[0].Remaining != 2 {
		t.Errorf("the user was charged, or looking takes memory: %+v, %v", d, err)
	}
	if got := len(l.logs); got != users {
		t.Errorf("%d logs, want %d", got, users)
	}
	// Room comes back as logs expire, without anybody asking for them.
	c.advance(time.Minute - time.Duration(users-1)*time.Second/10)
	for i := range 10 {
		if _, err := ask(t, l, fmt.Sprint("new", i)); err != nil {
			t.Fatalf("new user %d: %v", i, err)
		}
		c.advance(time.Second / 10)
	}
	c.advance(time.Hour)
	for range users {
		if _, err := ask(t, l, "a"); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.logs) != 1 || l.Bytes() != l.logs[Subject{User: "a"}.Key(time.Minute)].bytes() {
		t.Errorf("idle users take memory: %d logs, %d bytes", len(l.logs), l.Bytes())
	}
}

// What a check has looked at may be swept away before it is charged.
func TestLocalChargesNoLogThatIsGone(t *testing.T) {
	c := newClock()
	l := newLocal(t, 10_000, c)
	users := 0
	for ; ; users++ {
		if _, err := l.ask(true, []Budget{{Subject{User: fmt.Sprint(users)}, []Limit{{1, time.Minute}}}}); errors.Is(err, ErrFull) {
			break
		}
		c.advance(time.Millisecond)
	}
	c.advance(time.Hour) // all have left, and the first sweep does not reach the last of them
	last := Budget{Subject: Subject{User: fmt.Sprint(users - 1)}}
	for i := range 25 {
		last.Limits = append(last.Limits, Limit{1, time.Duration(i+1) * time.Minute})
	}
	for _, want := range []bool{true, false} {
		d, err := l.ask(true, []Budget{last})
		if err != nil || d.Allowed != want || !want && d.Limit != last.Limits[0] {
			t.Fatalf("admitted: %v by %v, %v, want %v", d.Allowed, d.Limit, err, want)
		}
		l.verify(t)
	}
}

// A burst leaves no empty room behind.
func TestLocalShrinks(t *testing.T) {
	c := newClock()
	l := newLocal(t, 0, c)
	b := Budget{Subject{User: user}, []Limit{{1000, time.Minute}}}
	ask := func() {
		if _, err := l.ask(true, []Budget{b}); err != nil {
			t.Fatal(err)
		}
		l.verify(t)
	}
	for range 1000 {
		ask()
	}
	if got := len(l.logs[key(time.Minute)].times); got != 1000 {
		t.Errorf("room for %d, of a limit of 1000", got)
	}
	for range 30 {
		c.advance(10 * time.Second)
		ask()
	}
	if got := len(l.logs[key(time.Minute)].times); got > 16 {
		t.Errorf("room for %d with 6 entries a minute", got)
	}
}
