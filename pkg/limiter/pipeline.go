// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxFlights is how many batches may be on their way to one server before calls wait for the
	// next. One would leave the connection idle while a batch is decoded; more make batches small.
	maxFlights = 2
	// maxBatch bounds the calls of one batch, and so how long Redis works on it without a look at
	// others: a call takes it 10 to 20 us.
	maxBatch = 128
	// lateAfter is when a batch counts as late. Calls do not wait for it any longer: the next batch
	// takes another connection.
	lateAfter = 25 * time.Millisecond
)

// pipeline sends calls to one Redis server, those that come while others are on their way together
// in one round trip. A call that comes alone is sent at once.
//
// This is what go-redis's AutoPipeline is for. Ours exists for the deadlines: each call has its own,
// which ends the wait whatever the server does, and a batch that is late holds up nobody else.
type pipeline struct {
	client  *redis.Client
	retries bool          // the client repeats calls by itself
	first   time.Duration // for the first attempt

	mu      sync.Mutex
	waiting []*passenger
	flights int // batches on their way that are not late
}

// attempts is how often a call is sent at the most. A repeat is harmless, since a script knows a
// member that it has seen, and takes another connection.
const attempts = 4

const (
	// firstAttempt is the part of a check's timeout after which a call is sent again although its
	// connection has not broken: a firewall may have dropped it without a word. The second has the
	// rest, so that a server that is merely slow is heard.
	firstAttempt = 2
	// minAttempt is the shortest time for the first.
	minAttempt = 20 * time.Millisecond
	// backoff is how long to wait before the first repeat, and half as long as before the second.
	backoff = 8 * time.Millisecond
)

// newPipeline returns a pipeline for checks with a timeout.
func newPipeline(client *redis.Client, timeout time.Duration) *pipeline {
	return &pipeline{client: client, retries: client.Options().MaxRetries > 0, first: max(timeout/firstAttempt, minAttempt)}
}

// passenger is a call and whoever waits for it.
type passenger struct {
	*call
	ctx   context.Context //nolint:containedctx // it is the call's, and ends with it
	sent  int             // how often
	load  bool            // the server does not have the script
	reply any
	err   error
	done  chan struct{} // closed when reply and err are there
}

// do executes a call. When ctx ends first its error is returned; Redis may still execute the call.
func (p *pipeline) do(ctx context.Context, c *call) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	me := &passenger{call: c, ctx: ctx, done: make(chan struct{})}
	p.mu.Lock()
	free := p.flights < maxFlights // then nobody waits
	if free {
		p.flights++
	} else {
		p.waiting = append(p.waiting, me)
	}
	p.mu.Unlock()
	switch {
	case free && patient(ctx): // without another goroutine, but for those that come meanwhile
		f := &flight{}
		p.leg(f, []*passenger{me})
		if batch := p.next(f); len(batch) > 0 {
			go p.fly(f, batch)
		}
	case free:
		go p.fly(&flight{}, []*passenger{me})
	}
	select {
	case <-me.done:
		return me.reply, me.err
	case <-ctx.Done():
	}
	select {
	case <-me.done: // both at once: what is charged is not to be an error
		return me.reply, me.err
	default:
		return nil, ctx.Err()
	}
}

// patient returns whether a caller does not leave before the timeout, so that it can wait for a
// connection, which obeys deadlines but not cancellation.
func patient(ctx context.Context) bool {
	its, ok := ctx.Value(caller{}).(context.Context)
	return ok && its.Done() == nil
}

// flight sends one batch after another while calls wait. Its fields are guarded by the pipeline.
type flight struct {
	legs int  // so many batches have come back
	over bool // it does not count in flights any more
}

func (p *pipeline) fly(f *flight, batch []*passenger) {
	for len(batch) > 0 {
		p.leg(f, batch)
		batch = p.next(f)
	}
}

// leg sends one batch.
func (p *pipeline) leg(f *flight, batch []*passenger) {
	legs := f.legs // only this goroutine changes it
	alarm := time.AfterFunc(lateAfter, func() { p.isLate(f, legs) })
	defer alarm.Stop()
	p.send(batch)
}

// next returns the batch that a flight goes on with, or nothing when it is over.
func (p *pipeline) next(f *flight) []*passenger {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.legs++
	if f.over {
		return nil
	}
	batch := p.nextBatch()
	if len(batch) == 0 {
		f.over = true
		p.flights--
	}
	return batch
}

// isLate lets others fly while a leg of a flight has not come back.
func (p *pipeline) isLate(f *flight, legs int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.over || f.legs != legs { // the alarm was late itself
		return
	}
	f.over = true
	batch := p.nextBatch()
	if len(batch) == 0 {
		p.flights--
		return
	}
	go p.fly(&flight{}, batch)
}

// nextBatch takes the calls that have waited longest and whose callers still wait for them. The
// mutex is held.
func (p *pipeline) nextBatch() []*passenger {
	var batch []*passenger
	for i, c := range p.waiting {
		if len(batch) == maxBatch {
			left := copy(p.waiting, p.waiting[i:])
			clear(p.waiting[left:])
			p.waiting = p.waiting[:left]
			return batch
		}
		if c.ctx.Err() == nil {
			batch = append(batch, c)
		}
	}
	clear(p.waiting)
	p.waiting = p.waiting[:0]
	return batch
}

// send executes a batch, repeats what deserves it, and tells the callers.
func (p *pipeline) send(batch []*passenger) {
	deadline := latestDeadline(batch)
	first := time.Now().Add(p.first)
	if deadline.Before(first) {
		first = deadline
	}
	batch = p.execute(first, batch)
	for i := range attempts + 1 { // one of them because the script was missing
		if len(batch) == 0 {
			return
		}
		if !batch[0].load {
			if pause := backoff << i; time.Until(deadline) > pause {
				time.Sleep(pause)
			} else {
				break
			}
		}
		batch = p.execute(deadline, batch)
	}
	for _, c := range batch {
		close(c.done)
	}
}

// execute sends a batch in one piece, and returns what is to be sent again. The others are done.
func (p *pipeline) execute(deadline time.Time, batch []*passenger) (again []*passenger) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	pipe := p.client.Pipeline()
	commands := make([]*redis.Cmd, len(batch))
	var loaded *script
	for i, c := range batch {
		c.again = c.again || c.sent > 0 || p.retries
		commands[i] = redis.NewCmd(ctx, c.command(c.load && loaded != c.script)...)
		if c.load {
			loaded = c.script // also for those behind it
		}
		_ = pipe.Process(ctx, commands[i]) // only queues
		c.sent++
	}
	_, err := pipe.Exec(ctx)
	for i, c := range batch {
		c.reply, c.err = commands[i].Result()
		if c.reply == nil && c.err == nil {
			c.err = cmp.Or(err, errNoReply) // there was no connection, because of a wrong password for instance
		}
		if c.toRepeat() {
			again = append(again, c)
			continue
		}
		close(c.done)
	}
	return again
}

// errNoReply is the error for a call about which the client says nothing.
var errNoReply = errors.New("the client sent nothing to Redis")

// toRepeat returns whether to send a call again, and how.
func (c *passenger) toRepeat() bool {
	switch {
	case c.err == nil || c.ctx.Err() != nil || c.sent > attempts:
		return false
	case redis.HasErrorPrefix(c.err, "NOSCRIPT"):
		// A server that has lost the script, by SCRIPT FLUSH, restart or failover, gets it again.
		c.load = true
		return true
	case !isReply(c.err): // no connection, or it broke
		return c.sent < attempts
	}
	return false
}

// latestDeadline is when the last caller of a batch stops waiting.
func latestDeadline(batch []*passenger) time.Time {
	var latest time.Time
	for _, c := range batch {
		if deadline, _ := c.ctx.Deadline(); deadline.After(latest) {
			latest = deadline
		}
	}
	return latest
}
