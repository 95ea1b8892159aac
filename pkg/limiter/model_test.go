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

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
)

// model is what the script does, written down as simply as possible: every log is a list of all
// admissions ever, and nothing is removed from it.
type model map[logName][]admission

type logName struct {
	user   string
	window time.Duration
}

type admission struct {
	at     int64 // microseconds
	member uint64
}

// check is CheckAll at a time, for a request with a member.
func (m model) check(now int64, member uint64, user string, limits []Limit) Decision {
	limits = slices.SortedFunc(slices.Values(limits), func(a, b Limit) int { return int(a.Window - b.Window) })
	admitted := Decision{Allowed: true}
	repeated := slices.ContainsFunc(limits, func(l Limit) bool {
		return slices.ContainsFunc(m.counting(now, user, l.Window), func(a admission) bool { return a.member == member })
	})
	for i, l := range limits {
		log := m.counting(now, user, l.Window)
		remaining := l.Requests - int64(len(log))
		if remaining <= 0 && !repeated {
			makesRoom := log[int64(len(log))-l.Requests]
			wait := makesRoom.at + l.Window.Microseconds() - now
			return Decision{Limit: l, RetryAfter: time.Duration((wait+999_999)/1_000_000) * time.Second, Wait: time.Duration(wait) * time.Microsecond}
		}
		if remaining = max(remaining, 0); !repeated {
			remaining--
		}
		admitted.Usage = append(admitted.Usage, Usage{Limit: l, Remaining: remaining})
		if i == 0 || remaining < admitted.Remaining {
			admitted.Limit, admitted.Remaining = l, remaining
		}
	}
	if !repeated {
		for _, l := range limits {
			name := logName{user, l.Window}
			m[name] = append(m[name], admission{now, member})
		}
	}
	return admitted
}

// counting returns the admissions that count, oldest first.
func (m model) counting(now int64, user string, window time.Duration) []admission {
	log := []admission{}
	for _, a := range m[logName{user, window}] {
		if a.at > now-window.Microseconds() {
			log = append(log, a)
		}
	}
	return log
}

// exceeded returns an error if the log ever had more admissions in a window than the limit.
func (m model) exceeded(name logName, limit int64) error {
	log := m[name]
	for i := int(limit); i < len(log); i++ {
		if apart := log[i].at - log[i-int(limit)].at; apart < name.window.Microseconds() {
			return fmt.Errorf("%d admissions for %v in %d us", limit+1, name, apart)
		}
	}
	return nil
}

// request is one random request; replaying a list of them needs no random source.
type request struct {
	pause  time.Duration // before it
	repeat bool          // with the member of the request before
	user   string
	limits []Limit
}

// requests returns random requests of a few users, whose limits change now and then.
func requests(random *rand.Rand, n int) []request {
	windows := []time.Duration{time.Minute, 10 * time.Minute, time.Hour, day}
	random.Shuffle(len(windows), func(i, j int) { windows[i], windows[j] = windows[j], windows[i] })
	windows = windows[:1+random.IntN(3)]
	limits := make([]Limit, len(windows))
	shortest := slices.Min(windows)
	all := make([]request, 0, n)
	for len(all) < n {
		if len(all) == 0 || random.IntN(50) == 0 {
			for i, window := range windows {
				limits[i] = Limit{1 + random.Int64N(8*int64(i+1)), window}
			}
		}
		r := request{user: fmt.Sprint("user", random.IntN(3)), limits: slices.Clone(limits)}
		switch random.IntN(20) {
		case 0: // exactly a window, or a microsecond beside it
			r.pause = shortest + time.Duration(random.IntN(3)-1)*time.Microsecond
		case 1:
			r.pause = time.Duration(random.Int64N(int64(2 * slices.Max(windows)))).Truncate(time.Microsecond)
		case 2, 3: // a retry, soon after
			if len(all) > 0 {
				r = all[len(all)-1]
				r.pause, r.repeat = time.Duration(random.IntN(300))*time.Millisecond, true
			}
		case 4, 5, 6, 7, 8: // at the same moment
		default:
			r.pause = time.Duration(random.Int64N(int64(shortest / 4))).Truncate(time.Microsecond)
		}
		all = append(all, r)
	}
	return all
}

// replay asks the limiter for all requests, and calls each after every decision.
func replay(t testing.TB, s *SlidingWindow, c *clock, all []request, each func(i int, r request, got Decision)) {
	t.Helper()
	for i, r := range all {
		c.advance(r.pause)
		if r.repeat {
			s.members.next.Add(^uint64(0))
		}
		got, err := s.CheckAll(context.Background(), Subject{User: r.user}, r.limits...)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		each(i, r, got)
	}
}

func TestEveryDecisionIsThatOfABruteForceLog(t *testing.T) {
	seed, random := newRandom(t)
	server, s, c := start(t)
	for round := range 20 {
		server.Client.FlushAll(context.Background())
		m := model{}
		replay(t, s, c, requests(random, 300), func(i int, r request, got Decision) {
			want := m.check(c.microseconds.Load(), s.members.next.Load(), r.user, r.limits)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d, round %d, request %d %+v: -want +got:\n%s", seed, round, i, r, diff)
			}
		})
	}
}

func TestNeverMoreThanTheLimitInAnyStretchOfTheWindow(t *testing.T) {
	seed, random := newRandom(t)
	_, s, c := start(t)
	minute, aDay := Limit{7, time.Minute}, Limit{40, day}
	m := model{}
	for range 1500 {
		c.advance(time.Duration(random.Int64N(int64(time.Minute/4))) / 1000 * 1000)
		if check(t, s, minute, aDay).Allowed {
			for _, l := range []Limit{minute, aDay} {
				m[logName{user, l.Window}] = append(m[logName{user, l.Window}], admission{at: c.microseconds.Load()})
			}
		}
		if random.IntN(100) == 0 {
			c.advance(time.Duration(random.Int64N(int64(day))) / 1000 * 1000)
		}
	}
	for _, l := range []Limit{minute, aDay} {
		if err := m.exceeded(logName{user, l.Window}, l.Requests); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// The local mode keeps the log in miniredis, with the same script.
func TestEmbeddedStoreDecidesLikeRedis(t *testing.T) {
	seed, random := newRandom(t)
	_, real, c := start(t)
	embedded := miniredis.RunT(t)
	s := newSlidingWindow(t, "redis://"+embedded.Addr(), c)
	real.members.next.Store(s.members.next.Load())

	for round := range 3 {
		all := requests(random, 250)
		for i := range all {
			all[i].user += fmt.Sprint("-", round)
		}
		var decisions []Decision
		begin := c.microseconds.Load()
		replay(t, real, c, all, func(_ int, _ request, got Decision) { decisions = append(decisions, got) })
		c.microseconds.Store(begin)
		replay(t, s, c, all, func(i int, r request, got Decision) {
			if diff := cmp.Diff(decisions[i], got); diff != "" {
				t.Fatalf("seed %d, round %d, request %d %+v: -redis +miniredis:\n%s", seed, round, i, r, diff)
			}
		})
	}
	s.now = func() string { return "" } // its own time
	if d := check(t, s, Limit{2, time.Minute}); !d.Allowed || d.Remaining != 1 {
		t.Errorf("at its own time: %+v", d)
	}
}
