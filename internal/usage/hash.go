// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// hasher is SipHash-2-4 (Aumasson and Bernstein, 2012) with a key: the same for every replica that has
// the same key, and without the key nobody can choose a name by its hash.
type hasher struct{ k0, k1 uint64 }

// newHasher derives the key, so that IDENTITY_HASH_KEY is used for one thing only.
func newHasher(secret []byte) hasher {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("tierlimit usage"))
	sum := mac.Sum(nil)
	return hasher{binary.LittleEndian.Uint64(sum), binary.LittleEndian.Uint64(sum[8:])}
}

// state is that of SipHash.
type state struct{ v0, v1, v2, v3 uint64 }

func (s *state) round() {
	s.v0 += s.v1
	s.v1 = bits.RotateLeft64(s.v1, 13) ^ s.v0
	s.v0 = bits.RotateLeft64(s.v0, 32)
	s.v2 += s.v3
	s.v3 = bits.RotateLeft64(s.v3, 16) ^ s.v2
	s.v0 += s.v3
	s.v3 = bits.RotateLeft64(s.v3, 21) ^ s.v0
	s.v2 += s.v1
	s.v1 = bits.RotateLeft64(s.v1, 17) ^ s.v2
	s.v2 = bits.RotateLeft64(s.v2, 32)
}

func (s *state) word(w uint64) {
	s.v3 ^= w
	s.round()
	s.round()
	s.v0 ^= w
}

// sum returns the hash of some bytes.
func (h hasher) sum(b []byte) uint64 {
	s := state{h.k0 ^ 0x736f6d6570736575, h.k1 ^ 0x646f72616e646f6d, h.k0 ^ 0x6c7967656e657261, h.k1 ^ 0x7465646279746573}
	last := uint64(len(b)) << 56
	for ; len(b) >= 8; b = b[8:] {
		s.word(binary.LittleEndian.Uint64(b))
	}
	for i, c := range b {
		last |= uint64(c) << (8 * i)
	}
	s.word(last)
	s.v2 ^= 0xff
	for range 4 {
		s.round()
	}
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3
}
