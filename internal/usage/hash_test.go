// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// TestSipHash compares with the vectors of SipHash's authors.
func TestSipHash(t *testing.T) {
	h := hasher{0x0706050403020100, 0x0f0e0d0c0b0a0908}
	input := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}
	for length, want := range map[int]uint64{0: 0x726fdb47dd0e0e31, 1: 0x74f839c593dc67fd, 8: 0x93f5f5799a932462, 15: 0xa129ca6149be45e5} {
		if got := h.sum(input[:length]); got != want {
			t.Errorf("of %d bytes: %x, want %x", length, got, want)
		}
	}
}

// TestHashIsTheSameEverywhere fails if replicas of different versions would not agree.
func TestHashIsTheSameEverywhere(t *testing.T) {
	name, _ := appendName(nil, limiter.Subject{User: "alice", Tenant: "acme"})
	if got, want := idOf(newHasher([]byte("secret")).sum(name)), "fcec8521959d2eda"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if newHasher(nil).sum(name) == newHasher([]byte("secret")).sum(name) {
		t.Error("the key makes no difference")
	}
}

// TestNames has subjects that must not be taken for each other, and gets each back.
func TestNames(t *testing.T) {
	long := strings.Repeat("x", maxPart)
	seen := map[string]limiter.Subject{}
	for _, s := range []limiter.Subject{
		{User: "ab"}, {User: "a", Tenant: "b"}, {User: "a", Route: "b"}, {User: "a", Kind: "b"}, {User: "a", Tenant: "b", Route: "c"},
		{User: "a", Tenant: "bc"}, {User: long}, {User: long, Tenant: strings.Repeat("y", maxName-nameHead-maxPart)}, {User: "\x00\xff"},
	} {
		name, ok := appendName(nil, s)
		if !ok || subjectOf(string(name)) != s {
			t.Errorf("%+v: %v, read as %+v", s, ok, subjectOf(string(name)))
		}
		if other, taken := seen[string(name)]; taken {
			t.Errorf("%+v and %+v have the same name", s, other)
		}
		seen[string(name)] = s
	}
	for _, s := range []limiter.Subject{{User: long + "x"}, {User: "a", Tenant: long + "x"}, {User: "a", Route: long + "x"}, {User: long, Tenant: long}} {
		if _, ok := appendName(nil, s); ok {
			t.Errorf("%d bytes are kept", len(s.User)+len(s.Tenant)+len(s.Route))
		}
	}
}
