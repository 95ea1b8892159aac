// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	clusterPrimaries = 3
	clusterSlots     = 16384
)

// Cluster is a Redis Cluster with three primaries. A primary that is down for 1.5 seconds is
// replaced by its replica, if there are replicas.
type Cluster struct {
	t        testing.TB
	password string
	// Nodes are first the primaries at the start, in the order of their slots, then the replica of
	// each.
	Nodes []*Server
	// Client is meant for looking at the data and preparing it.
	Client *redis.ClusterClient
}

// StartCluster runs three primaries, each with no replica or one, until the test ends, and waits
// until the cluster serves all slots. Additional arguments are passed to all servers.
func StartCluster(t testing.TB, replicas int, args ...string) *Cluster {
	t.Helper()
	n := clusterPrimaries * (1 + replicas)
	c := &Cluster{t: t, password: argument(args, "--requirepass")}
	addrs := FreeAddresses(t, 2*n)
	buses := addrs[n:]
	for i, addr := range addrs[:n] {
		host, bus, _ := net.SplitHostPort(buses[i])
		c.Nodes = append(c.Nodes, newDataServer(t, addr, append(append(replicationArgs(c.password),
			"--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-announce-ip", host,
			"--cluster-node-timeout", "1500"), args...)...))
	}
	c.Client = redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addrs[:n], Password: c.password,
		// A dead primary tells nobody who has taken over, and by default the client asks others
		// only once a minute.
		ClusterStateReloadInterval: 500 * time.Millisecond,
		DialTimeout:                time.Second, ReadTimeout: time.Second,
	})
	t.Cleanup(func() { _ = c.Client.Close() })
	startAll(c.Nodes...)
	c.join(buses)
	for i, replica := range c.Nodes[clusterPrimaries:] {
		c.follow(replica, c.Nodes[i%clusterPrimaries])
	}
	c.WaitOK()
	return c
}

// join spreads the slots and introduces every node to every other, so that nobody waits for gossip.
func (c *Cluster) join(buses []string) {
	c.t.Helper()
	ctx := context.Background()
	for i, node := range c.Nodes {
		err := node.Client.Do(ctx, "cluster", "set-config-epoch", i+1).Err() // equal epochs are sorted out slowly
		if i < clusterPrimaries {
			first, end := i*clusterSlots/clusterPrimaries, (i+1)*clusterSlots/clusterPrimaries
			err = errors.Join(err, node.Client.Do(ctx, "cluster", "addslotsrange", first, end-1).Err())
		}
		for j := range i {
			host, port, _ := net.SplitHostPort(c.Nodes[j].addr)
			_, bus, _ := net.SplitHostPort(buses[j])
			err = errors.Join(err, node.Client.Do(ctx, "cluster", "meet", host, port, bus).Err())
		}
		if err != nil {
			c.t.Fatalf("redistest: making a cluster: %s: %v", node.addr, err)
		}
	}
}

// follow makes a replica as soon as it knows its primary.
func (c *Cluster) follow(replica, primary *Server) {
	c.t.Helper()
	id := c.id(primary)
	eventually(c.t, "making a replica of a cluster", func() error {
		return replica.Client.ClusterReplicate(context.Background(), id).Err()
	})
}

func (c *Cluster) id(node *Server) string {
	c.t.Helper()
	id, err := node.Client.ClusterMyID(context.Background()).Result()
	if err != nil {
		c.t.Fatalf("redistest: %s: %v", node.addr, err)
	}
	return id
}

// Addrs are the host:port of all nodes.
func (c *Cluster) Addrs() []string { return addrs(c.Nodes) }

// URL names all nodes, without a password.
func (c *Cluster) URL() string { return "redis+cluster://" + strings.Join(c.Addrs(), ",") }

// Slot is the slot of a key.
func (c *Cluster) Slot(key string) int {
	c.t.Helper()
	for _, node := range c.Nodes {
		if !node.running() {
			continue
		}
		slot, err := node.Client.ClusterKeySlot(context.Background(), key).Result()
		if err != nil {
			c.t.Fatalf("redistest: %s: %v", node.addr, err)
		}
		return int(slot)
	}
	c.t.Fatal("redistest: no node of the cluster is running")
	return 0
}

// NodeOf is the primary of the key in the eyes of most running nodes. It may be one that is down
// and not replaced yet.
func (c *Cluster) NodeOf(key string) *Server {
	c.t.Helper()
	return c.owner(c.Slot(key))
}

func (c *Cluster) owner(slot int) *Server {
	c.t.Helper()
	var owner string
	eventually(c.t, fmt.Sprintf("asking for the primary of slot %d", slot), func() error {
		votes := map[string]int{}
		for _, node := range c.Nodes {
			if !node.running() {
				continue
			}
			view, err := viewOf(node)
			if err != nil {
				return err
			}
			votes[view.owner(slot)]++
		}
		for addr, n := range votes {
			if addr != "" && 2*n > count(c.Nodes) {
				owner = addr
				return nil
			}
		}
		return fmt.Errorf("no majority: %v", votes)
	})
	return byAddr(c.t, c.Nodes, owner)
}

// WaitOK waits until all running nodes agree on the cluster, it serves all slots by running nodes,
// and every running node is a primary with slots or a replica with its primary's data. After the
// end of a primary this is when its replica has taken over.
func (c *Cluster) WaitOK() {
	c.t.Helper()
	eventually(c.t, "waiting for the cluster", c.ok)
}

func (c *Cluster) ok() error {
	running := map[string]bool{}
	for _, node := range c.Nodes {
		running[node.addr] = node.running()
	}
	var agreed string
	for _, node := range c.Nodes {
		if !node.running() {
			continue
		}
		info, err := node.Client.ClusterInfo(context.Background()).Result()
		if err != nil {
			return fmt.Errorf("%s: %w", node.addr, err)
		}
		if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_slots_ok:%d\r\n", clusterSlots)) {
			return fmt.Errorf("the cluster is not ok in the eyes of %s:\n%s", node.addr, info)
		}
		view, err := viewOf(node)
		if err == nil {
			err = view.settled(running)
		}
		if err != nil {
			return fmt.Errorf("in the eyes of %s: %w", node.addr, err)
		}
		if primary := view.primaryOf(node.addr); primary != "" {
			if err := linked(node, primary); err != nil {
				return err
			}
		}
		owners := view.owners()
		if agreed == "" {
			agreed = owners
		}
		if owners != agreed {
			return fmt.Errorf("nodes do not agree on who has which slots:\n%s\n%s", agreed, owners)
		}
	}
	return nil
}

// WaitReplicated waits until every running replica has what its primary has now.
func (c *Cluster) WaitReplicated() {
	c.t.Helper()
	c.WaitOK()
	replicas := map[string]int{}
	for _, node := range c.Nodes {
		if !node.running() {
			continue
		}
		view, err := viewOf(node)
		if err != nil {
			c.t.Fatalf("redistest: %v", err)
		}
		replicas[view.primaryOf(node.addr)]++
	}
	for _, node := range c.Nodes {
		if node.running() {
			waitReplicated(node, replicas[node.addr])
		}
	}
}
