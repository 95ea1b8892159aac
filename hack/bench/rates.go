// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// sample is one cell: a contender under a load for a while.
type sample struct {
	loaded
	counts
	serverCPU, redisCPU time.Duration
	connections         int
}

// errors are the answers that are neither 2xx nor 429, and what did not become an answer. Checks
// that fail because wrk hangs up at the end, one for each connection at the most, are none.
func (s sample) errors() int64 {
	return max(s.BadStatus-s.rejected, s.failed-int64(s.connections), 0) + s.SocketErrors
}

// row is a contender's samples in a group, one for each round.
type row struct {
	name    string
	samples []sample
}

// groupResult is a group's rows.
type groupResult struct {
	group
	rows []*row
}

func (g groupResult) row(name string) *row {
	for _, r := range g.rows {
		if r.name == name {
			return r
		}
	}
	return nil
}

// rates runs the groups that were asked for: all contenders in turn, round for round.
func (b *bench) rates(ctx context.Context) ([]groupResult, error) {
	results, servers := b.selected(), map[string]*server{}
	for _, g := range results {
		for _, r := range g.rows {
			if servers[r.name] != nil {
				continue
			}
			s, err := b.serve(ctx, find(r.name), b.redis)
			if err != nil {
				return nil, err
			}
			defer s.stop()
			servers[r.name] = s
		}
	}
	cell := 0
	for round := range b.rounds {
		for _, g := range results {
			for _, r := range g.rows {
				cell++
				result, err := b.cell(ctx, servers[r.name], g.group, cell)
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w; the server printed:\n%s", g.name, r.name, err, servers[r.name].printed())
				}
				r.samples = append(r.samples, result)
				b.say("round %d of %d  %-10s  %-40s %7.0f/s", round+1, b.rounds, g.name, r.name, result.rate())
				if share := float64(result.errors()) / float64(result.Requests); share > tolerated {
					b.say("ERRORS: %.1f %% of the answers; the server printed:\n%s", 100*share, servers[r.name].printed())
				}
			}
		}
	}
	return results, nil
}

// tolerated is the share of errors above which the report marks a contender.
const tolerated = 0.001

// selected are the groups and rows that -only asks for.
func (b *bench) selected() []groupResult {
	var results []groupResult
	for _, g := range groups {
		result := groupResult{group: g}
		for _, name := range g.contenders {
			if b.only.MatchString(g.name + "/" + name) {
				result.rows = append(result.rows, &row{name: name})
			}
		}
		if len(result.rows) > 0 {
			results = append(results, result)
		}
	}
	return results
}

func find(name string) contender {
	i := slices.IndexFunc(everybody, func(c contender) bool { return c.name == name })
	return everybody[i]
}

// cell measures one contender once. Its users are new, and each has made one request before.
func (b *bench) cell(ctx context.Context, s *server, g group, number int) (sample, error) {
	if err := b.redis.empty(ctx); err != nil {
		return sample{}, err
	}
	paths := make([]string, cmp.Or(g.users, b.users))
	for i := range paths {
		paths[i] = askFor(g.tiers[i%len(g.tiers)], "c"+strconv.Itoa(number)+"-"+strconv.Itoa(i))
		if s.capped {
			paths[i] += "&upstream=" + g.upstream
		}
	}
	if err := touch(ctx, s.addr, paths); err != nil {
		return sample{}, err
	}
	before, err := b.look(ctx, s)
	if err != nil {
		return sample{}, err
	}
	l := load{addr: s.addr, paths: paths, connections: b.connections, threads: b.threads, duration: b.duration, close: g.close}
	result, err := l.run(ctx, b.dir)
	if err != nil {
		return sample{}, err
	}
	after, err := b.look(ctx, s)
	if err != nil {
		return sample{}, err
	}
	return sample{
		loaded:      result,
		counts:      after.less(before.counts),
		serverCPU:   after.serverCPU - before.serverCPU,
		redisCPU:    after.redisCPU - before.redisCPU,
		connections: b.connections,
	}, nil
}

// look reads what grows while a server works.
func (b *bench) look(ctx context.Context, s *server) (sample, error) {
	var now sample
	var err error
	if now.counts, err = s.counts(ctx); err != nil {
		return sample{}, err
	}
	if now.serverCPU, err = cpuTime(s.pid()); err != nil {
		return sample{}, err
	}
	now.redisCPU, err = cpuTime(b.redis.pid())
	return now, err
}
