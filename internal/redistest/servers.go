// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

func addrs(servers []*Server) []string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.addr
	}
	return list
}

func byAddr(t testing.TB, servers []*Server, addr string) *Server {
	t.Helper()
	for _, s := range servers {
		if s.addr == addr {
			return s
		}
	}
	t.Fatalf("redistest: %s is none of %v", addr, addrs(servers))
	return nil
}

// count is the number of servers that can be expected to answer.
func count(servers []*Server) int {
	n := 0
	for _, s := range servers {
		if s.running() {
			n++
		}
	}
	return n
}

// roleOf returns what ROLE says: "master" or "slave" first.
func roleOf(s *Server) ([]any, error) {
	role, err := s.Client.Do(context.Background(), "role").Slice()
	if err == nil && len(role) == 0 {
		err = errors.New("empty role")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.addr, err)
	}
	return role, nil
}

// linked returns an error unless the server is a replica of that primary and has its data.
func linked(s *Server, primary string) error {
	role, err := roleOf(s)
	if err != nil {
		return err
	}
	if role[0] != "slave" || len(role) < 4 {
		return fmt.Errorf("%s is not a replica", s.addr)
	}
	if of := fmt.Sprintf("%v:%v", role[1], role[2]); of != primary || role[3] != "connected" {
		return fmt.Errorf("%s is a replica of %s, %v, and not connected to %s", s.addr, of, role[3], primary)
	}
	return nil
}

// waitReplicated waits until n replicas have everything that the primary has now.
func waitReplicated(primary *Server, n int) {
	primary.t.Helper()
	if n == 0 {
		return
	}
	eventually(primary.t, "waiting for replication", func() error {
		// WAIT is about what its own connection has written. A publication is replicated and
		// leaves no data.
		connection := primary.Client.Conn()
		defer connection.Close()
		ctx := context.Background()
		err := connection.Publish(ctx, "redistest", "").Err()
		got := connection.Wait(ctx, n, time.Second)
		if err = errors.Join(err, got.Err()); err != nil {
			return err
		}
		if got.Val() < int64(n) {
			return fmt.Errorf("%d of %d replicas have the data of %s", got.Val(), n, primary.addr)
		}
		return nil
	})
}
