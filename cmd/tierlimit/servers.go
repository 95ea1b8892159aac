// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tierlimit/tierlimit/internal/controller"
	"github.com/tierlimit/tierlimit/internal/tier"
	users "github.com/tierlimit/tierlimit/internal/usage"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// replica is what answers checks in this process.
type replica struct {
	checks  *webhookserver.Handler
	window  *limiter.SlidingWindow
	usage   *users.Usage
	address net.Addr // of the check endpoint
}

// newServers returns the servers of every replica, bound to their addresses, and what answers checks.
func newServers(ctx context.Context, o options, tiers *tier.Table, client redis.UniversalClient, log logr.Logger) ([]manager.Runnable, replica, error) {
	r, err := newReplica(ctx, o, tiers, client, log)
	if err != nil {
		return nil, replica{}, err
	}
	handler := r.checks
	check, err := o.listen("check", "bind-address", o.bindAddress, handler)
	if err != nil {
		return nil, replica{}, err
	}
	servers := []manager.Runnable{check}
	if o.healthAddress != off {
		probes, err := o.listen("probes", "health-probe-bind-address", o.healthAddress, o.probes(tiers))
		if err != nil {
			return nil, replica{}, err
		}
		servers = append(servers, probes)
	}
	if o.grpcAddress != off {
		server, err := o.listenGRPC(handler, log)
		if err != nil {
			return nil, replica{}, err
		}
		servers = append(servers, server)
	}
	for _, backend := range o.errorBackends {
		address, query, _ := strings.Cut(backend, "?")
		handler, err := handler.ErrorBackend(query)
		if err != nil {
			return nil, replica{}, fmt.Errorf("--error-backend is %q: %w", backend, err)
		}
		server, err := o.listen("error backend", "error-backend", address, handler)
		if err != nil {
			return nil, replica{}, err
		}
		servers = append(servers, server)
	}
	r.address = check.Listener.Addr()
	return servers, r, nil
}

// newReplica returns what answers checks, without an address yet.
func newReplica(ctx context.Context, o options, tiers *tier.Table, client redis.UniversalClient, log logr.Logger) (replica, error) {
	window, err := limiter.NewSlidingWindow(client, limiter.Options{Timeout: o.redisTimeout, DenyMemory: o.denyMemory})
	if err != nil {
		return replica{}, err
	}
	sources, auth, err := o.identity.build(ctx, log)
	if err != nil {
		return replica{}, err
	}
	webhookserver.RegisterCircuit(ctrlmetrics.Registry, window.CircuitOpen)
	built := readVersion()
	webhookserver.RegisterBuildInfo(ctrlmetrics.Registry, built.Version, built.Revision)
	usage := o.newUsage(tiers)
	checks := webhookserver.NewHandler(webhookserver.Options{
		Tiers:       tiers,
		Limiter:     window,
		Timeout:     o.redisTimeout,
		Replicas:    o.replicas.Load,
		Identity:    sources,
		Auth:        auth,
		Headers:     o.headers,
		DefaultTier: o.defaultTier,
		Disabled:    o.disabled,
		Metrics:     webhookserver.NewMetrics(ctrlmetrics.Registry, tiers, o.disabled, o.replicas.Load),
		Recorder:    usage,
		Tracer:      o.tracer,
		Log:         log.WithName("check"),
		Draining:    func() bool { return o.ending.asked.Err() != nil },
	})
	return replica{checks: checks, window: window, usage: usage}, nil
}

// listen returns a server for a handler, bound to the address that a flag gives.
func (o options) listen(name, flag, address string, handler http.Handler) (*manager.Server, error) {
	listener, err := listenOn(address)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return &manager.Server{
		Name:            name,
		Server:          webhookserver.NewHTTPServer(handler),
		Listener:        newRefusingListener(listener, o.ending.refused),
		ShutdownTimeout: ptr.To(o.shutdownTimeout()),
	}, nil
}

// listenOn returns a listener that takes no more connections at a time than there is memory for.
// Those beyond wait in the kernel's queue until another ends.
func listenOn(address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	return netutil.LimitListener(listener, webhookserver.MaxConnections), nil
}

// shutdownTimeout is the longest that checks in flight may take when the process ends.
func (o options) shutdownTimeout() time.Duration {
	return o.identity.patience() + o.redisTimeout + webhookserver.ShutdownMargin
}

// grpcServer is a gRPC server that runs on every replica.
type grpcServer struct {
	*grpc.Server
	listener net.Listener
	timeout  time.Duration
	log      logr.Logger
}

// listenGRPC returns the server of checks over gRPC, bound to its address.
func (o options) listenGRPC(handler *webhookserver.Handler, log logr.Logger) (*grpcServer, error) {
	listener, err := listenOn(o.grpcAddress)
	if err != nil {
		return nil, fmt.Errorf("--ext-authz-bind-address: %w", err)
	}
	return &grpcServer{Server: handler.NewGRPCServer(), listener: listener, timeout: o.shutdownTimeout(), log: log}, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (s *grpcServer) NeedLeaderElection() bool { return false }

// Start answers checks until ctx ends, and then those in flight.
func (s *grpcServer) Start(ctx context.Context) error {
	ended := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(ended)
		force := time.AfterFunc(s.timeout, s.Stop)
		defer force.Stop()
		s.GracefulStop()
	})
	s.log.Info("answering checks over gRPC", "address", s.listener.Addr().String())
	if err := s.Serve(s.listener); err != nil {
		return fmt.Errorf("checks over gRPC: %w", err)
	}
	<-ended
	return nil
}

// probes answers /healthz and /readyz. Readiness does not depend on Redis: when Redis is away each
// tier's failurePolicy decides, and the ingress must not lose every replica at once. In a cluster the
// replica that reports asks the others there what they have loaded.
func (o options) probes(tiers *tier.Table) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !tiers.Ready() {
			http.Error(w, "the tiers have not been loaded yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	if !o.local() {
		mux.Handle(controller.LoadedPath, controller.LoadedHandler(tiers, o.disabled))
	}
	return mux
}

// redisClient returns the client for --redis-url. The error does not contain the URL.
func redisClient(o options) (redis.UniversalClient, error) {
	client, err := limiter.NewClient(o.redisURL)
	if err != nil {
		return nil, fmt.Errorf("--redis-url (or %s): %w", envRedisURL, err)
	}
	return client, nil
}

// lookAtRedis says in the log whether Redis can be used, which a wrong password should not leave
// to the first check. It only looks: whatever it finds, checks are answered.
func lookAtRedis(ctx context.Context, o options, client redis.UniversalClient, log logr.Logger) {
	ctx, cancel := context.WithTimeout(ctx, o.redisTimeout)
	defer cancel()
	// TIME is a command that checks use, so that it is allowed to whoever may check.
	if err := client.Time(ctx).Err(); err != nil {
		log.Error(err, "Redis cannot be used yet", "address", limiter.Addresses(o.redisURL))
		return
	}
	log.Info("Redis answers", "address", limiter.Addresses(o.redisURL))
}
