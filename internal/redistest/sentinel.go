// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// SentinelMaster is the name under which sentinels know the primary.
const SentinelMaster = "mymaster"

// Sentinel is a primary with two replicas, watched by three sentinels of which two are a quorum.
// They take about a second to find the primary down and another to make a replica primary.
type Sentinel struct {
	t        testing.TB
	password string
	killed   *Server
	frozen   *Server
	// Servers hold the data. The first is the primary at the start.
	Servers []*Server
	// Sentinels watch them.
	Sentinels []*Server
}

// StartSentinel runs servers and sentinels until the test ends, and waits until all know each
// other. Additional arguments are passed to the servers; with "--requirepass", "secret" they and
// the sentinels use that password among themselves.
func StartSentinel(t testing.TB, args ...string) *Sentinel {
	t.Helper()
	return StartSentinelWithPassword(t, "", args...)
}

// StartSentinelWithPassword is StartSentinel with sentinels that demand a password of their own.
func StartSentinelWithPassword(t testing.TB, password string, args ...string) *Sentinel {
	t.Helper()
	s := &Sentinel{t: t, password: argument(args, "--requirepass")}
	args = append(replicationArgs(s.password), args...)
	addrs := FreeAddresses(t, 6)
	host, port, _ := net.SplitHostPort(addrs[0])
	s.Servers = []*Server{newDataServer(t, addrs[0], args...)}
	for _, addr := range addrs[1:3] {
		s.Servers = append(s.Servers, newDataServer(t, addr, append([]string{"--replicaof", host, port}, args...)...))
	}
	for _, addr := range addrs[3:] {
		s.Sentinels = append(s.Sentinels, s.newSentinel(addr, password))
	}
	startAll(s.Servers...)
	for _, replica := range s.Servers[1:] {
		eventually(t, "starting replicas", func() error { return linked(replica, addrs[0]) })
	}
	startAll(s.Sentinels...) // who looks for replicas early looks again only after ten seconds
	s.setPeriods(100)        // until they know each other
	eventually(t, "starting sentinels", s.complete)
	s.setPeriods(500)
	return s
}

// setPeriods makes sentinels look more often than they do by default, by hidden options of Redis 7,
// and tell each other what they see every so many milliseconds. A sentinel that connects again only
// after a second takes a new primary for down and replaces it. One that sees a server that should
// be a replica and is none waits four periods of publishing for news, then makes it a replica: it
// has to have heard of a new primary by then.
func (s *Sentinel) setPeriods(publish int) {
	s.t.Helper()
	for _, sentinel := range s.Sentinels {
		if err := sentinel.Client.Do(context.Background(), "sentinel", "debug",
			"info-period", 500, "ping-period", 200, "publish-period", publish).Err(); err != nil {
			s.t.Fatalf("redistest: sentinel %s: %v: Redis 7 is needed", sentinel.addr, err)
		}
	}
}

// replicationArgs let a replica copy its primary at once, not after five seconds.
func replicationArgs(password string) []string {
	args := []string{"--repl-diskless-sync-delay", "0"}
	if password != "" {
		args = append(args, "--masterauth", password)
	}
	return args
}

func (s *Sentinel) newSentinel(addr, password string) *Server {
	s.t.Helper()
	host, port, _ := net.SplitHostPort(addr)
	primaryHost, primaryPort, _ := net.SplitHostPort(s.Servers[0].addr)
	lines := []string{
		"bind " + host,
		"port " + port,
		"sentinel monitor " + SentinelMaster + " " + primaryHost + " " + primaryPort + " 2",
		"sentinel down-after-milliseconds " + SentinelMaster + " 1000",
		"sentinel failover-timeout " + SentinelMaster + " 3000",
		"sentinel parallel-syncs " + SentinelMaster + " 2",
	}
	if s.password != "" {
		lines = append(lines, "sentinel auth-pass "+SentinelMaster+" "+s.password)
	}
	if password != "" {
		lines = append(lines, "requirepass "+password, "sentinel sentinel-pass "+password)
	}
	file := filepath.Join(s.t.TempDir(), "sentinel.conf")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return newServer(s.t, &redis.Options{Addr: addr, Password: password}, file, "--sentinel")
}

// complete returns an error unless each sentinel sees the primary, all replicas with their data
// and the other sentinels.
func (s *Sentinel) complete() error {
	ctx := context.Background()
	for _, sentinel := range s.Sentinels {
		primary := redis.NewMapStringStringCmd(ctx, "sentinel", "master", SentinelMaster)
		if err := sentinel.Client.Process(ctx, primary); err != nil {
			return err
		}
		if flags := primary.Val()["flags"]; flags != "master" {
			return fmt.Errorf("sentinel %s finds the primary %s", sentinel.addr, flags)
		}
		for what, want := range map[string]struct {
			flags string
			n     int
		}{"replicas": {"slave", len(s.Servers) - 1}, "sentinels": {"sentinel", len(s.Sentinels) - 1}} {
			others := redis.NewMapStringStringSliceCmd(ctx, "sentinel", what, SentinelMaster)
			if err := sentinel.Client.Process(ctx, others); err != nil {
				return err
			}
			if len(others.Val()) != want.n {
				return fmt.Errorf("sentinel %s knows %d %s of %d", sentinel.addr, len(others.Val()), what, want.n)
			}
			for _, other := range others.Val() {
				if other["flags"] != want.flags || what == "replicas" && other["master-link-status"] != "ok" {
					return fmt.Errorf("sentinel %s finds %s: %s, link %q", sentinel.addr, other["name"], other["flags"], other["master-link-status"])
				}
			}
		}
	}
	return nil
}

// Addrs are the sentinels' host:port.
func (s *Sentinel) Addrs() []string { return addrs(s.Sentinels) }

// URL names the sentinels and what they watch, without a password.
func (s *Sentinel) URL() string {
	return "redis+sentinel://" + strings.Join(s.Addrs(), ",") + "/?master=" + SentinelMaster
}

// Primary is the host:port that all running sentinels give for the primary. It is that of a dead
// one until they have made another.
func (s *Sentinel) Primary() string {
	s.t.Helper()
	var primary string
	eventually(s.t, "asking sentinels for the primary", func() error {
		votes := map[string]int{}
		for _, sentinel := range s.Sentinels {
			if !sentinel.running() {
				continue
			}
			answer, err := sentinel.Client.Do(context.Background(), "sentinel", "get-master-addr-by-name", SentinelMaster).StringSlice()
			if err != nil {
				return fmt.Errorf("sentinel %s: %w", sentinel.addr, err)
			}
			if len(answer) != 2 {
				return fmt.Errorf("sentinel %s answers %q", sentinel.addr, answer)
			}
			primary = net.JoinHostPort(answer[0], answer[1])
			votes[primary]++
		}
		if len(votes) != 1 {
			return fmt.Errorf("they do not agree: %v", votes)
		}
		return nil
	})
	return primary
}

// PrimaryClient is a new client of the current primary, for looking at its data.
func (s *Sentinel) PrimaryClient() *redis.Client {
	s.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Primary(), Password: s.password})
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

func (s *Sentinel) primary() *Server {
	s.t.Helper()
	return byAddr(s.t, s.Servers, s.Primary())
}

// KillPrimary ends the primary as a crash would.
func (s *Sentinel) KillPrimary() {
	s.t.Helper()
	s.killed = s.primary()
	s.killed.Stop()
}

// RestartKilled waits until there is another primary, runs the killed one again and waits until it
// is a replica. It would come back empty, and as a primary give that to its replicas.
func (s *Sentinel) RestartKilled() {
	s.t.Helper()
	if s.killed == nil {
		s.t.Fatal("redistest: no primary has been killed")
	}
	s.WaitFailover()
	s.killed.Restart()
	eventually(s.t, "waiting until the killed primary is a replica", func() error {
		return linked(s.killed, s.Primary())
	})
	s.killed = nil
}

// FreezePrimary stops the primary without ending its connections, until ThawPrimary.
func (s *Sentinel) FreezePrimary() {
	s.t.Helper()
	s.frozen = s.primary()
	s.frozen.Freeze()
}

// ThawPrimary lets the frozen server go on. If there is another primary by now, it does not know
// that until the sentinels have told it.
func (s *Sentinel) ThawPrimary() {
	s.t.Helper()
	if s.frozen == nil {
		s.t.Fatal("redistest: no primary is frozen")
	}
	s.frozen.Thaw()
	s.frozen = nil
}

// WaitFailover waits until the primary that sentinels give is running and is a primary, and every
// other running server is its replica.
func (s *Sentinel) WaitFailover() {
	s.t.Helper()
	eventually(s.t, "waiting for a new primary", func() error {
		primary := s.primary()
		if !primary.running() {
			return fmt.Errorf("%s is down or frozen", primary.addr)
		}
		role, err := roleOf(primary)
		if err != nil {
			return err
		}
		if role[0] != "master" {
			return fmt.Errorf("%s is not a primary yet", primary.addr)
		}
		for _, replica := range s.Servers {
			if replica == primary || !replica.running() {
				continue
			}
			if err := linked(replica, primary.addr); err != nil {
				return err
			}
		}
		return nil
	})
}

// WaitReplicated waits until every running replica has what the primary has now.
func (s *Sentinel) WaitReplicated() {
	s.t.Helper()
	waitReplicated(s.primary(), count(s.Servers)-1)
}
