// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// TestMain runs one redis-server for the examples, which find it as a user's program would: in
// REDIS_URL. Tests start their own, so that each has an empty one.
func TestMain(m *testing.M) {
	if url := os.Getenv(envWorker); url != "" {
		if err := work(url, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	p := &process{}
	server := redistest.Start(p)
	if err := os.Setenv("REDIS_URL", server.URL()); err != nil {
		p.Fatal(err)
	}
	code := m.Run()
	p.exit(code)
}

// process stands in for the testing.TB of a test that lasts as long as the test process.
type process struct {
	testing.TB // nil: what redistest does not need panics
	cleanups   []func()
}

func (p *process) Helper() {}

func (p *process) Cleanup(f func()) { p.cleanups = append(p.cleanups, f) }

func (p *process) TempDir() string {
	dir, err := os.MkdirTemp("", "tierlimit-redis-")
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (p *process) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	p.exit(1)
}

func (p *process) Fatalf(format string, args ...any) { p.Fatal(fmt.Sprintf(format, args...)) }

func (p *process) exit(code int) {
	for _, f := range slices.Backward(p.cleanups) {
		f()
	}
	os.Exit(code)
}
