// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// newServers returns the servers of every replica, bound to their addresses: that of the check
// endpoint first, then that of the probes unless it is off.
func newServers(o options, tiers *tier.Table, client redis.Scripter, log logr.Logger) ([]*manager.Server, error) {
	window, err := limiter.NewSlidingWindow(client, limiter.Options{Timeout: o.redisTimeout})
	if err != nil {
		return nil, err
	}
	check, err := o.listen("check", "bind-address", o.bindAddress, webhookserver.NewHandler(webhookserver.Options{
		Tiers:       tiers,
		Limiter:     window,
		DefaultTier: o.defaultTier,
		Disabled:    o.disabled,
		Metrics:     webhookserver.NewMetrics(ctrlmetrics.Registry, tiers, o.disabled),
		Log:         log.WithName("check"),
		Draining:    func() bool { return o.ending.asked.Err() != nil },
	}))
	if err != nil || o.healthAddress == off {
		return []*manager.Server{check}, err
	}
	probes, err := o.listen("probes", "health-probe-bind-address", o.healthAddress, probes(tiers))
	return []*manager.Server{check, probes}, err
}

// listen returns a server for a handler, bound to the address that a flag gives.
func (o options) listen(name, flag, address string, handler http.Handler) (*manager.Server, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return &manager.Server{
		Name:            name,
		Server:          webhookserver.NewHTTPServer(handler),
		Listener:        newRefusingListener(listener, o.ending.refused),
		ShutdownTimeout: ptr.To(o.redisTimeout + webhookserver.ShutdownMargin),
	}, nil
}

// probes answers /healthz and /readyz. Readiness does not depend on Redis: when Redis is away each
// tier's failurePolicy decides, and the ingress must not lose every replica at once.
func probes(tiers *tier.Table) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !tiers.Ready() {
			http.Error(w, "the tiers have not been loaded yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// redisClient returns the client for --redis-url. The error does not contain the URL.
func redisClient(o options) (*redis.Client, error) {
	client, err := limiter.NewClient(o.redisURL)
	if err != nil {
		return nil, fmt.Errorf("--redis-url (or %s): %w", envRedisURL, err)
	}
	return client, nil
}

// lookAtRedis says in the log whether Redis can be used, which a wrong password should not leave
// to the first check. It only looks: whatever it finds, checks are answered.
func lookAtRedis(ctx context.Context, o options, client *redis.Client, log logr.Logger) {
	ctx, cancel := context.WithTimeout(ctx, o.redisTimeout)
	defer cancel()
	// TIME is a command that checks use, so that it is allowed to whoever may check.
	if err := client.Time(ctx).Err(); err != nil {
		log.Error(err, "Redis cannot be used yet", "address", client.Options().Addr)
		return
	}
	log.Info("Redis answers", "address", client.Options().Addr)
}
