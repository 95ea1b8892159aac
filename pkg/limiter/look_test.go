// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLookAllSaysWhatCheckAllWouldAndWritesNothing(t *testing.T) {
	server, s, c := start(t)
	minute, aDay := Limit{2, time.Minute}, Limit{3, day}
	look := func() Decision {
		t.Helper()
		var d Decision
		before := changes(t, server)
		calls := commands(t, server, func() {
			var err error
			if d, err = s.LookAll(context.Background(), Subject{User: user}, minute, aDay); err != nil {
				t.Fatal(err)
			}
		})
		if after := changes(t, server); after != before {
			t.Errorf("looking changed data: %s changes before, %s after", before, after)
		}
		for _, write := range []string{"zadd", "expire", "unlink", "zremrangebyrank"} {
			if calls[write] > 0 {
				t.Errorf("looking called %s", write)
			}
		}
		return d
	}
	steps := []struct {
		reason  string
		advance time.Duration
		admit   int
		want    Decision
	}{
		{"an empty log has room", 0, 0, Decision{Allowed: true, Limit: minute, Remaining: 2, Usage: []Usage{{Limit: minute, Remaining: 2}, {Limit: aDay, Remaining: 3}}}},
		{"one has been charged", 0, 1, Decision{Allowed: true, Limit: minute, Remaining: 1, Usage: []Usage{{Limit: minute, Remaining: 1}, {Limit: aDay, Remaining: 2}}}},
		{"the minute is full", time.Second, 1, Decision{Limit: minute, RetryAfter: 59 * time.Second, Wait: 59 * time.Second}},
		{"the wait is that of the oldest entry", 30 * time.Second, 0, Decision{Limit: minute, RetryAfter: 29 * time.Second, Wait: 29 * time.Second}},
		{"what has left does not count, also before it is removed", time.Minute, 0, Decision{Allowed: true, Limit: aDay, Remaining: 1, Usage: []Usage{{Limit: minute, Remaining: 2}, {Limit: aDay, Remaining: 1}}}},
		{"the day is full", 0, 1, Decision{Limit: aDay, RetryAfter: day - 91*time.Second, Wait: day - 91*time.Second}},
	}
	for _, step := range steps {
		c.advance(step.advance)
		admit(t, s, step.admit, minute, aDay)
		if diff := cmp.Diff(step.want, look()); diff != "" {
			t.Fatalf("%s: -want +got:\n%s", step.reason, diff)
		}
	}
}
