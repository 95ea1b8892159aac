// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

// unknownMaster is a hook for a client that asks Sentinels. A Sentinel that does not know the master
// replies nil, and go-redis wraps that into the error of the connection. A check must not take it for
// the reply of the script: nobody has decided.
type unknownMaster struct{}

// DialHook implements redis.Hook.
func (unknownMaster) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if errors.Is(err, redis.Nil) {
			return nil, errors.New("the Sentinels know no master of the name in the URL, or cannot be reached: " + err.Error())
		}
		return conn, err
	}
}

// ProcessHook implements redis.Hook.
func (unknownMaster) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (unknownMaster) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
