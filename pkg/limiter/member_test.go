// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"regexp"
	"sync"
	"testing"
)

func TestMembersAreShortAndUnique(t *testing.T) {
	const goroutines, each = 8, 3000
	m := newMembers()
	made := make([][]string, goroutines)
	var wait sync.WaitGroup
	for i := range made {
		wait.Go(func() {
			for range each {
				made[i] = append(made[i], m.make())
			}
		})
	}
	wait.Wait()
	form := regexp.MustCompile(`^[A-Za-z0-9_-]{8}$`)
	seen := make(map[string]bool, goroutines*each)
	for _, members := range made {
		for _, member := range members {
			if !form.MatchString(member) {
				t.Fatalf("member %q is not 8 characters of base64url", member)
			}
			if seen[member] {
				t.Fatalf("member %q was made twice", member)
			}
			seen[member] = true
		}
	}
}

func TestMembersOfTwoProcessesBeginApart(t *testing.T) {
	first := map[string]bool{}
	for range 1000 {
		first[newMembers().make()] = true
	}
	if len(first) != 1000 {
		t.Errorf("%d different first members of 1000 processes", len(first))
	}
}

func TestMembersGoOnAfterTheLargest(t *testing.T) {
	m := &members{}
	m.next.Store(1<<48 - 2)
	for _, want := range []string{"________", "AAAAAAAA", "AAAAAAAB"} {
		if got := m.make(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
