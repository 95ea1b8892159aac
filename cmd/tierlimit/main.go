// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command tierlimit answers rate limit checks by the RateLimitTiers of a cluster or, in local mode,
// of a directory. It is also the quota desk, and as kubectl-tierlimit a plugin of kubectl.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tierlimit/tierlimit/internal/desk"
	"github.com/tierlimit/tierlimit/internal/tracing"
)

func main() {
	ctx := ctrl.SetupSignalHandler()
	if name, args := desk.Called(os.Args[0], os.Args[1:]); name != "" {
		os.Exit(runCommand(ctx, commandLine(name, os.Getenv, os.Stdout, os.Stderr), args, os.Stderr))
	}
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run runs the program until ctx ends and returns its exit code: 0, 1 for an error, 2 for a wrong
// command line. An error is one line on stderr.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	if root := command(args, getenv, stdout, stderr); root != nil {
		return runCommand(ctx, root, args, stderr)
	}
	o, err := parseOptions(args, getenv)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(stdout, usage())
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "tierlimit: %v (see tierlimit --help)\n", err)
		return 2
	case o.version:
		fmt.Fprintln(stdout, "tierlimit", version())
		return 0
	}
	log := newLogger(o, stderr)
	slog.SetDefault(slog.New(logr.ToSlogHandler(log))) // also for what libraries print through package log
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	redis.SetLogger(redisLogger{log.WithName("redis")})
	traces, err := tracing.New(ctx, getenv, version(), log.WithName("traces"))
	if err != nil {
		fmt.Fprintf(stderr, "tierlimit: %v\n", err)
		return 1
	}
	defer traces.Shutdown() // when the last check has been answered
	o.tracer = traces.Tracer()
	ctx, o.ending = endInStages(ctx)
	if err := serve(ctx, o, log); err != nil {
		fmt.Fprintf(stderr, "tierlimit: %v\n", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, o options, log logr.Logger) error {
	if o.disabled {
		warn(log, "RATE_LIMIT_DISABLED is set: EVERY REQUEST OF EVERY TIER PASSES until it is unset and this process restarted")
	}
	if o.local() {
		return serveLocal(ctx, o, log)
	}
	return serveCluster(ctx, o, log)
}
