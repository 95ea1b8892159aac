// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tierlimit/tierlimit/hack/bench/contenders"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

const day = 24 * time.Hour

// oneWindow is the limit of logs that are filled to measure something else.
var oneWindow = limiter.Limit{Requests: limiter.MaxRequests, Window: day}

// footprint is what logs take in Redis.
type footprint struct {
	name     string
	requests int     // of each user
	logs     int     // of each user; 0 when there is no entry for each request
	perUser  float64 // bytes
	usage    int64   // MEMORY USAGE of one key
	encoding string  // OBJECT ENCODING of one key
}

func (f footprint) perEntry() float64 { return f.perUser / float64(f.requests*f.logs) }

// logSizes are entries of a log, and how many users have one.
var logSizes = []struct{ entries, users int }{{5, 4000}, {60, 400}, {600, 40}, {5_000, 5}, {100_000, 1}}

// memory fills logs of several sizes, as pkg/limiter does and with members of 36 characters.
func (b *bench) memory(ctx context.Context) (ours, uuids []footprint, err error) {
	engine, err := contenders.New(ctx, "limiter", b.config())
	if err != nil {
		return nil, nil, err
	}
	for _, size := range logSizes {
		f := footprint{name: "pkg/limiter", requests: size.entries, logs: 1}
		fill := func() error { return fillByChecks(ctx, engine, size.users, size.entries) }
		if err := b.weigh(ctx, &f, size.users, fill); err != nil {
			return nil, nil, err
		}
		ours = append(ours, f)
		f = footprint{name: "36 characters", requests: size.entries, logs: 1}
		fill = func() error {
			for i := range size.users {
				key := limiter.Subject{User: userName(i)}.Key(oneWindow.Window)
				if err := fillLog(ctx, b.redis.client, key, uuid.NewString, time.Now(), size.entries); err != nil {
					return err
				}
			}
			return nil
		}
		if err := b.weigh(ctx, &f, size.users, fill); err != nil {
			return nil, nil, err
		}
		uuids = append(uuids, f)
		b.say("memory      %6d entries: %.0f bytes each, with 36 characters %.0f", size.entries, ours[len(ours)-1].perEntry(), f.perEntry())
	}
	return ours, uuids, nil
}

// contenderMemory lets each contender admit a number of requests of each user, over HTTP.
func (b *bench) contenderMemory(ctx context.Context) ([]footprint, error) {
	var results []footprint
	for _, c := range []struct {
		name string
		logs int
	}{{"tierlimit", 2}, {"naive", 2}, {"redis_rate", 0}, {"ulule", 0}} {
		s, err := b.serve(ctx, find(c.name), b.redis)
		if err != nil {
			return nil, err
		}
		defer s.stop()
		for _, size := range []struct {
			tier            string
			requests, users int
		}{{contenders.Free, 5, 1000}, {contenders.Enterprise, 600, 20}} {
			f := footprint{name: c.name, requests: size.requests, logs: c.logs}
			paths := make([]string, size.users*size.requests)
			for i := range paths {
				paths[i] = askFor(size.tier, userName(i%size.users))
			}
			fill := func() error { return touch(ctx, s.addr, paths) }
			if err := b.weigh(ctx, &f, size.users, fill); err != nil {
				return nil, err
			}
			results = append(results, f)
		}
		b.say("memory      %s", c.name)
	}
	return results, nil
}

// weigh notes what filling an empty Redis adds to its memory.
func (b *bench) weigh(ctx context.Context, f *footprint, users int, fill func() error) error {
	if err := b.redis.empty(ctx); err != nil {
		return err
	}
	before, err := b.redis.memory(ctx)
	if err != nil {
		return err
	}
	if err := fill(); err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond) // until tables that grew are no longer there twice
	after, err := b.redis.memory(ctx)
	if err != nil {
		return err
	}
	f.perUser = float64(after-before) / float64(users)
	key, err := b.redis.client.RandomKey(ctx).Result()
	if err != nil {
		return fmt.Errorf("filling has left no key: %w", err)
	}
	if f.usage, err = b.redis.client.MemoryUsage(ctx, key, 0).Result(); err != nil {
		return err
	}
	f.encoding, err = b.redis.client.ObjectEncoding(ctx, key).Result()
	return err
}

func userName(i int) string { return "user_" + strconv.Itoa(100_000+i) }

// fillByChecks fills logs of one window up to their limit. All checks must be admitted.
func fillByChecks(ctx context.Context, engine contenders.Engine, users, entries int) error {
	const callers = 64
	group, ctx := errgroup.WithContext(ctx)
	for caller := range callers {
		group.Go(func() error {
			for i := caller; i < users*entries; i += callers {
				verdict, err := engine.Check(ctx, userName(i%users), []limiter.Limit{{Requests: int64(entries), Window: oneWindow.Window}})
				if err == nil && !verdict.Allowed {
					err = fmt.Errorf("check %d was not admitted", i)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// fillLog writes entries into a log without a check, a microsecond apart and ending at a time.
func fillLog(ctx context.Context, client *redis.Client, key string, member func() string, end time.Time, entries int) error {
	const atOnce = 1000
	for start := 0; start < entries; start += atOnce {
		var members []redis.Z
		for i := start; i < min(start+atOnce, entries); i++ {
			members = append(members, redis.Z{Score: float64(end.UnixMicro() - int64(entries-i)), Member: member()})
		}
		if err := client.ZAdd(ctx, key, members...).Err(); err != nil {
			return err
		}
	}
	return client.Expire(ctx, key, oneWindow.Window).Err()
}
