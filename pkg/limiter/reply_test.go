// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"
)

func TestDecide(t *testing.T) {
	minute, aDay := Limit{5, time.Minute}, Limit{100, day}
	two := []Limit{minute, aDay}
	array := func(elements ...any) any { return elements }
	const second = int64(1_000_000)
	cases := map[string]struct {
		reason string
		reply  any
		limits []Limit
		want   Decision
		err    error
	}{
		"Admitted":          {"The smallest remaining counts.", array(int64(0), int64(4), int64(99)), two, Decision{Allowed: true, Limit: minute, Remaining: 4, Usage: []Usage{{Limit: minute, Remaining: 4}, {Limit: aDay, Remaining: 99}}}, nil},
		"AdmittedByTheDay":  {"Also if it is not the first.", array(int64(0), int64(4), int64(3)), two, Decision{Allowed: true, Limit: aDay, Remaining: 3, Usage: []Usage{{Limit: minute, Remaining: 4}, {Limit: aDay, Remaining: 3}}}, nil},
		"AdmittedLast":      {"None may remain.", array(int64(0), int64(0), int64(0)), two, Decision{Allowed: true, Limit: minute, Usage: []Usage{{Limit: minute, Remaining: 0}, {Limit: aDay, Remaining: 0}}}, nil},
		"AllRemaining":      {"A repeated request can find a key that an operator has cleared.", array(int64(0), int64(5), int64(100)), two, Decision{Allowed: true, Limit: minute, Remaining: 5, Usage: []Usage{{Limit: minute, Remaining: 5}, {Limit: aDay, Remaining: 100}}}, nil},
		"RejectedByMinute":  {"The wait is rounded up.", array(int64(1), second+1), two, Decision{Limit: minute, RetryAfter: 2 * time.Second, Wait: time.Second + time.Microsecond}, nil},
		"RejectedByDay":     {"A microsecond is at least a second.", array(int64(2), int64(1)), two, Decision{Limit: aDay, RetryAfter: time.Second, Wait: time.Microsecond}, nil},
		"LongestWait":       {"As long as a duration can be.", array(int64(1), maxWait), two, Decision{Limit: minute, RetryAfter: 9223372036 * time.Second, Wait: 9223372036 * time.Second}, nil},
		"Nothing":           {"No reply is no decision.", nil, two, Decision{}, ErrReply},
		"Empty":             {"Nor is an empty one.", array(), two, Decision{}, ErrReply},
		"Text":              {"Only an array is.", "OK", two, Decision{}, ErrReply},
		"Integer":           {"Only an array is.", int64(0), two, Decision{}, ErrReply},
		"Strings":           {"Only of integers.", array("0", "4", "99"), two, Decision{}, ErrReply},
		"Nested":            {"Only of integers.", array(int64(0), array(int64(4)), int64(99)), two, Decision{}, ErrReply},
		"NilElement":        {"Only of integers.", array(int64(0), nil, int64(99)), two, Decision{}, ErrReply},
		"Fraction":          {"Only of integers.", array(int64(0), 4.5, int64(99)), two, Decision{}, ErrReply},
		"OnlyTheState":      {"A state alone says too little.", array(int64(0)), two, Decision{}, ErrReply},
		"OneWindowMissing":  {"Every window has its remaining.", array(int64(0), int64(4)), two, Decision{}, ErrReply},
		"OneWindowTooMany":  {"And no other.", array(int64(0), int64(4), int64(99), int64(99)), two, Decision{}, ErrReply},
		"NegativeRemaining": {"Remaining is never negative.", array(int64(0), int64(4), int64(-1)), two, Decision{}, ErrReply},
		"TooManyRemaining":  {"Nor more than the limit.", array(int64(0), int64(6), int64(99)), two, Decision{}, ErrReply},
		"Undecided":         {"Only reservations are in the way.", array(int64(-1), second), two, Decision{}, errUndecided},
		"UndecidedNoWait":   {"They leave some time.", array(int64(-1), int64(0)), two, Decision{}, ErrReply},
		"NegativeWindow":    {"There is no such window.", array(int64(-3), second), two, Decision{}, ErrReply},
		"WindowTooHigh":     {"There is no such window.", array(int64(3), second), two, Decision{}, ErrReply},
		"NoWait":            {"A rejection has a wait.", array(int64(1), int64(0)), two, Decision{}, ErrReply},
		"NegativeWait":      {"A wait is not negative.", array(int64(1), -second), two, Decision{}, ErrReply},
		"WaitTooLong":       {"A wait must not overflow.", array(int64(1), maxWait+1), two, Decision{}, ErrReply},
		"WaitOverflows":     {"A wait must not overflow.", array(int64(1), int64(math.MaxInt64)), two, Decision{}, ErrReply},
		"RejectedAndMore":   {"A rejection has nothing else.", array(int64(1), second, int64(1)), two, Decision{}, ErrReply},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := decide(tc.reply, []Budget{{Limits: tc.limits}})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s -want +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.err, err, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("%s error: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// answering is a store that answers every call with the same reply.
type answering struct {
	reply any
	err   error
}

func (a answering) do(context.Context, *call) (any, error) { return a.reply, a.err }
func (a answering) open() bool                             { return false }

// over returns a limiter over a store.
func over(s store) *SlidingWindow {
	return &SlidingWindow{store: s, timeout: patience, members: newMembers(), denials: newDenials(0), now: func() string { return "" }}
}

func TestMalformedReplyIsToldFromAnUnreachableRedis(t *testing.T) {
	broken := errors.New("connection refused")
	cases := map[string]struct {
		reason string
		redis  answering
		want   error
		not    error
	}{
		"Nil":         {"A nil reply is malformed, not a failure of Redis.", answering{err: redis.Nil}, ErrReply, redis.Nil},
		"Text":        {"So is one that is not an array.", answering{reply: "OK"}, ErrReply, nil},
		"Unreachable": {"An error of the client is not a reply.", answering{err: broken}, broken, ErrReply},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d, err := over(tc.redis).Check(context.Background(), user, 5, time.Minute)
			if !errors.Is(err, tc.want) || tc.not != nil && errors.Is(err, tc.not) || verdictOf(d) != (verdict{}) {
				t.Errorf("%s got %+v, %v", tc.reason, d, err)
			}
		})
	}
}

// replyFrom turns any bytes into a reply: mostly integers, small and extreme, in an array.
func replyFrom(data []byte) any {
	elements := []any{}
	for len(data) >= 2 {
		value := int64(int8(data[1]))
		switch data[0] % 8 {
		case 0:
			return value
		case 1:
			elements = append(elements, nil)
		case 2:
			elements = append(elements, string(data[1]))
		case 3:
			elements = append(elements, math.MaxInt64-value)
		case 4:
			elements = append(elements, math.MinInt64+value)
		case 5:
			elements = append(elements, maxWait+value)
		default:
			elements = append(elements, value)
		}
		data = data[2:]
	}
	return elements
}

func FuzzDecide(f *testing.F) {
	f.Add([]byte{6, 0, 6, 4, 6, 9}, uint8(2))
	f.Add([]byte{6, 1, 3, 0}, uint8(1))
	f.Add([]byte{6, 2, 5, 0}, uint8(2))
	f.Add([]byte{6, 2, 4, 1}, uint8(3))
	all := []Limit{{5, time.Minute}, {20, time.Hour}, {100, day}}
	f.Fuzz(func(t *testing.T, data []byte, n uint8) {
		limits := all[:1+int(n)%len(all)]
		reply := replyFrom(data)
		d, err := decide(reply, []Budget{{Limits: limits}})
		named := false
		for _, l := range limits {
			named = named || d.Limit == l
		}
		switch {
		case err != nil:
			if !errors.Is(err, ErrReply) && !errors.Is(err, errUndecided) || verdictOf(d) != (verdict{}) {
				t.Errorf("%v: %+v, %v", reply, d, err)
			}
		case !named:
			t.Errorf("%v: %+v speaks of none of %v", reply, d, limits)
		case d.Allowed:
			if d.Remaining < 0 || d.Remaining > d.Limit.Requests || d.RetryAfter != 0 {
				t.Errorf("%v: admitted: %+v", reply, d)
			}
		case d.RetryAfter < time.Second || d.RetryAfter%time.Second != 0 || d.Remaining != 0:
			t.Errorf("%v: rejected: %+v", reply, d)
		}
	})
}
