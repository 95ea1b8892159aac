// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image builds Tierlimit's image, for several platforms, and pushes it. It needs neither
// Docker nor a registry to build: the image is one static binary and nothing else.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1) //nolint:gocritic // exitAfterDefer: the process ends, and with it what is stopped
	}
}

// run runs the command "build" or "push".
func run(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return errors.New("use image build or image push")
	}
	fs := flag.NewFlagSet(args[0], flag.ContinueOnError)
	switch args[0] {
	case "build":
		return runBuild(ctx, fs, args[1:], stdout)
	case "push":
		from := fs.String("from", "bin/image", "`folder` in which build has put the image")
		to := fs.String("to", "", "`name` of the image in a registry, such as registry.example/tierlimit:v0.1.0")
		if err := fs.Parse(args[1:]); err != nil {
			return err
		}
		return push(ctx, *from, *to, stdout)
	}
	return fmt.Errorf("there is no command %q: use image build or image push", args[0])
}

func runBuild(ctx context.Context, fs *flag.FlagSet, args []string, stdout io.Writer) error {
	var s source
	fs.StringVar(&s.root, "root", ".", "`folder` of the sources")
	out := fs.String("out", "bin/image", "`folder` to put the image into")
	tag := fs.String("name", "tierlimit:dev", "`name` that the image has in the archives for docker load")
	platforms := fs.String("platforms", "linux/amd64,linux/arm64", "`list` of platforms")
	fs.StringVar(&s.version, "version", "dev", "`version` to stamp")
	fs.StringVar(&s.revision, "revision", "", "`commit` to stamp")
	fs.StringVar(&s.commitTime, "time", "", "`time` of that commit, such as 2026-11-30T09:34:22Z")
	if err := fs.Parse(args); err != nil {
		return err
	}
	var err error
	if s.created, err = creationTime(s.commitTime, os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		return err
	}
	var parsed []*v1.Platform
	for name := range strings.SplitSeq(*platforms, ",") {
		platform, err := v1.ParsePlatform(name)
		if err != nil || platform.Architecture == "" {
			return fmt.Errorf("-platforms: %q is no platform: use linux/amd64 or linux/arm64", name)
		}
		parsed = append(parsed, platform)
	}
	return build(ctx, s, parsed, *out, *tag, stdout)
}

// creationTime is the time of everything in the image: SOURCE_DATE_EPOCH
// (https://reproducible-builds.org/specs/source-date-epoch), else the time of the commit, else 1970.
// It is never now, so that the same sources make the same image.
func creationTime(commitTime, epoch string) (time.Time, error) {
	switch {
	case epoch != "":
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q: use seconds since 1970", epoch)
		}
		return time.Unix(seconds, 0).UTC(), nil
	case commitTime != "":
		t, err := time.Parse(time.RFC3339, commitTime)
		if err != nil {
			return time.Time{}, fmt.Errorf("-time: %w", err)
		}
		return t.UTC(), nil
	}
	return time.Unix(0, 0).UTC(), nil
}
