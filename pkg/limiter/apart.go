// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// In a Redis Cluster the logs of different subjects are in different slots, and no script sees two
// of them. A request that is charged to several budgets is therefore decided in two phases:
//
//  1. One budget after the other is asked for a reservation: an entry that counts like any other,
//     but leaves by itself when a lease ends. If one is full, the reservations before it are
//     released and it is the answer.
//  2. When all have one, all reservations are turned into charges, at the same time. Only when all
//     are is the request admitted.
//
// A reservation keeps others out as a charge does, but it is no reason to reject anybody: who would be
// admitted without the reservations of others asks again until these are decided, or its timeout is
// over, and is then an error.
//
// A grant that lets a request pass is charged at once, and that is taken back if another budget is full.
// For that moment it is not there for other requests of the same user.
//
// A budget is so never exceeded: what is admitted has an entry in every log. A process that ends in
// between leaves reservations behind, which lapse; so do those whose release is lost. What remains:
// if it ends while the charges of phase 2 are on their way to different servers, one log may keep a
// charge of a request that was not answered, as on a single Redis when it ends before the answer.

// readier is a store that knows in advance that calls about a key fail at once.
type readier interface {
	ready(ctx context.Context, key string) error
}

// lease returns for how long a reservation counts that is not settled.
func (s *SlidingWindow) lease() time.Duration { return 2*s.timeout + time.Second }

// chargeApart charges budgets in different slots: all or none. If a reservation has gone before it became a
// charge, since an operator has cleared the log or taken the grant away, it begins anew, once.
func (s *SlidingWindow) chargeApart(ctx context.Context, budgets []Budget) (Decision, error) {
	d, err := s.tryApart(ctx, budgets)
	if errors.Is(err, errLapsed) && ctx.Err() == nil {
		d, err = s.tryApart(ctx, budgets)
	}
	return d, err
}

// tryApart makes one attempt. When it ends with errLapsed nothing of it is left.
func (s *SlidingWindow) tryApart(ctx context.Context, budgets []Budget) (Decision, error) {
	// A reservation keeps others out: none is made for a request that cannot be decided.
	if r, ok := s.store.(readier); ok {
		for _, b := range budgets[1:] {
			if err := r.ready(ctx, s.key(b.Subject, b.Limits[0].Window)); err != nil {
				return Decision{}, fmt.Errorf("asking Redis: %w", err)
			}
		}
	}
	member := s.members.make(budgets)
	reserved := 0
	d, err := eachApart(budgets, func(i int, b []Budget) (Decision, error) {
		reserved++
		c := s.callOf(i, member, b)
		c.reserve = true
		rest := budgets[reserved:]
		return s.run(ctx, c, b, func(ctx context.Context) (Decision, bool) { return s.fullOf(ctx, rest, reserved) })
	})
	switch {
	case errors.Is(err, ErrCircuitOpen): // the last one was not asked for
		s.releaseLater(member, budgets[:reserved-1])
		return Decision{}, err
	case err != nil: // whether the last one was reserved is not known
		s.releaseLater(member, budgets[:reserved])
		return Decision{}, err
	case !d.Allowed:
		s.releaseNow(ctx, member, budgets[:reserved-1])
		return d, nil
	}
	switch err := s.chargeReserved(ctx, member, budgets); {
	case errors.Is(err, errLapsed):
		s.releaseNow(ctx, member, budgets)
		return Decision{}, err
	case err != nil:
		s.releaseLater(member, budgets)
		return Decision{}, err
	}
	return d, nil
}

// eachApart asks about one budget after the other, and puts the answers together.
func eachApart(budgets []Budget, ask func(i int, b []Budget) (Decision, error)) (Decision, error) {
	var all Decision
	for i := range budgets {
		d, err := ask(i, budgets[i:i+1])
		if err != nil {
			return Decision{}, err
		}
		if d.Budget == 0 { // of those asked about
			d.Budget = i
		}
		if !d.Allowed {
			return d, nil
		}
		for j := range d.Usage {
			d.Usage[j].Budget = i
		}
		usage, grant := slices.Concat(all.Usage, d.Usage), all.Grant
		if i == 0 {
			grant = d.Grant
		}
		if i == 0 || d.Remaining < all.Remaining {
			all = d
		}
		all.Usage, all.Grant = usage, grant
	}
	return all, nil
}

// errLapsed is the error for a reservation that ended before it became a charge.
var errLapsed = errors.New("a reservation has gone: Redis was too slow, or the budget was cleared meanwhile")

// chargeReserved turns the reservations of all budgets into charges.
func (s *SlidingWindow) chargeReserved(ctx context.Context, member string, budgets []Budget) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, b := range budgets {
		group.Go(func() error { return s.settle(ctx, "charge", member, b) })
	}
	return group.Wait()
}

// fullOf looks whether one of the budgets that come later is full. Then there is no need to wait for
// what is undecided: the request is rejected in any case. The first of them has an index.
func (s *SlidingWindow) fullOf(ctx context.Context, later []Budget, first int) (Decision, bool) {
	for i := range later {
		b := later[i : i+1]
		if d, err := s.once(ctx, s.callOf(first+i, noMember, b), b); err == nil && !d.Allowed {
			d.Budget = first + i
			return d, true
		}
	}
	return Decision{}, false
}

// releaseNow takes back what was reserved, so that the user's next request does not meet it.
func (s *SlidingWindow) releaseNow(ctx context.Context, member string, budgets []Budget) {
	for i := range budgets {
		if s.settle(ctx, "release", member, budgets[i]) != nil {
			s.releaseLater(member, budgets[i:i+1])
		}
	}
}

// releaseLater takes back what was reserved or charged, while the caller goes on and for as long as a
// lease lasts. What it misses lapses.
func (s *SlidingWindow) releaseLater(member string, budgets []Budget) {
	if len(budgets) == 0 {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.lease())
		defer cancel()
		for _, b := range budgets {
			for s.settle(ctx, "release", member, b) != nil && wait(ctx, releaseEvery) {
				continue
			}
		}
	}()
}

// releaseEvery is how long to wait before a release is tried again.
const releaseEvery = 100 * time.Millisecond

// settle turns a reservation into a charge, or releases it.
func (s *SlidingWindow) settle(ctx context.Context, what, member string, b Budget) error {
	c := &call{script: settle, args: []any{member, what}, now: s.now()}
	var grant string
	c.keys, grant = b.Subject.appendKeys(nil, b.Limits, s.apart)
	c.keys = append(c.keys, grant)
	for _, l := range b.Limits {
		c.args = append(c.args, int64(l.Window/time.Second)+1)
	}
	reply, err := s.store.do(ctx, c)
	switch {
	case err != nil:
		return fmt.Errorf("asking Redis: %w", err)
	case reply == int64(0):
		return errLapsed
	case reply != int64(1):
		return fmt.Errorf("%w: %v", ErrReply, reply)
	}
	return nil
}
