// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage remembers in this process who makes how many requests: the heaviest users of the last
// minute, what was decided by tier, and a sample of the users of the last day. Its memory is bounded
// whatever clients send, and a check waits only for checks of the few users that share its part.
//
// There are 16 parts (shards), by a hash of the subject. Each counts the 128 heaviest of its users in each
// 5 seconds of the last minute and keeps 2,048 users of the last day, thinned out when there are more. All
// together take 6 MiB when they are full, and 18 MiB if every name is as long as one can be. Subjects
// with a part of more than 128 bytes, or of more than 252 bytes in all, are counted by outcome only.
package usage

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
)

const (
	shardBits = 4
	shards    = 1 << shardBits

	// window is what Top looks back over, and partLength how often a part of it ends.
	window     = time.Minute
	partLength = 5 * time.Second
	parts      = int64(window / partLength)
)

// Options configures a Usage.
type Options struct {
	// Tiers are the tiers in force.
	Tiers *tier.Table
	// Disabled is the global kill switch.
	Disabled bool
	// Replica is the name of this replica. Example: "tierlimit-5d9c7b8f6-x2lqk".
	Replica string
	// HashKey is the secret by which users are sampled, the same on all replicas. Without one, clients
	// who can choose their names can choose whether they are in the sample of a large tier.
	HashKey []byte
}

// Usage is told of every check, and knows who makes how many requests. It is safe for concurrent use.
type Usage struct {
	options Options
	tiers   tierStates
	hasher  hasher
	spread  uint64 // odd; only this process knows it, so that nobody chooses who shares a shard or a list
	started time.Time
	shards  [shards]shard
	now     func() time.Time
}

// shard is what is known of some of the users.
type shard struct {
	sync.Mutex
	parts  [parts]part
	sample sample
	_      [64]byte // the next one's lock is in another cache line
}

// New returns a Usage that knows of no checks yet.
func New(options Options) *Usage { return newAt(options, time.Now) }

func newAt(options Options, now func() time.Time) *Usage {
	u := &Usage{
		options: options,
		hasher:  newHasher(options.HashKey),
		spread:  rand.Uint64() | 1, //nolint:gosec // G404: nobody sees what would tell it
		started: now(),
		now:     now,
	}
	u.tiers.table = options.Tiers
	u.tiers.known.Store(&map[string]*tierState{})
	u.tiers.refresh(u.started)
	for i := range u.shards {
		for j := range u.shards[i].parts {
			u.shards[i].parts[j].reset(-1)
		}
		u.shards[i].sample.states = &u.tiers
		u.shards[i].sample.index()
	}
	return u
}

// Record implements webhookserver.Recorder. It allocates nothing once its memory has grown.
func (u *Usage) Record(d webhookserver.Decided) {
	outcome, known := outcomes[d.Outcome]
	if !known {
		return
	}
	t := u.tiers.of(d.Tier, d.At)
	if d.Tier == "" || d.Subject.User == "" {
		t.count(uint64(d.At.Nanosecond()), outcome) //nolint:gosec // G115: not negative
		return
	}
	var buffer [maxName]byte
	name, short := appendName(buffer[:0], d.Subject)
	if !short {
		t.count(uint64(d.At.Nanosecond()), outcome) //nolint:gosec // G115: not negative
		return
	}
	hash := u.hasher.sum(name)
	t.count(hash, outcome)
	place := hash * u.spread
	i := place >> (64 - shardBits)
	place >>= 32
	age := max(d.At.Sub(u.started), 0)
	effect := effects[outcome]
	if d.Upstream && effect == tried { // it has passed, and was charged to the user
		effect = passed
	}
	s := &u.shards[i]
	s.Lock()
	defer s.Unlock()
	if effect != nothing {
		epoch := int64(age / partLength)
		p := &s.parts[epoch%parts]
		if p.epoch < epoch {
			p.reset(epoch)
		}
		p.add(hash, place, name, t, effect != passed)
	}
	s.sample.see(sighting{tier: t, shard: int(i), hash: hash, place: place, at: since(age),
		rejected: !d.Upstream && (effect == rejected || effect == tried)}, name)
}

// since is a time since the start in whole seconds, from 1 on.
func since(age time.Duration) uint32 {
	return uint32(age/time.Second) + 1 //nolint:gosec // G115: 136 years
}

// effect is what an outcome is to its user.
type effect uint8

const (
	nothing  effect = iota
	passed          // admitted, counted or not
	rejected        // 429
	tried           // it would have been 429, and has passed
)

var (
	// names are all outcomes, outcomes their places in it, and effects what each is to its user.
	names    = webhookserver.Outcomes()
	outcomes = map[string]int{}
	effects  [maxOutcomes]effect
)

func init() {
	for i, name := range names {
		outcomes[name] = i
		effects[i] = map[string]effect{
			"admitted": passed, "granted": passed, "local_admitted": passed, "disabled": passed, "failed_open": passed,
			"rejected": rejected, "local_rejected": rejected, "dry_run_rejected": tried,
		}[name]
	}
}
