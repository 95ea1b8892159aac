// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// model is what the script does, written down as simply as possible: every log is a list of
// admissions, and so is every grant.
type model struct {
	logs   map[logName][]admission
	grants map[Subject]*modelGrant
}

func newModel() model { return model{map[logName][]admission{}, map[Subject]*modelGrant{}} }

type modelGrant struct {
	requests int64
	expires  int64
	used     []admission
}

// grant gives the user of a request what comes before it.
func (m model) grant(now int64, r request) {
	switch subject := r.budgets[0].Subject; {
	case r.grant > 0:
		m.grants[subject] = &modelGrant{requests: r.grant, expires: now + grantFor.Microseconds()}
	case r.grant < 0:
		delete(m.grants, subject)
	}
}

// left returns what is left of the grant of a subject, and how much was granted.
func (m model) left(now int64, s Subject) (left, granted int64) {
	g := m.grants[s]
	if g == nil || g.expires <= now {
		return 0, 0
	}
	return g.requests - int64(len(g.used)), g.requests
}

type logName struct {
	subject Subject
	window  time.Duration
}

type admission struct {
	at     int64 // microseconds
	member uint64
}

// check is CheckBudgets at a time, for a request with a member, or LookBudgets for member 0.
func (m model) check(now int64, member uint64, budgets []Budget) Decision {
	look := member == 0
	var windows []modelWindow
	for i, b := range budgets {
		for _, l := range slices.SortedFunc(slices.Values(b.Limits), func(a, b Limit) int { return int(a.Window - b.Window) }) {
			windows = append(windows, modelWindow{i, l, logName{b.Subject, l.Window}})
		}
	}
	its := func(a admission) bool { return a.member == member }
	own := m.grants[budgets[0].Subject]
	extra := !look && own != nil && slices.ContainsFunc(own.used, its) // charged to the grant
	repeated := extra || !look && slices.ContainsFunc(windows, func(w modelWindow) bool { return slices.ContainsFunc(m.counting(now, w.log), its) })
	left, granted := m.left(now, budgets[0].Subject)
	for _, w := range windows {
		log := m.counting(now, w.log)
		if repeated || extra && w.budget == 0 || int64(len(log)) < w.limit.Requests {
			continue
		}
		if w.budget == 0 && left > 0 {
			extra = true
			continue
		}
		makesRoom := log[int64(len(log))-w.limit.Requests]
		wait := makesRoom.at + w.limit.Window.Microseconds() - now
		return Decision{Limit: w.limit, Budget: w.budget, RetryAfter: time.Duration((wait+999_999)/1_000_000) * time.Second, Wait: time.Duration(wait) * time.Microsecond}
	}
	if !repeated && !look {
		if extra {
			own.used = append(own.used, admission{now, member})
			left--
		}
		for _, w := range windows { // what has left by now does not come back when the clock is stepped back
			if !extra || w.budget > 0 {
				m.logs[w.log] = append(m.counting(now, w.log), admission{now, member})
			}
		}
	}
	fills := int64(0) // what is left of a window that this request fills
	if look {
		fills = 1
	}
	return m.admitted(now, windows, extra, left, granted, fills)
}

// admitted is the decision to admit, when all that there is to charge has been.
func (m model) admitted(now int64, windows []modelWindow, extra bool, left, granted, fills int64) Decision {
	d := Decision{Allowed: true}
	full := false
	for _, w := range windows {
		remaining := max(w.limit.Requests-int64(len(m.counting(now, w.log))), 0)
		full = full || w.budget == 0 && remaining <= fills
		d.Usage = append(d.Usage, Usage{Limit: w.limit, Budget: w.budget, Remaining: remaining})
	}
	if extra || full && left > 0 {
		d.Grant = &GrantUse{Requests: granted, Remaining: left, Charged: extra}
		for i := range d.Usage {
			if d.Usage[i].Budget == 0 {
				d.Usage[i].Remaining += left
				d.Usage[i].Limit.Requests += granted
			}
		}
	}
	least := slices.MinFunc(d.Usage, func(a, b Usage) int { return cmp.Compare(a.Remaining, b.Remaining) })
	d.Limit, d.Budget, d.Remaining = least.Limit, least.Budget, least.Remaining
	return d
}

type modelWindow struct {
	budget int
	limit  Limit
	log    logName
}

// counting returns the admissions that count, oldest first.
func (m model) counting(now int64, name logName) []admission {
	log := []admission{}
	for _, a := range m.logs[name] {
		if a.at > now-name.window.Microseconds() {
			log = append(log, a)
		}
	}
	slices.SortStableFunc(log, func(a, b admission) int { return cmp.Compare(a.at, b.at) }) // a clock may have been stepped back
	return log
}

// exceeded returns an error if the log ever had more admissions in a window than the limit.
func (m model) exceeded(name logName, limit int64) error {
	log := m.logs[name]
	for i := int(limit); i < len(log); i++ {
		if apart := log[i].at - log[i-int(limit)].at; apart < name.window.Microseconds() {
			return fmt.Errorf("%d admissions for %v in %d us", limit+1, name, apart)
		}
	}
	return nil
}

// request is one random request; replaying a list of them needs no random source.
type request struct {
	pause   time.Duration // before it; negative when the clock is stepped back
	before  event
	grant   int64 // to give its user before it, for half an hour; -1 takes it back
	repeat  bool  // with the member of the request before
	look    bool // charge nothing
	budgets []Budget
}

// event is something that happens to the limiter or its Redis.
type event int

const (
	nothing    event = iota
	newProcess       // another replica answers
	newRedis         // Redis restarts with its data
	newScripts       // Redis loses its scripts
)

// requests returns random requests of a few users. Each has a tier, which changes now and then; so do
// the limits of tiers. Some requests also count for a budget that all share.
func requests(random *rand.Rand, n int) []request {
	windows := []time.Duration{time.Minute, 10 * time.Minute, time.Hour, day}
	random.Shuffle(len(windows), func(i, j int) { windows[i], windows[j] = windows[j], windows[i] })
	windows = windows[:1+random.IntN(3)]
	shortest := slices.Min(windows)
	tiers := make([][]Limit, 4) // the last is that of everybody
	change := func(tier int) {
		limits := make([]Limit, len(windows))
		for i, window := range windows {
			limits[i] = Limit{1 + random.Int64N(8*int64(i+1)), window}
			if tier == len(tiers)-1 {
				limits[i].Requests *= 2
			}
		}
		tiers[tier] = limits
	}
	for i := range tiers {
		change(i)
	}
	tierOf := []int{0, 1, 2}
	// Not with repeats: whether one removes what has left depends on whether a window is full.
	stepsBack := random.IntN(3) == 0
	all := make([]request, 0, n)
	for len(all) < n {
		if random.IntN(25) == 0 {
			change(random.IntN(len(tiers)))
		}
		user := random.IntN(len(tierOf))
		if random.IntN(25) == 0 { // moved to another tier
			tierOf[user] = random.IntN(3)
		}
		r := request{budgets: []Budget{{Subject{User: fmt.Sprint("user", user)}, tiers[tierOf[user]]}}}
		if random.IntN(3) == 0 {
			r.budgets = append(r.budgets, Budget{Subject{User: "everybody", Kind: KindUpstream}, tiers[len(tiers)-1]})
		}
		r.look = random.IntN(10) == 0
		if random.IntN(20) == 0 {
			if r.grant = 1 + random.Int64N(10); random.IntN(4) == 0 {
				r.grant = -1
			}
		}
		switch random.IntN(20) {
		case 0: // exactly a window, or a microsecond beside it
			r.pause = shortest + time.Duration(random.IntN(3)-1)*time.Microsecond
		case 1:
			r.pause = time.Duration(random.Int64N(int64(2 * slices.Max(windows)))).Truncate(time.Microsecond)
		case 2, 3: // a retry, soon after
			if len(all) > 0 && !all[len(all)-1].look && !stepsBack {
				r = all[len(all)-1]
				r.pause, r.repeat, r.before, r.grant = time.Duration(random.IntN(300))*time.Millisecond, true, nothing, 0
			}
		case 4:
			r.before = event(1 + random.IntN(3))
		case 5: // the clock is stepped back, as after a failover
			if stepsBack {
				r.pause = -time.Duration(random.Int64N(int64(shortest / 8))).Truncate(time.Microsecond)
			}
		case 6, 7, 8: // at the same moment
		default:
			r.pause = time.Duration(random.Int64N(int64(shortest / 4))).Truncate(time.Microsecond)
		}
		all = append(all, r)
	}
	return all
}

// grantFor is how long the grants of random requests last.
const grantFor = 30 * time.Minute

// replay asks the limiter for all requests, and calls each after every decision, with the member.
func replay(t testing.TB, server *redistest.Server, s *SlidingWindow, c *clock, all []request, each func(i int, r request, member uint64, got Decision)) {
	t.Helper()
	for i, r := range all {
		c.advance(r.pause)
		undo := func() {}
		switch {
		case r.repeat:
			undo = repeat(s)
		case r.before == newProcess:
			s.members = newMembers()
		case r.before == newRedis && server != nil:
			must(server.Client.Do(context.Background(), "DEBUG", "RELOAD").Result())(t)
		case r.before == newScripts && server != nil:
			must(server.Client.ScriptFlush(context.Background()).Result())(t)
		}
		switch subject := r.budgets[0].Subject; {
		case r.grant > 0:
			if _, _, err := s.Grant(context.Background(), subject, r.grant, grantFor); err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
		case r.grant < 0:
			must(s.Revoke(context.Background(), subject))(t)
		}
		ask := s.CheckBudgets
		if r.look {
			ask = s.LookBudgets
		}
		got, err := ask(context.Background(), r.budgets...)
		undo()
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		member := s.members.next.Load()
		if r.look {
			member = 0
		}
		each(i, r, member, got)
	}
}

// On one Redis, and with budgets apart as in a cluster.
func TestEveryDecisionIsThatOfABruteForceLog(t *testing.T) {
	for name, apart := range map[string]bool{"Together": false, "Apart": true} {
		t.Run(name, func(t *testing.T) {
			seed, random := newRandom(t)
			server, c := redistest.Start(t, "--enable-debug-command", "local"), newClock()
			s := newSlidingWindow(t, server.URL(), c)
			s.apart = apart
			for round := range 20 {
				server.Client.FlushAll(context.Background())
				m := newModel()
				all := requests(random, 300)
				if apart { // what a repeat of one of two phases finds has tests of its own
					all = slices.DeleteFunc(all, func(r request) bool { return r.repeat && len(r.budgets) > 1 })
				}
				replay(t, server, s, c, all, func(i int, r request, member uint64, got Decision) {
					m.grant(c.microseconds.Load(), r)
					want := m.check(c.microseconds.Load(), member, r.budgets)
					if diff := gocmp.Diff(want, got); diff != "" {
						t.Fatalf("seed %d, round %d, request %d %+v: -want +got:\n%s", seed, round, i, r, diff)
					}
				})
			}
		})
	}
}

func TestNeverMoreThanTheLimitInAnyStretchOfTheWindow(t *testing.T) {
	seed, random := newRandom(t)
	_, s, c := start(t)
	minute, aDay := Limit{7, time.Minute}, Limit{40, day}
	m := newModel()
	for range 1500 {
		c.advance(time.Duration(random.Int64N(int64(time.Minute/4))) / 1000 * 1000)
		if check(t, s, minute, aDay).Allowed {
			for _, l := range []Limit{minute, aDay} {
				m.logs[logName{Subject{User: user}, l.Window}] = append(m.logs[logName{Subject{User: user}, l.Window}], admission{at: c.microseconds.Load()})
			}
		}
		if random.IntN(100) == 0 {
			c.advance(time.Duration(random.Int64N(int64(day))) / 1000 * 1000)
		}
	}
	for _, l := range []Limit{minute, aDay} {
		if err := m.exceeded(logName{Subject{User: user}, l.Window}, l.Requests); err != nil {
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
			budgets := slices.Clone(all[i].budgets)
			for j := range budgets {
				budgets[j].Subject.Tenant = fmt.Sprint("round", round)
			}
			all[i].budgets = budgets
		}
		var decisions []Decision
		begin := c.microseconds.Load()
		replay(t, nil, real, c, all, func(_ int, _ request, _ uint64, got Decision) { decisions = append(decisions, got) })
		c.microseconds.Store(begin)
		replay(t, nil, s, c, all, func(i int, r request, _ uint64, got Decision) {
			if diff := gocmp.Diff(decisions[i], got); diff != "" {
				t.Fatalf("seed %d, round %d, request %d %+v: -redis +miniredis:\n%s", seed, round, i, r, diff)
			}
		})
	}
	s.now = func() string { return "" } // its own time
	if d := check(t, s, Limit{2, time.Minute}); !d.Allowed || d.Remaining != 1 {
		t.Errorf("at its own time: %+v", d)
	}
}
