// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package contenders

import (
	"context"
	_ "embed"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

//go:embed naive.lua
var naiveSource string

// NaiveScript is the script that the naive design runs once for each window.
var NaiveScript = redis.NewScript(naiveSource)

// naive is the sliding-window log as it is usually written: one script after the other, members of
// 36 characters, the clock of whoever asks, a connection for each call.
type naive struct {
	client *redis.Client
}

func newNaive(_ context.Context, config Config) (Engine, error) {
	client, err := newClient(config.RedisURL)
	return naive{client}, err
}

// Check runs the script for one limit after the other; what an earlier one has charged stays charged.
func (n naive) Check(ctx context.Context, user string, limits []limiter.Limit) (Verdict, error) {
	verdict := Verdict{Allowed: true}
	member, now := uuid.NewString(), time.Now()
	for i, limit := range limits {
		key, args := NaiveCall(user, member, now, limit)
		reply, err := NaiveScript.Run(ctx, n.client, []string{key}, args...).Int64Slice()
		if err != nil {
			return Verdict{}, err
		}
		if reply[0] == 0 {
			return Verdict{RetryAfter: time.Duration(reply[1]) * time.Microsecond}, nil
		}
		if i == 0 || reply[1] < verdict.Remaining {
			verdict.Remaining = reply[1]
		}
	}
	return verdict, nil
}

// NaiveCall returns KEYS[1] and the ARGV of the naive script.
func NaiveCall(user, member string, now time.Time, limit limiter.Limit) (string, []any) {
	seconds := int64(limit.Window / time.Second)
	key := "naive:" + user + ":" + strconv.FormatInt(seconds, 10)
	return key, []any{now.UnixMicro(), limit.Window.Microseconds(), limit.Requests, member, seconds}
}
