// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/internal/tierfile"
)

// serveLocal runs without a cluster: the tiers come from files and, unless a Redis is given, the
// log is kept in this process.
func serveLocal(ctx context.Context, o options, log logr.Logger) error {
	var tiers tier.Table
	source, err := tierfile.NewSource(o.tiersDir, &tiers, log.WithName("tiers"))
	if err != nil {
		return err
	}
	if err := source.Load(); err != nil {
		return fmt.Errorf("--tiers: %w", err)
	}

	group, ctx := errgroup.WithContext(ctx)
	client, err := localStore(ctx, group, o, log)
	if err != nil {
		return err
	}
	defer client.Close()
	servers, replica, err := newServers(ctx, o, &tiers, client, log)
	if err != nil {
		return err
	}
	if servers, err = withMetrics(o, servers); err != nil {
		return err
	}
	if servers, err = withAdmin(o, servers, replica, log); err != nil {
		return err
	}
	for _, server := range servers {
		group.Go(func() error { return server.Start(logr.NewContext(ctx, log)) })
	}
	group.Go(func() error { return source.Start(ctx) })
	log.Info("answering checks", "version", version(), "address", replica.address.String())
	logInForce(ctx, o, &tiers, log)
	return group.Wait()
}

// localStore returns a client for the Redis that was asked for or else for the embedded store.
func localStore(ctx context.Context, group *errgroup.Group, o options, log logr.Logger) (redis.UniversalClient, error) {
	if o.redisURL != "" {
		client, err := redisClient(o)
		if err != nil {
			return nil, err
		}
		group.Go(func() error {
			lookAtRedis(ctx, o, client, log)
			return nil
		})
		return client, nil
	}
	store := miniredis.NewMiniRedis()
	if err := store.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("starting the embedded store: %w", err)
	}
	warn(log, "NO REDIS GIVEN: the log is kept in the memory of this process, is lost when it ends and is not shared with others; "+
		"for anything but a trial set "+envRedisURL)
	group.Go(func() error {
		expireKeys(ctx, store)
		return nil
	})
	o.redisURL = "redis://" + store.Addr()
	return redisClient(o)
}

// expireInterval is how often keys of the embedded store expire.
const expireInterval = 100 * time.Millisecond

// expireKeys lets time pass in the embedded store, which does not do so by itself, until ctx ends.
// The store is not closed then, because the last checks may still need it.
func expireKeys(ctx context.Context, store *miniredis.Miniredis) {
	ticker := time.NewTicker(expireInterval)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			store.FastForward(now.Sub(last))
			last = now
		}
	}
}
