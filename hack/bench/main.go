// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench compares Tierlimit with other rate limiters, and measures what its design promises.
// It prints a report in Markdown; docs/performance.md says how to read it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/tierlimit/tierlimit/hack/bench/contenders"
)

// bench is one run.
type bench struct {
	root        string // the checkout
	out         string // where the page and the picture are; "" writes none
	only        *regexp.Regexp
	duration    time.Duration
	rounds      int
	users       int
	connections int
	threads     int

	self   string // this program, which serves the peers
	script string // the text of sliding_window.lua
	dir    string // files of this run
	redis  *redisServer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	b := &bench{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&b.root, "root", ".", "`DIR` of the checkout, in which bin/tierlimit is built")
	flags.StringVar(&b.out, "out", "", "`DIR` of performance.md and performance.svg, to write the results into")
	only := flags.String("only", "", "run only what matches a `REGEXP`: admitted/, rejected/, offender/, mixed/, connection/, hot/, cap/, cap-full/ and "+
		"strategies/, each followed by the contender, exact/, memory/, stalls/, instructions/, process/, frozen/, alone/")
	flags.DurationVar(&b.duration, "duration", 3*time.Second, "`time` of each cell of the rates, whole seconds up to 40s")
	flags.IntVar(&b.rounds, "rounds", 3, "how many `times` each cell is run")
	flags.IntVar(&b.users, "users", 10_000, "`number` of users that checks are spread over")
	flags.IntVar(&b.connections, "connections", 64, "`number` of connections of wrk")
	flags.IntVar(&b.threads, "threads", max(1, runtime.NumCPU()/4), "`number` of threads of wrk")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if b.only, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if err := b.prepare(); err != nil {
		return err
	}
	if flags.Arg(0) == "serve" && flags.NArg() == 4 {
		return b.serveEngine(ctx, flags.Arg(1), flags.Arg(2), flags.Arg(3))
	}
	// A minute after a user's first request, that is no longer the reason to reject the next.
	const longest = 40 * time.Second
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case b.duration < time.Second || b.duration > longest || b.duration%time.Second != 0:
		return fmt.Errorf("-duration is %v: use whole seconds up to %v", b.duration, longest)
	case min(b.rounds, b.users, b.threads) < 1 || b.connections < b.threads:
		return errors.New("-rounds, -users and -threads are at least 1, -connections at least -threads")
	}
	return b.compare(ctx)
}

// prepare finds what a run is made of.
func (b *bench) prepare() (err error) {
	if b.root, err = filepath.Abs(b.root); err != nil {
		return err
	}
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	script, err := os.ReadFile(filepath.Join(b.root, "pkg", "limiter", "sliding_window.lua"))
	if err != nil {
		return fmt.Errorf("-root is not a checkout: %w", err)
	}
	b.script = string(script)
	return nil
}

// serveEngine is the process of a peer.
func (b *bench) serveEngine(ctx context.Context, name, addr, redisURL string) error {
	engine, err := contenders.New(ctx, name, contenders.Config{RedisURL: redisURL, Script: b.script})
	if err != nil {
		return err
	}
	server := &http.Server{Addr: addr, Handler: contenders.Handler(engine), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// compare runs everything that was asked for, prints the report and writes the page.
func (b *bench) compare(ctx context.Context) (err error) {
	if _, err := os.Stat(b.binary()); err != nil {
		return fmt.Errorf("%w: run 'make build'", err)
	}
	if _, err := exec.LookPath("wrk"); err != nil {
		return fmt.Errorf("%w: install it with 'make setup' or your package manager", err)
	}
	if b.dir, err = os.MkdirTemp("", "tierlimit-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if err := b.writeTiers(); err != nil {
		return err
	}
	if b.redis, err = startRedis(ctx, b.dir); err != nil {
		return err
	}
	defer b.redis.stop()
	r, err := b.measure(ctx)
	if err != nil {
		return err
	}
	report := r.markdown()
	fmt.Print(report)
	if b.out == "" {
		return nil
	}
	if b.only.String() != "" {
		b.say("-only: %s is left as it is", b.out)
		return nil
	}
	return write(b.out, report, r)
}

// measure runs the parts that -only does not leave out.
func (b *bench) measure(ctx context.Context) (*results, error) {
	r := &results{bench: b, started: time.Now()}
	var err error
	if r.redisVersion, err = b.redis.version(ctx); err != nil {
		return nil, err
	}
	version, err := exec.CommandContext(ctx, b.binary(), "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", b.binary(), err)
	}
	r.version, _, _ = strings.Cut(string(version), "\n")
	if r.groups, err = b.rates(ctx); err != nil {
		return nil, err
	}
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"exact/", func() (err error) { r.exact, err = b.exact(ctx); return err }},
		{"memory/", func() (err error) { r.contenderMemory, err = b.contenderMemory(ctx); return err }},
		{"memory/", func() (err error) { r.ours, r.uuids, err = b.memory(ctx); return err }},
		{"stalls/", func() (err error) { r.stalls, err = b.stalls(ctx); return err }},
		{"instructions/", func() (err error) { r.costs, err = b.instructions(ctx); return err }},
		{"process/", func() (err error) { r.process, err = b.process(ctx); return err }},
		{"frozen/", func() (err error) { r.frozen, err = b.freeze(ctx); return err }},
		{"alone/", func() (err error) { r.alone, err = b.alone(ctx); return err }},
	} {
		if !b.only.MatchString(part.name) {
			continue
		}
		b.say("%s", part.name)
		if err := part.run(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// config is for engines in this process, over the shared Redis.
func (b *bench) config() contenders.Config {
	return contenders.Config{RedisURL: b.redis.url(), Script: b.script}
}

func (b *bench) binary() string { return filepath.Join(b.root, "bin", "tierlimit") }

func (b *bench) tiersDir() string { return filepath.Join(b.dir, "tiers") }

// say reports progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
