// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/tierlimit/tierlimit/hack/bench/contenders"
)

// server is a contender that runs.
type server struct {
	contender
	*process
	addr    string
	metrics string // host:port that answers /metrics
}

// serve runs a contender over a Redis until it is stopped or ctx ends. Flags are for the binary.
func (b *bench) serve(ctx context.Context, c contender, redis *redisServer, flags ...string) (*server, error) {
	addr, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	s := &server{contender: c, addr: addr, metrics: addr}
	argv := []string{b.self, "-root", b.root, "serve", c.engine, addr, redis.url()}
	if c.engine == "" {
		if s.metrics, err = freeAddress(ctx); err != nil {
			return nil, err
		}
		argv = []string{
			b.binary(), "--tiers", b.tiersDir(), "--redis-url", redis.url(), "--bind-address", addr,
			"--metrics-bind-address", s.metrics, "--admin-bind-address", "0", "--health-probe-bind-address", "0", "--default-tier", contenders.Admitted,
		}
		argv = append(append(argv, c.flags...), flags...)
	}
	ready := func(int) error {
		_, err := s.counts(ctx)
		if err != nil {
			return err
		}
		return touch(ctx, addr, []string{askFor(contenders.Admitted, "first")})
	}
	if s.process, err = startProcess(ctx, b.dir, c.name, argv, ready); err != nil {
		return nil, err
	}
	return s, nil
}

// writeTiers makes the directory of the tiers that the binary has in common with the other servers.
func (b *bench) writeTiers() error {
	if err := os.Mkdir(b.tiersDir(), 0o750); err != nil {
		return err
	}
	for _, name := range []string{contenders.Admitted, contenders.Rejected, contenders.Free, contenders.Enterprise} {
		limits := contenders.Tiers[name]
		tier := fmt.Sprintf("apiVersion: tierlimit.dev/v1alpha1\nkind: RateLimitTier\nmetadata:\n  name: %s\n"+
			"spec:\n  requests:\n    perMinute: %d\n    perDay: %d\n", name, limits[0].Requests, limits[1].Requests)
		if err := os.WriteFile(filepath.Join(b.tiersDir(), name+".yaml"), []byte(tier), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// askFor is the path of a check of a user.
func askFor(tier, user string) string {
	return "/check?tier=" + tier + "&user=" + user
}

// counts is how many checks a server has answered.
type counts struct {
	admitted, rejected, failed int64
}

func (c counts) less(other counts) counts {
	return counts{c.admitted - other.admitted, c.rejected - other.rejected, c.failed - other.failed}
}

// counts asks the server itself: looking at each answer would cost wrk more than the answer costs.
func (s *server) counts(ctx context.Context) (counts, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.metrics+"/metrics", nil)
	if err != nil {
		return counts{}, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return counts{}, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return counts{}, fmt.Errorf("GET /metrics: %s %w", answer.Status, err)
	}
	return parseCounts(string(body)), nil
}

var checksTotal = regexp.MustCompile(`(?m)^tierlimit_checks_total\{.*?outcome="([a-z_]+)".*\} ([0-9.e+]+)$`)

func parseCounts(metrics string) counts {
	var c counts
	for _, match := range checksTotal.FindAllStringSubmatch(metrics, -1) {
		n, _ := strconv.ParseFloat(match[2], 64)
		switch match[1] {
		case "admitted":
			c.admitted += int64(n)
		case "rejected":
			c.rejected += int64(n)
		default:
			c.failed += int64(n)
		}
	}
	return c
}
