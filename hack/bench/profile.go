// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/pprof/profile"
	"golang.org/x/sync/errgroup"

	"github.com/tierlimit/tierlimit/hack/bench/contenders"
)

// share is a part of the CPU time of a process.
type share struct {
	of   string
	part float64 // of 1
}

// profile is where pkg/limiter in the small handler spends its time under load.
func (b *bench) profile(ctx context.Context) ([]share, error) {
	if err := b.redis.empty(ctx); err != nil {
		return nil, err
	}
	s, err := b.serve(ctx, find("pkg/limiter"), b.redis)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	paths := make([]string, b.users)
	for i := range paths {
		paths[i] = askFor(contenders.Admitted, userName(i))
	}
	if err := touch(ctx, s.addr, paths); err != nil {
		return nil, err
	}
	var taken *profile.Profile
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		l := load{addr: s.addr, paths: paths, connections: b.connections, threads: b.threads, duration: b.duration}
		_, err := l.run(ctx, b.dir)
		return err
	})
	group.Go(func() (err error) {
		taken, err = fetchProfile(ctx, s.addr, b.duration)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return sharesOf(taken), nil
}

func fetchProfile(ctx context.Context, addr string, duration time.Duration) (*profile.Profile, error) {
	url := "http://" + addr + contenders.ProfilePath + "?seconds=" + strconv.Itoa(int(duration/time.Second))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", url, answer.Status)
	}
	return profile.Parse(answer.Body)
}

// sharesOf adds up a CPU profile by what the time was for, the largest part first.
func sharesOf(p *profile.Profile) []share {
	sums, total := map[string]int64{}, int64(0)
	for _, sample := range p.Sample {
		var stack []string
		for _, location := range sample.Location {
			for _, line := range location.Line {
				stack = append(stack, line.Function.Name)
			}
		}
		value := sample.Value[len(sample.Value)-1]
		sums[purpose(stack)] += value
		total += value
	}
	var shares []share
	for of, sum := range sums {
		shares = append(shares, share{of, float64(sum) / float64(total)})
	}
	slices.SortFunc(shares, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.part, a.part), cmp.Compare(a.of, b.of))
	})
	return shares
}

const (
	forHTTP    = "net/http"
	forRedis   = "go-redis"
	forLimiter = "pkg/limiter"
	forHandler = "the handler"
)

// owners are packages by the start of their functions' names.
var owners = []struct{ prefix, name string }{
	{"github.com/redis/go-redis/", forRedis},
	{"github.com/tierlimit/tierlimit/pkg/limiter.", forLimiter},
	{"github.com/tierlimit/tierlimit/hack/bench/", forHandler},
	{"net/http.", forHTTP},
}

// purpose is what a stack, its innermost function first, was at work for. What is nobody's own, such
// as copying bytes, is for the innermost owner.
func purpose(stack []string) string {
	const nobody = "other"
	if len(stack) == 0 || stack[0] == "" {
		return nobody
	}
	owner := ""
	for _, function := range stack {
		i := slices.IndexFunc(owners, func(o struct{ prefix, name string }) bool { return strings.HasPrefix(function, o.prefix) })
		if i >= 0 {
			owner = owners[i].name
			break
		}
	}
	kernel := startsWith(stack[0], "internal/runtime/syscall", "syscall.")
	switch {
	case kernel && owner == forHTTP:
		return "system calls for HTTP"
	case kernel && owner != "":
		return "system calls for Redis"
	case slices.ContainsFunc(stack, func(function string) bool {
		return startsWith(function, "runtime.mallocgc", "runtime.gc", "runtime.bgsweep", "runtime.bgscavenge")
	}):
		return "allocation and garbage collection"
	case kernel, startsWith(stack[0], "runtime.futex", "runtime.usleep"), owner == "" && startsWith(stack[0], "runtime.", "internal/runtime/"):
		return "Go's scheduler and poller"
	}
	return cmp.Or(owner, nobody)
}

func startsWith(name string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
