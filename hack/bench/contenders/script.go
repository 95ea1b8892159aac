// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package contenders

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

//go:embed count_first.lua
var countFirstSource string

// CountFirstScript is a variant of the script, called in the same way.
var CountFirstScript = redis.NewScript(countFirstSource)

// timeout bounds one call of the script, as pkg/limiter does by default.
const timeout = time.Second

// ScriptCall returns the KEYS and ARGV that the head of pkg/limiter/sliding_window.lua documents,
// for a first attempt.
func ScriptCall(user, member string, limits []limiter.Limit) (keys []string, args []any) {
	subject := limiter.Subject{User: user}
	args = append(make([]any, 0, 1+2*len(limits)), member)
	for _, limit := range limits {
		keys = append(keys, subject.Key(limit.Window))
		args = append(args, limit.Requests, int64(limit.Window/time.Second)+1)
	}
	return append(keys, subject.GrantKey(false)), args
}

// scriptVerdict reads the reply that the script documents.
func scriptVerdict(reply []int64) (Verdict, error) {
	switch {
	case len(reply) < 2:
		return Verdict{}, fmt.Errorf("the script replied %v", reply)
	case reply[0] > 0:
		return Verdict{RetryAfter: time.Duration(reply[1]) * time.Microsecond}, nil
	}
	verdict := Verdict{Allowed: true, Remaining: reply[1]}
	for _, remaining := range reply[2:] {
		verdict.Remaining = min(verdict.Remaining, remaining)
	}
	return verdict, nil
}

// Members makes the members of entries, all of 8 bytes, as pkg/limiter does for large limits.
type Members struct {
	last atomic.Uint64
}

// NewMembers returns members that start at random, where those of another process have not been.
func NewMembers() *Members {
	m := &Members{}
	m.last.Store(rand.Uint64())
	return m
}

// Next returns a member that it has not returned before.
func (m *Members) Next() string {
	return string(binary.BigEndian.AppendUint64(nil, m.last.Add(1)))
}

// script runs the script of pkg/limiter by one way of calling Redis.
type script struct {
	members *Members
	run     func(ctx context.Context, keys []string, args []any) *redis.Cmd
}

// Check runs the script once.
func (s script) Check(ctx context.Context, user string, limits []limiter.Limit) (Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	keys, args := ScriptCall(user, s.members.Next(), limits)
	reply, err := s.run(ctx, keys, args).Int64Slice()
	if err != nil {
		return Verdict{}, err
	}
	return scriptVerdict(reply)
}

// proven fails unless the script admits once and rejects then: its arguments may have changed.
func (s script) proven(ctx context.Context) (Engine, error) {
	user := "proof-" + uuid.NewString()
	for _, want := range []bool{true, false} {
		verdict, err := s.Check(ctx, user, Tiers[Rejected])
		if err == nil && verdict.Allowed != want {
			err = fmt.Errorf("allowed is %v", verdict.Allowed)
		}
		if err != nil {
			return nil, fmt.Errorf("the script is not as ScriptCall believes: compare it with the head of sliding_window.lua: %w", err)
		}
	}
	return s, nil
}

// newScriptPlain takes a connection for each call. Deadlines are obeyed.
func newScriptPlain(ctx context.Context, config Config) (Engine, error) {
	options, err := redis.ParseURL(config.RedisURL)
	if err != nil {
		return nil, err
	}
	options.ContextTimeoutEnabled = true
	client, source := redis.NewClient(options), redis.NewScript(config.Script)
	run := func(ctx context.Context, keys []string, args []any) *redis.Cmd {
		return source.Run(ctx, client, keys, args...)
	}
	return script{NewMembers(), run}.proven(ctx)
}

// newScriptPipelined lets go-redis collect the calls of concurrent checks: a batch a round trip.
func newScriptPipelined(ctx context.Context, config Config) (Engine, error) {
	return newPipelined(ctx, config, redis.DefaultAutoPipelineOptions())
}

// newScriptFullDuplex lets go-redis send before the replies to what it sent earlier have come.
func newScriptFullDuplex(ctx context.Context, config Config) (Engine, error) {
	options := redis.DefaultAutoPipelineOptions()
	options.FullDuplex = true
	options.MaxFlushDelay = 250 * time.Microsecond
	return newPipelined(ctx, config, options)
}

func newPipelined(ctx context.Context, config Config, options *redis.AutoPipelineOptions) (Engine, error) {
	client, err := newClient(config.RedisURL)
	if err != nil {
		return nil, err
	}
	source := redis.NewScript(config.Script)
	if err := source.Load(ctx, client).Err(); err != nil {
		return nil, err
	}
	pipeline, err := client.AsyncAutoPipelineWithOptions(options)
	if err != nil {
		return nil, err
	}
	run := func(ctx context.Context, keys []string, args []any) *redis.Cmd {
		command := redis.NewCmd(ctx, EvalSHA(source.Hash(), keys, args)...)
		if err := pipeline.Submit(ctx, command).WaitContext(ctx); err != nil && errors.Is(err, ctx.Err()) {
			// The command may still be executing; its result must not be read.
			abandoned := redis.NewCmd(ctx)
			abandoned.SetErr(err)
			return abandoned
		}
		return command
	}
	return script{NewMembers(), run}.proven(ctx)
}

// EvalSHA returns the words of the command that runs a script.
func EvalSHA(hash string, keys []string, args []any) []any {
	command := append(make([]any, 0, 3+len(keys)+len(args)), "evalsha", hash, len(keys))
	for _, key := range keys {
		command = append(command, key)
	}
	return append(command, args...)
}
