// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/tierlimit/tierlimit/hack/bench/contenders"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// stall is how long Redis was held up, in microseconds.
type stall struct {
	what    string
	typical float64 // the median of the runs
	worst   float64 // of all runs
	about   string
	entries int // of the log, for a usual check; else 0
}

const (
	longLog   = 100_000 // entries
	stallRuns = 3
)

// stalls measures on a Redis of its own, because it changes the settings.
func (b *bench) stalls(ctx context.Context) ([]stall, error) {
	redis, err := startRedis(ctx, b.dir)
	if err != nil {
		return nil, err
	}
	defer redis.stop()
	t := &stallTest{redis: redis, members: contenders.NewMembers(), config: contenders.Config{RedisURL: redis.url(), Script: b.script}}
	results, err := t.steady(ctx)
	if err != nil {
		return nil, err
	}
	for _, measure := range []func(context.Context) (stall, error){
		func(ctx context.Context) (stall, error) { return t.stale(ctx, "limiter", "pkg/limiter") },
		func(ctx context.Context) (stall, error) { return t.stale(ctx, "naive", "naive") },
		func(ctx context.Context) (stall, error) { return t.accessed(ctx, "no") },
		func(ctx context.Context) (stall, error) { return t.accessed(ctx, "yes") },
		func(ctx context.Context) (stall, error) { return t.expired(ctx, "no") },
		func(ctx context.Context) (stall, error) { return t.expired(ctx, "yes") },
	} {
		s, err := measure(ctx)
		if err != nil {
			return nil, err
		}
		results = append(results, s)
	}
	for _, s := range results {
		b.say("stalls      %s: %.0f us, at worst %.0f us", s.what, s.typical, s.worst)
	}
	return results, nil
}

type stallTest struct {
	redis   *redisServer
	members *contenders.Members
	config  contenders.Config
}

// stallKeys are the keys that the engines use for a user's day.
func stallKey(engine, user string) string {
	if engine == "naive" {
		key, _ := contenders.NaiveCall(user, "", time.Now(), oneWindow)
		return key
	}
	return limiter.Subject{User: user}.Key(oneWindow.Window)
}

// repeat runs one measurement several times, each on an empty Redis.
func (t *stallTest) repeat(ctx context.Context, what, about string, run func() (float64, error)) (stall, error) {
	var figures []float64
	for range stallRuns {
		if err := t.redis.empty(ctx); err != nil {
			return stall{}, err
		}
		figure, err := run()
		if err != nil {
			return stall{}, fmt.Errorf("stalls, %s: %w", what, err)
		}
		figures = append(figures, figure)
	}
	return stall{what: what, typical: median(figures), worst: slices.Max(figures), about: about}, nil
}

// checks makes checks of one user with the engine and returns how long each script took.
func (t *stallTest) checks(ctx context.Context, engine contenders.Engine, users, checks int) ([]float64, error) {
	if err := t.redis.watchCalls(ctx); err != nil {
		return nil, err
	}
	for i := range checks {
		verdict, err := engine.Check(ctx, userName(i%users), []limiter.Limit{oneWindow})
		if err != nil {
			return nil, err
		}
		if !verdict.Allowed {
			return nil, fmt.Errorf("check %d was not admitted", i)
		}
	}
	return t.redis.scriptCalls(ctx)
}

// stale is the longest check while half of a long log leaves.
func (t *stallTest) stale(ctx context.Context, engineName, name string) (stall, error) {
	engine, err := contenders.New(ctx, engineName, t.config)
	if err != nil {
		return stall{}, err
	}
	member := t.members.Next
	if engineName == "naive" {
		member = uuid.NewString
	}
	what := fmt.Sprintf("%s: the longest of 400 checks on a log of %s entries, half of them stale", name, number(longLog, 0))
	return t.repeat(ctx, what, "server's time of the script", func() (float64, error) {
		key := stallKey(engineName, userName(0))
		for _, end := range []time.Time{time.Now().Add(-oneWindow.Window - time.Hour), time.Now()} {
			if err := fillLog(ctx, t.redis.client, key, member, end, longLog/2); err != nil {
				return 0, err
			}
		}
		durations, err := t.checks(ctx, engine, 1, 400)
		if err != nil {
			return 0, err
		}
		return durations[len(durations)-1], nil
	})
}

// steady is the usual check on short logs and on a long one, in turns.
func (t *stallTest) steady(ctx context.Context) ([]stall, error) {
	engine, err := contenders.New(ctx, "limiter", t.config)
	if err != nil {
		return nil, err
	}
	sizes := []struct{ entries, users int }{{60, 100}, {longLog, 1}}
	figures := make([][]float64, len(sizes))
	for range stallRuns {
		for i, size := range sizes {
			if err := t.redis.empty(ctx); err != nil {
				return nil, err
			}
			for user := range size.users {
				if err := fillLog(ctx, t.redis.client, stallKey("", userName(user)), t.members.Next, time.Now(), size.entries); err != nil {
					return nil, err
				}
			}
			durations, err := t.checks(ctx, engine, size.users, 2000)
			if err != nil {
				return nil, err
			}
			figures[i] = append(figures[i], middling(durations))
		}
	}
	results := make([]stall, len(sizes))
	for i, size := range sizes {
		results[i] = stall{
			what:    fmt.Sprintf("pkg/limiter: the usual check on a log of %s entries, none stale", number(float64(size.entries), 0)),
			typical: median(figures[i]), worst: slices.Max(figures[i]), entries: size.entries,
			about: "server's time of the script, mean of the middle half of 2,000",
		}
	}
	return results, nil
}

// accessed is a check that finds a long log whose time to live has just passed.
func (t *stallTest) accessed(ctx context.Context, lazyfree string) (stall, error) {
	engine, err := contenders.New(ctx, "limiter", t.config)
	if err != nil {
		return stall{}, err
	}
	what := fmt.Sprintf("pkg/limiter: a check that finds a log of %s entries expired, lazyfree-lazy-expire %s", number(longLog, 0), lazyfree)
	return t.repeat(ctx, what, "server's time of the script", func() (float64, error) {
		// Seldom expiry cycles, so that the check comes first.
		if err := t.dying(ctx, lazyfree, "1", 3*time.Millisecond); err != nil {
			return 0, err
		}
		time.Sleep(6 * time.Millisecond)
		durations, err := t.checks(ctx, engine, 1, 1)
		return median(durations), err
	})
}

// expired is the expiry cycle that finds a long log whose time to live has passed.
func (t *stallTest) expired(ctx context.Context, lazyfree string) (stall, error) {
	what := fmt.Sprintf("Redis: its expiry cycle finds a log of %s entries expired, lazyfree-lazy-expire %s", number(longLog, 0), lazyfree)
	return t.repeat(ctx, what, "latency monitor, whole milliseconds; 0 is less than one", func() (float64, error) {
		if err := t.redis.client.ConfigSet(ctx, "latency-monitor-threshold", "1").Err(); err != nil {
			return 0, err
		}
		if err := t.redis.client.Do(ctx, "latency", "reset").Err(); err != nil {
			return 0, err
		}
		if err := t.dying(ctx, lazyfree, "10", 20*time.Millisecond); err != nil {
			return 0, err
		}
		for range 100 {
			time.Sleep(50 * time.Millisecond)
			if left, err := t.redis.client.DBSize(ctx).Result(); err != nil || left == 0 {
				return t.longestCycle(ctx)
			}
		}
		return 0, fmt.Errorf("the key has not expired in 5 s")
	})
}

// dying makes a log that is about to expire.
func (t *stallTest) dying(ctx context.Context, lazyfree, hz string, after time.Duration) error {
	for setting, value := range map[string]string{"lazyfree-lazy-expire": lazyfree, "hz": hz} {
		if err := t.redis.client.ConfigSet(ctx, setting, value).Err(); err != nil {
			return err
		}
	}
	key := stallKey("", userName(0))
	if err := fillLog(ctx, t.redis.client, key, t.members.Next, time.Now(), longLog); err != nil {
		return err
	}
	return t.redis.client.PExpire(ctx, key, after).Err()
}

// longestCycle is that of Redis's latency monitor, in microseconds.
func (t *stallTest) longestCycle(ctx context.Context) (float64, error) {
	events, err := t.redis.client.Do(ctx, "latency", "latest").Slice()
	if err != nil {
		return 0, err
	}
	for _, event := range events {
		fields, ok := event.([]any)
		if !ok || len(fields) < 4 || fields[0] != "expire-cycle" {
			continue
		}
		milliseconds, err := strconv.ParseFloat(fmt.Sprint(fields[3]), 64)
		return milliseconds * 1000, err
	}
	return 0, nil
}
