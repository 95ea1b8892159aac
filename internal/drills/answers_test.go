// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package drills

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/processtest"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

const (
	minute = time.Minute
	day    = 24 * time.Hour
)

// answers are those to many checks, in the order in which they came.
type answers []answer

func (all answers) all(is func(answer) bool) answers {
	var some answers
	for _, a := range all {
		if is(a) {
			some = append(some, a)
		}
	}
	return some
}

func (all answers) of(user string) answers {
	return all.all(func(a answer) bool { return a.user == user })
}

func (all answers) by(p *processtest.Process) answers {
	return all.all(func(a answer) bool { return a.replica == p })
}

func (all answers) admitted() answers { return all.all(answer.admitted) }

// during are those that were sent and answered between two moments.
func (all answers) during(begin, end time.Time) answers {
	return all.all(func(a answer) bool { return a.sent.After(begin) && a.received.Before(end) })
}

// mostIn is the greatest number of them that lie wholly within some window of that length. Each was
// decided between being sent and being answered, so that no window can hold fewer in the eyes of
// Redis.
func (all answers) mostIn(window time.Duration) int {
	most := 0
	for _, first := range all {
		n := 0
		for _, a := range all {
			if !a.sent.Before(first.sent) && a.received.Before(first.sent.Add(window)) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// slowest is the longest time that one took.
func (all answers) slowest() time.Duration {
	slowest := time.Duration(0)
	for _, a := range all {
		slowest = max(slowest, a.took())
	}
	return slowest
}

// median is the time that half of them took at the most.
func (all answers) median() time.Duration {
	if len(all) == 0 {
		return 0
	}
	times := make([]time.Duration, len(all))
	for i, a := range all {
		times[i] = a.took()
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// String counts them: "200: 20, 429: 180, refused: 1; slowest 12ms".
func (all answers) String() string {
	counts := map[string]int{}
	for _, a := range all {
		kind := fmt.Sprint(a.status)
		switch {
		case errors.Is(a.err, errRefused):
			kind = "refused"
		case errors.Is(a.err, errNeverTaken):
			kind = "never taken"
		case a.err != nil:
			kind = "lost"
		case a.enforcement() != "":
			kind += " " + a.enforcement()
		}
		counts[kind]++
	}
	var kinds []string
	for kind, n := range counts {
		kinds = append(kinds, fmt.Sprintf("%s: %d", kind, n))
	}
	slices.Sort(kinds)
	return fmt.Sprintf("%s; slowest %v", strings.Join(kinds, ", "), round(all.slowest()))
}

// round is for people.
func round(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Microsecond)
}

// none expects that nothing is like that.
func (all answers) none(t *testing.T, what string, is func(answer) bool) {
	t.Helper()
	if some := all.all(is); len(some) > 0 {
		a := some[0]
		t.Errorf("%s: %d of %d, the first of user %s after %v: %d %v %v", what, len(some), len(all), a.user, a.took(), a.status, a.header, a.err)
	}
}

// answered expects that no check is without an answer.
func (all answers) answered(t *testing.T) {
	t.Helper()
	all.none(t, "checks without an answer", func(a answer) bool { return a.err != nil })
}

// allDecided expects that Redis has decided on each.
func (all answers) allDecided(t *testing.T) {
	t.Helper()
	all.none(t, "checks that Redis did not decide", func(a answer) bool { return !a.decided() })
}

// entries is how many requests of a user Redis remembers.
func entries(t *testing.T, client redis.UniversalClient, user string, window time.Duration) int {
	t.Helper()
	n, err := client.ZCard(context.Background(), limiter.Subject{User: user}.Key(window)).Result()
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// spent expects that a user has spent a day's budget: that Redis remembers exactly so many requests, and
// that no more of them were admitted. Fewer were admitted only if the answer was lost on its way from
// Redis, so that the check counts as one that Redis did not decide.
func (all answers) spent(t *testing.T, client redis.UniversalClient, user string, budget int) {
	t.Helper()
	all = all.of(user)
	admitted := len(all.admitted())
	undecided := len(all.all(func(a answer) bool { return !a.decided() && !errors.Is(a.err, errRefused) }))
	if remembered := entries(t, client, user, day); remembered != budget || admitted > budget || admitted+undecided < budget {
		t.Errorf("%s: %d admitted, %d undecided, %d remembered by Redis; the budget is %d", user, admitted, undecided, remembered, budget)
	}
}
