// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"strings"

	"github.com/go-logr/logr"
)

// newLogger returns the logger that everything in the process writes to.
func newLogger(o options, w io.Writer) logr.Logger {
	level, err := parseLevel(o.logLevel)
	if err != nil {
		level = slog.LevelInfo // parseOptions has refused it already
	}
	handlerOptions := &slog.HandlerOptions{Level: level}
	if o.logFormat == "text" {
		return logr.FromSlogHandler(slog.NewTextHandler(w, handlerOptions))
	}
	return logr.FromSlogHandler(slog.NewJSONHandler(w, handlerOptions))
}

// warn logs what the operator should change or know, although nothing has failed.
func warn(log logr.Logger, message string) {
	slog.New(logr.ToSlogHandler(log)).Warn(message)
}

// redisLogger makes what the Redis client would print on its own part of the log. It reports each
// failed connection, which the check endpoint sums up: at debug level, it is for those who look.
type redisLogger struct{ log logr.Logger }

// Printf implements the logger of go-redis.
func (l redisLogger) Printf(_ context.Context, format string, args ...any) {
	l.log.V(-int(slog.LevelDebug)).Info(strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// stamped is the version, set by the linker: -X main.stamped=v1.2.3.
var stamped string

// version returns the version that this binary was built from.
func version() string {
	if stamped != "" {
		return stamped
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}

// revision returns the commit that this binary was built from, "" if that is not known.
func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				return setting.Value
			}
		}
	}
	return ""
}
