// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A budget of the user and one that all users share.
func TestBudgetsAreDecidedTogether(t *testing.T) {
	server, s, c := start(t)
	everybody := Subject{User: "gpt-4o", Kind: "upstream"}
	minute, shared, sharedDay := Limit{2, time.Minute}, Limit{3, time.Minute}, Limit{5, day}
	for i, step := range []struct {
		reason  string
		user    string
		advance time.Duration
		want    Decision
	}{
		{"Both are charged; the user's is the closest to exhaustion.", "a", 0, Decision{Allowed: true, Limit: minute, Remaining: 1,
			Usage: []Usage{{minute, 0, 1}, {shared, 1, 2}, {sharedDay, 1, 4}}}},
		{"Of equals the first is named.", "b", time.Second, Decision{Allowed: true, Limit: minute, Remaining: 1,
			Usage: []Usage{{minute, 0, 1}, {shared, 1, 1}, {sharedDay, 1, 3}}}},
		{"The user's last, and the last of all.", "a", time.Second, Decision{Allowed: true, Limit: minute,
			Usage: []Usage{{minute, 0, 0}, {shared, 1, 0}, {sharedDay, 1, 2}}}},
		{"When both are full the answer is the user's.", "a", time.Second, Decision{Limit: minute,
			RetryAfter: 57 * time.Second, Wait: 57 * time.Second}},
		{"A user with room meets the shared limit.", "b", time.Second, Decision{Limit: shared, Budget: 1,
			RetryAfter: 56 * time.Second, Wait: 56 * time.Second}},
		{"The rejection by the shared limit was not charged to the user.", "b", 56 * time.Second, Decision{Allowed: true, Limit: shared, Budget: 1,
			Usage: []Usage{{minute, 0, 0}, {shared, 1, 0}, {sharedDay, 1, 1}}}},
		{"Longer windows of the shared budget count too.", "c", time.Minute, Decision{Allowed: true, Limit: sharedDay, Budget: 1,
			Usage: []Usage{{minute, 0, 1}, {shared, 1, 2}, {sharedDay, 1, 0}}}},
		{"And reject.", "d", time.Minute, Decision{Limit: sharedDay, Budget: 1,
			RetryAfter: day - 3*time.Minute, Wait: day - 3*time.Minute}},
	} {
		c.advance(step.advance)
		got, err := s.CheckBudgets(context.Background(),
			Budget{Subject{User: step.user}, []Limit{minute}}, Budget{everybody, []Limit{sharedDay, shared}})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Fatalf("step %d: %s -want +got:\n%s", i, step.reason, diff)
		}
	}
	if got := card(t, server, Subject{User: "d"}.Key(time.Minute)); got != 0 {
		t.Errorf("a request that the shared limit rejected has %d entries, want none", got)
	}
}

func TestBudgetOfZeroIsNamed(t *testing.T) {
	_, s, _ := start(t)
	got, err := s.CheckBudgets(context.Background(),
		Budget{Subject{User: user}, []Limit{{5, time.Minute}}}, Budget{Subject{User: "x", Kind: "upstream"}, []Limit{{0, day}}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Decision{Limit: Limit{0, day}, Budget: 1}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestInvalidBudgets(t *testing.T) {
	_, s, _ := start(t)
	ok := Budget{Subject{User: user}, []Limit{{5, time.Minute}}}
	for name, budgets := range map[string][]Budget{
		"None":        nil,
		"SubjectTwo":  {ok, {ok.Subject, []Limit{{100, day}}}},
		"SecondIsBad": {ok, {Subject{User: "b"}, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			if d, err := s.CheckBudgets(context.Background(), budgets...); !errors.Is(err, ErrInvalid) {
				t.Errorf("got %+v, %v", d, err)
			}
		})
	}
}
