// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAdmittedExactlyWhenThePromisedWaitIsOver(t *testing.T) {
	_, s, c := start(t)
	limit := Limit{3, time.Minute}
	for range 3 {
		admit(t, s, 1, limit)
		c.advance(1234567 * time.Microsecond)
	}
	rejected := check(t, s, limit)
	if want := (verdict{Limit: limit, RetryAfter: 57 * time.Second}); rejected != want { // of 56.296299 s
		t.Fatalf("full log: got %+v, want %+v", rejected, want)
	}
	c.advance(time.Minute - 3*1234567*time.Microsecond - time.Microsecond)
	if got, want := check(t, s, limit), (verdict{Limit: limit, RetryAfter: time.Second}); got != want {
		t.Errorf("one microsecond before the oldest entry leaves: got %+v, want %+v", got, want)
	}
	c.advance(time.Microsecond)
	if got, want := check(t, s, limit), (verdict{Allowed: true, Limit: limit}); got != want {
		t.Errorf("when the oldest entry leaves: got %+v, want %+v", got, want)
	}
	if got, want := check(t, s, limit), (verdict{Limit: limit, RetryAfter: 2 * time.Second}); got != want {
		t.Errorf("only one entry has left, so only one request is admitted: got %+v, want %+v", got, want)
	}
}

func TestRetryAfterIsRoundedUpToWholeSeconds(t *testing.T) {
	_, s, c := start(t)
	limit := Limit{1, time.Minute}
	admit(t, s, 1, limit)
	begin := c.microseconds.Load()
	cases := map[string]struct {
		elapsed time.Duration
		want    time.Duration
	}{
		"AtOnce":                   {0, 60 * time.Second},
		"AMicrosecondLater":        {time.Microsecond, 60 * time.Second},
		"JustBeforeASecond":        {time.Second - time.Microsecond, 60 * time.Second},
		"AWholeSecondIsNotRounded": {time.Second, 59 * time.Second},
		"JustOverTwoSecondsLeft":   {58*time.Second - time.Microsecond, 3 * time.Second},
		"TwoSecondsLeft":           {58 * time.Second, 2 * time.Second},
		"OneSecondLeft":            {59 * time.Second, time.Second},
		"NeverLessThanOneSecond":   {time.Minute - time.Microsecond, time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c.microseconds.Store(begin + tc.elapsed.Microseconds())
			if got := check(t, s, limit); got.Allowed || got.RetryAfter != tc.want {
				t.Errorf("%v after the only entry: got %+v, want to wait %v", tc.elapsed, got, tc.want)
			}
		})
	}
}

// After ten requests a second apart the limit is lowered. The oldest entry alone does not make
// room: entry count + 1 - limit has to leave.
func TestLoweredLimitWaitsForTheEntryThatMakesRoom(t *testing.T) {
	cases := map[string]struct {
		limit int64
		entry int // counted from the oldest, which is 1
	}{
		"Unchanged": {10, 1},
		"ByOne":     {9, 2},
		"ToFour":    {4, 7},
		"ToOne":     {1, 10},
	}
	server, s, c := start(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server.Client.FlushAll(context.Background())
			begin := c.microseconds.Load()
			for range 10 {
				admit(t, s, 1, Limit{10, time.Minute})
				c.advance(time.Second)
			}
			limit := Limit{tc.limit, time.Minute}
			leaves := time.Duration(tc.entry-1)*time.Second + time.Minute
			got, want := check(t, s, limit), verdict{Limit: limit, RetryAfter: leaves - 10*time.Second}
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			c.microseconds.Store(begin + leaves.Microseconds() - 1)
			if got := check(t, s, limit); got.Allowed {
				t.Errorf("admitted a microsecond before entry %d leaves: %+v", tc.entry, got)
			}
			c.advance(time.Microsecond)
			if got := check(t, s, limit); !got.Allowed {
				t.Errorf("rejected when entry %d leaves: %+v", tc.entry, got)
			}
		})
	}
}

func TestSleepingForRetryAfterIsEnoughAndASecondLessIsNot(t *testing.T) {
	seed, random := newRandom(t)
	_, s, c := start(t)
	for range 150 {
		c.advance(2 * day) // every log is empty again
		limit := Limit{1 + random.Int64N(20), time.Duration(60+random.IntN(600)) * time.Second}
		for range limit.Requests {
			admit(t, s, 1, limit)
			c.advance(time.Duration(random.Int64N(limit.Window.Microseconds()/limit.Requests)) * time.Microsecond)
		}
		limit.Requests = 1 + random.Int64N(limit.Requests) // lowered, or as it was
		rejected := check(t, s, limit)
		if rejected.Allowed {
			t.Fatalf("seed %d: %v is full, but admits: %+v", seed, limit, rejected)
		}
		c.advance(rejected.RetryAfter - time.Second)
		if got := check(t, s, limit); got.Allowed && rejected.RetryAfter > time.Second {
			t.Fatalf("seed %d: %v: told to wait %v, but a second less was enough", seed, limit, rejected.RetryAfter)
		}
		c.advance(time.Second)
		if got := check(t, s, limit); !got.Allowed {
			t.Fatalf("seed %d: %v: rejected after having waited %v: %+v", seed, limit, rejected.RetryAfter, got)
		}
	}
}

func TestRaisedLimitHoldsAtOnce(t *testing.T) {
	_, s, _ := start(t)
	free, pro := Limit{5, time.Minute}, Limit{60, time.Minute}
	admit(t, s, 5, free)
	if got := check(t, s, free); got.Allowed {
		t.Fatalf("the log is full: %+v", got)
	}
	if got, want := check(t, s, pro), (verdict{Allowed: true, Limit: pro, Remaining: 54}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestChangedLimitChangesNoKeyAndForgetsNoUsage(t *testing.T) {
	server, s, _ := start(t)
	tiers := []struct {
		name    string
		limits  []Limit
		allowed bool
	}{
		{"free", []Limit{{5, time.Minute}, {100, day}}, true},
		{"pro", []Limit{{60, time.Minute}, {5000, day}}, true},
		{"enterprise", []Limit{{600, time.Minute}, {100_000, day}}, true},
		{"pro", []Limit{{60, time.Minute}, {5000, day}}, true},
		{"free", []Limit{{5, time.Minute}, {100, day}}, true}, // the fifth
		{"free", []Limit{{5, time.Minute}, {100, day}}, false},
	}
	for i, tier := range tiers {
		d := check(t, s, tier.limits...)
		if d.Allowed != tier.allowed {
			t.Errorf("request %d, %s: got %+v, want allowed %v", i+1, tier.name, d, tier.allowed)
		}
		if want := max(0, tier.limits[0].Requests-int64(i)-1); d.Remaining != want {
			t.Errorf("request %d, %s: got %+v, want %d remaining", i+1, tier.name, d, want)
		}
		if diff := cmp.Diff([]string{"ratelimit:user_8421:60", "ratelimit:user_8421:86400"}, keys(t, server)); diff != "" {
			t.Errorf("request %d, %s: keys: -want +got:\n%s", i+1, tier.name, diff)
		}
	}
}

// newRandom returns a random source and its seed, for the message of a failure.
func newRandom(t testing.TB) (seed uint64, random *rand.Rand) {
	t.Helper()
	seed = *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to repeat this: go test -run '^%s$' ./pkg/limiter -seed %d", t.Name(), seed)
		}
	})
	return seed, rand.New(rand.NewPCG(seed, 0))
}
