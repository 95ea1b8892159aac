// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"encoding/base64"
	"encoding/binary"
	"sync/atomic"

	"github.com/google/uuid"
)

// members makes the sorted-set members, one per request. Members are most of a log's memory, so
// they are short: 48 bits in 8 characters, counted up from a random start. Within a process they
// are unique for 2^48 requests. Those of two processes meet only if their ranges overlap, and
// then it matters only within one user's window. They are never taken from anything that a client
// sends: a client that could choose its member would be admitted for free for ever.
type members struct {
	next atomic.Uint64
}

func newMembers() *members {
	var m members
	random := uuid.New()
	m.next.Store(binary.BigEndian.Uint64(random[:8]) >> 16) // the first 48 bits of a version 4 UUID are all random
	return &m
}

func (m *members) make() string {
	var counter [8]byte
	binary.BigEndian.PutUint64(counter[:], m.next.Add(1))
	return base64.RawURLEncoding.EncodeToString(counter[2:])
}
