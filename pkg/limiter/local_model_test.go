// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// bruteForce decides by lists of all admissions ever, from which nothing is removed.
type bruteForce map[string][]int64

func (f bruteForce) ask(now int64, charge bool, budgets []Budget) Decision {
	admitted := Decision{Allowed: true}
	var keys []string
	for i, b := range budgets {
		for _, l := range slices.SortedFunc(slices.Values(b.Limits), func(a, b Limit) int { return int(a.Window - b.Window) }) {
			key := fmt.Sprint(b.Subject, l.Window)
			keys = append(keys, key)
			var log []int64
			for _, at := range f[key] {
				if at > now-l.Window.Microseconds() {
					log = append(log, at)
				}
			}
			remaining := l.Requests - int64(len(log))
			if remaining <= 0 {
				wait := log[int64(len(log))-l.Requests] + l.Window.Microseconds() - now
				return Decision{Limit: l, Budget: i, RetryAfter: time.Duration((wait+999_999)/1_000_000) * time.Second, Wait: time.Duration(wait) * time.Microsecond}
			}
			if charge {
				remaining--
			}
			admitted.Usage = append(admitted.Usage, Usage{Limit: l, Budget: i, Remaining: remaining})
			if len(admitted.Usage) == 1 || remaining < admitted.Remaining {
				admitted.Limit, admitted.Budget, admitted.Remaining = l, i, remaining
			}
		}
	}
	for _, key := range keys {
		if charge {
			f[key] = append(f[key], now)
		}
	}
	return admitted
}

// localRequest is one random request of a user, beside whom all may share a budget.
type localRequest struct {
	pause   time.Duration
	look    bool
	budgets []Budget
}

func localRequests(random *rand.Rand, n int) []localRequest {
	windows := []time.Duration{time.Minute, 10 * time.Minute, day}
	limits := func(most int64) []Limit {
		var all []Limit
		for _, w := range windows[random.IntN(2):] {
			all = append(all, Limit{1 + random.Int64N(most), w})
		}
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		return all
	}
	own, shared := limits(10), limits(25)
	all := make([]localRequest, n)
	for i := range all {
		if random.IntN(60) == 0 {
			own, shared = limits(10), limits(25)
		}
		r := localRequest{look: random.IntN(8) == 0, budgets: []Budget{{Subject{User: fmt.Sprint("user", random.IntN(4))}, own}}}
		if random.IntN(2) == 0 {
			r.budgets = append(r.budgets, Budget{Subject{User: "gpt-4o", Kind: "upstream"}, shared})
		}
		switch random.IntN(12) {
		case 0: // exactly a window, or a microsecond beside it
			r.pause = windows[random.IntN(2)] + time.Duration(random.IntN(3)-1)*time.Microsecond
		case 1:
			r.pause = time.Duration(random.Int64N(int64(2 * day))).Truncate(time.Microsecond)
		case 2, 3, 4, 5: // at the same moment
		default:
			r.pause = time.Duration(random.Int64N(int64(20 * time.Second))).Truncate(time.Microsecond)
		}
		all[i] = r
	}
	return all
}

func TestLocalDecidesLikeABruteForceLog(t *testing.T) {
	seed, random := newRandom(t)
	for round := range 20 {
		c := newClock()
		l, f := newLocal(t, 0, c), bruteForce{}
		for i, r := range localRequests(random, 500) {
			c.advance(r.pause)
			want := f.ask(c.microseconds.Load(), !r.look, r.budgets)
			got, err := l.ask(!r.look, r.budgets)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d, round %d, request %d %+v: -want +got:\n%s", seed, round, i, r, diff)
			}
			l.verify(t)
		}
	}
}

func TestLocalDecidesLikeRedis(t *testing.T) {
	seed, random := newRandom(t)
	_, s, c := start(t)
	l := newLocal(t, 0, c)
	for i, r := range localRequests(random, 1500) {
		c.advance(r.pause)
		redis, local := s.CheckBudgets, l.CheckBudgets
		if r.look {
			redis, local = s.LookBudgets, l.LookBudgets
		}
		want, err := redis(context.Background(), r.budgets...)
		if err != nil {
			t.Fatal(err)
		}
		got, err := local(context.Background(), r.budgets...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d, request %d %+v: -redis +local:\n%s", seed, i, r, diff)
		}
	}
}
