// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// checkServer returns the server of the check endpoint, bound to its address. It runs on every
// replica.
func checkServer(o options, tiers *tier.Table, client redis.Scripter, log logr.Logger) (*manager.Server, error) {
	window, err := limiter.NewSlidingWindow(client, limiter.Options{Timeout: o.redisTimeout})
	if err != nil {
		return nil, err
	}
	return listen("check", "bind-address", o.bindAddress, webhookserver.NewHandler(webhookserver.Options{
		Tiers:       tiers,
		Limiter:     window,
		DefaultTier: o.defaultTier,
		Disabled:    o.disabled,
		Metrics:     webhookserver.NewMetrics(ctrlmetrics.Registry, tiers, o.disabled),
		Log:         log.WithName("check"),
	}))
}

// listen returns a server for a handler, bound to the address that a flag gives.
func listen(name, flag, address string, handler http.Handler) (*manager.Server, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return &manager.Server{
		Name:            name,
		Server:          webhookserver.NewHTTPServer(handler),
		Listener:        listener,
		ShutdownTimeout: ptr.To(webhookserver.ShutdownTimeout),
	}, nil
}

// tiersLoaded is the readiness check. It does not depend on Redis: when Redis is away each tier's
// failurePolicy decides, and the ingress must not lose every replica at once.
func tiersLoaded(tiers *tier.Table) healthz.Checker {
	return func(*http.Request) error {
		if !tiers.Ready() {
			return errors.New("the tiers have not been loaded yet")
		}
		return nil
	}
}

// redisClient returns the client for --redis-url. The error does not contain the URL.
func redisClient(o options) (*redis.Client, error) {
	client, err := limiter.NewClient(o.redisURL)
	if err != nil {
		return nil, fmt.Errorf("--redis-url (or %s): %w", envRedisURL, err)
	}
	return client, nil
}
