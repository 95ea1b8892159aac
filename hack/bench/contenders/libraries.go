// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package contenders

import (
	"context"
	"strconv"
	"time"

	redisrate "github.com/go-redis/redis_rate/v10"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// redisRate is github.com/go-redis/redis_rate: GCRA, a call for each limit.
type redisRate struct {
	limiter *redisrate.Limiter
}

func newRedisRate(_ context.Context, config Config) (Engine, error) {
	client, err := newClient(config.RedisURL)
	return redisRate{redisrate.NewLimiter(client)}, err
}

// Check asks for one limit after the other.
func (r redisRate) Check(ctx context.Context, user string, limits []limiter.Limit) (Verdict, error) {
	verdict := Verdict{Allowed: true}
	for i, limit := range limits {
		requests := int(limit.Requests)
		result, err := r.limiter.Allow(ctx, perWindow(user, limit), redisrate.Limit{Rate: requests, Burst: requests, Period: limit.Window})
		if err != nil {
			return Verdict{}, err
		}
		if result.Allowed == 0 {
			return Verdict{RetryAfter: result.RetryAfter}, nil
		}
		if remaining := int64(result.Remaining); i == 0 || remaining < verdict.Remaining {
			verdict.Remaining = remaining
		}
	}
	return verdict, nil
}

// ululeLimiter is github.com/ulule/limiter with its Redis store: fixed windows, a call for each limit.
type ululeLimiter struct {
	store ulule.Store
}

func newUlule(_ context.Context, config Config) (Engine, error) {
	client, err := newClient(config.RedisURL)
	if err != nil {
		return nil, err
	}
	store, err := ululeredis.NewStore(client)
	return ululeLimiter{store}, err
}

// Check asks for one limit after the other.
func (u ululeLimiter) Check(ctx context.Context, user string, limits []limiter.Limit) (Verdict, error) {
	verdict := Verdict{Allowed: true}
	for i, limit := range limits {
		rate := ulule.Rate{Period: limit.Window, Limit: limit.Requests}
		result, err := ulule.New(u.store, rate).Get(ctx, perWindow(user, limit))
		if err != nil {
			return Verdict{}, err
		}
		if result.Reached {
			return Verdict{RetryAfter: time.Until(time.Unix(result.Reset, 0))}, nil
		}
		if i == 0 || result.Remaining < verdict.Remaining {
			verdict.Remaining = result.Remaining
		}
	}
	return verdict, nil
}

// perWindow is a key for one window of a user. The libraries put a prefix of their own before it.
func perWindow(user string, limit limiter.Limit) string {
	return user + ":" + strconv.FormatInt(int64(limit.Window/time.Second), 10)
}
