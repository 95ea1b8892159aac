// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"sync"
	"testing"
	"time"
)

// limitedTo returns a budget of n requests a minute and more in a day.
func limitedTo(n int64) []Budget {
	return []Budget{{Subject{User: user}, []Limit{{1, time.Minute}, {n, day}}}}
}

func TestMembersAreShortAndUnique(t *testing.T) {
	const goroutines, each = 8, 3000
	for name, tc := range map[string]struct {
		reason string
		limit  int64
		length int
	}{
		"Small":  {"Up to a limit of 1,000 five bytes tell requests apart.", shortMember, 5},
		"Larger": {"Larger logs need more.", shortMember + 1, 8},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMembers()
			made := make([][]string, goroutines)
			var wait sync.WaitGroup
			for i := range made {
				wait.Go(func() {
					for range each {
						made[i] = append(made[i], m.make(limitedTo(tc.limit)))
					}
				})
			}
			wait.Wait()
			seen := make(map[string]bool, goroutines*each)
			for _, members := range made {
				for _, member := range members {
					if len(member) != tc.length {
						t.Fatalf("%s Member %q has %d bytes, want %d", tc.reason, member, len(member), tc.length)
					}
					if seen[member] {
						t.Fatalf("%s Member %q was made twice", tc.reason, member)
					}
					seen[member] = true
				}
			}
		})
	}
}

func TestMembersOfTwoProcessesBeginApart(t *testing.T) {
	first := map[string]bool{}
	for range 1000 {
		first[newMembers().make(limitedTo(5))] = true
	}
	if len(first) != 1000 {
		t.Errorf("%d different first members of 1000 processes", len(first))
	}
}

func TestMembersGoOnAfterTheLargest(t *testing.T) {
	m := &members{}
	m.next.Store(1<<64 - 2)
	for _, want := range []string{"\xff\xff\xff\xff\xff", "\x00\x00\x00\x00\x00", "\x00\x00\x00\x00\x01"} {
		if got := m.make(limitedTo(5)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
