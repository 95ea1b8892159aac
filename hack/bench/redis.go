// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisServer is a redis-server without persistence.
type redisServer struct {
	*process
	addr   string
	client *redis.Client // one connection, for looking and preparing
}

// startRedis runs a redis-server on a free port, under another program if one is given.
func startRedis(ctx context.Context, dir string, under ...string) (*redisServer, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("%w: install it with 'make setup' or your package manager", err)
	}
	addr, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(addr)
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1, ReadTimeout: time.Minute})
	argv := slices.Concat(under, []string{path, "--bind", host, "--port", port, "--save", "", "--appendonly", "no"})
	p, err := startProcess(ctx, dir, "redis-server", argv, func(pid int) error {
		var dialer net.Dialer // the client would complain in the log
		connection, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		_ = connection.Close()
		info, err := client.InfoMap(ctx, "server").Result()
		if err == nil && info["Server"]["process_id"] != strconv.Itoa(pid) {
			err = fmt.Errorf("another server has taken %s", addr)
		}
		return err
	})
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return &redisServer{process: p, addr: addr, client: client}, nil
}

func (r *redisServer) url() string { return "redis://" + r.addr }

func (r *redisServer) stop() {
	_ = r.client.Close()
	r.process.stop()
}

// empty removes all keys, and returns when their memory is free.
func (r *redisServer) empty(ctx context.Context) error {
	return r.client.Do(ctx, "flushall", "sync").Err()
}

// memory is what the server uses, in bytes, while nobody else is connected: the buffers of clients
// come and go, and are larger than a few keys. Their clients connect again.
func (r *redisServer) memory(ctx context.Context) (int64, error) {
	if err := r.client.ClientKillByFilter(ctx, "type", "normal", "skipme", "no").Err(); err != nil {
		return 0, err
	}
	info, err := r.client.InfoMap(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	used, err := strconv.ParseInt(info["Memory"]["used_memory"], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("used_memory: %w", err)
	}
	return used, nil
}

// version is the server's, as in "7.0.15".
func (r *redisServer) version(ctx context.Context) (string, error) {
	info, err := r.client.InfoMap(ctx, "server").Result()
	return info["Server"]["redis_version"], err
}

// watchCalls makes the server note the duration of every call from now on.
func (r *redisServer) watchCalls(ctx context.Context) error {
	for setting, value := range map[string]string{"slowlog-log-slower-than": "0", "slowlog-max-len": "5000"} {
		if err := r.client.ConfigSet(ctx, setting, value).Err(); err != nil {
			return err
		}
	}
	return r.client.Do(ctx, "slowlog", "reset").Err()
}

// scriptCalls are the durations of the scripts that the server has run since watchCalls, in
// microseconds, the shortest first. What a script calls is in its duration.
func (r *redisServer) scriptCalls(ctx context.Context) ([]float64, error) {
	entries, err := r.client.SlowLogGet(ctx, -1).Result()
	if err != nil {
		return nil, err
	}
	var durations []float64
	for _, entry := range entries {
		name := strings.ToLower(entry.Args[0])
		if strings.HasPrefix(name, "eval") || strings.HasPrefix(name, "fcall") {
			durations = append(durations, float64(entry.Duration.Microseconds()))
		}
	}
	if len(durations) == 0 {
		return nil, fmt.Errorf("none of the %d calls that Redis noted was a script", len(entries))
	}
	slices.Sort(durations)
	return durations, nil
}
