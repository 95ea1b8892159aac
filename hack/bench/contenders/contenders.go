// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package contenders puts rate limiters that keep their state in Redis behind one and the same small
// HTTP handler, so that a comparison of them compares nothing else.
package contenders

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// Verdict is an engine's answer to one check.
type Verdict struct {
	// Allowed is whether the request may go on.
	Allowed bool
	// Remaining is how many more requests the limit that decided admits now, 0 when rejected.
	Remaining int64
	// RetryAfter is how long to wait after a rejection, as far as the engine knows it.
	RetryAfter time.Duration
}

// Engine is one rate limiter.
type Engine interface {
	// Check asks whether one more request of the user fits into every limit. It blocks for one or
	// more round trips to Redis. An error means that Redis did not decide.
	Check(ctx context.Context, user string, limits []limiter.Limit) (Verdict, error)
}

// Names of tiers that every contender knows.
const (
	// Admitted is a tier that admits whatever a run can ask for.
	Admitted = "admitted"
	// Rejected is a tier that rejects everything after a user's first request.
	Rejected = "rejected"
	// Free and Enterprise are as in Tierlimit's sample tiers.
	Free       = "free"
	Enterprise = "enterprise"
	// Short is a tier with one window that is short enough to watch several of them.
	Short = "short"
)

const day = 24 * time.Hour

// Tiers are the limits of each tier. Those with a minute and a day are tiers of Tierlimit too; the
// numbers of Admitted are the largest that it takes.
var Tiers = map[string][]limiter.Limit{
	Admitted:   {{Requests: 1_000_000, Window: time.Minute}, {Requests: 10_000_000, Window: day}},
	Rejected:   {{Requests: 1, Window: time.Minute}, {Requests: 1_000, Window: day}},
	Free:       {{Requests: 5, Window: time.Minute}, {Requests: 100, Window: day}},
	Enterprise: {{Requests: 600, Window: time.Minute}, {Requests: 100_000, Window: day}},
	Short:      {{Requests: 10, Window: 2 * time.Second}},
}

// Config is what an engine needs to start.
type Config struct {
	// RedisURL is the Redis that the engine keeps its state in. Example: "redis://127.0.0.1:6379".
	RedisURL string
	// Script is the text of pkg/limiter/sliding_window.lua.
	Script string
}

var engines = map[string]func(context.Context, Config) (Engine, error){
	"floor":                 func(context.Context, Config) (Engine, error) { return floor{}, nil },
	"limiter":               newPackage,
	"limiter-remembering":   newRemembering,
	"naive":                 newNaive,
	"redis_rate":            newRedisRate,
	"ulule":                 newUlule,
	"script":                newScriptPlain,
	"script-pipelined":      newScriptPipelined,
	"script-pipelined-full": newScriptFullDuplex,
}

// New starts the engine of a name. The error says which names there are, or what failed.
func New(ctx context.Context, name string, config Config) (Engine, error) {
	start, ok := engines[name]
	if !ok {
		return nil, fmt.Errorf("no engine is called %q; there are %s", name, strings.Join(slices.Sorted(maps.Keys(engines)), ", "))
	}
	engine, err := start(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return engine, nil
}

// floor admits everybody and asks nobody: what a check costs without the check.
type floor struct{}

// Check admits.
func (floor) Check(context.Context, string, []limiter.Limit) (Verdict, error) {
	return Verdict{Allowed: true}, nil
}

// newClient returns a go-redis client as it is by default: each call takes a connection of its own.
func newClient(redisURL string) (*redis.Client, error) {
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(options), nil
}
