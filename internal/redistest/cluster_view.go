// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// clusterView is what one node knows of its cluster.
type clusterView []clusterNode

type clusterNode struct {
	id, addr string
	flags    []string // "myself", "slave", "fail?", ...
	primary  string   // the id of a replica's primary, else "-"
	slots    [][2]int // first and last of each range
}

// viewOf reads CLUSTER NODES, with lines like
//
//	<id> 127.0.0.1:15001@15002 myself,master - 0 0 1 connected 0-5460 5462 [93->-<id>]
func viewOf(s *Server) (clusterView, error) {
	text, err := s.Client.ClusterNodes(context.Background()).Result()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.addr, err)
	}
	var view clusterView
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 8 {
			return nil, fmt.Errorf("%s: no node of a cluster: %q", s.addr, line)
		}
		addr, _, _ := strings.Cut(fields[1], "@")
		node := clusterNode{id: fields[0], addr: addr, flags: strings.Split(fields[2], ","), primary: fields[3]}
		for _, field := range fields[8:] {
			if strings.HasPrefix(field, "[") {
				continue // on the move
			}
			first, last, isRange := strings.Cut(field, "-")
			if !isRange {
				last = first
			}
			from, errFrom := strconv.Atoi(first)
			to, errTo := strconv.Atoi(last)
			if errFrom != nil || errTo != nil {
				return nil, fmt.Errorf("%s: no slots: %q", s.addr, field)
			}
			node.slots = append(node.slots, [2]int{from, to})
		}
		view = append(view, node)
	}
	return view, nil
}

// owner is the address of the slot's primary, or empty.
func (v clusterView) owner(slot int) string {
	for _, node := range v {
		for _, r := range node.slots {
			if r[0] <= slot && slot <= r[1] {
				return node.addr
			}
		}
	}
	return ""
}

// owners is the same text for everybody who thinks the same.
func (v clusterView) owners() string {
	var lines []string
	for _, node := range v {
		if len(node.slots) > 0 {
			lines = append(lines, fmt.Sprint(node.addr, node.slots))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

// primaryOf is the address of a replica's primary, or empty for a primary.
func (v clusterView) primaryOf(addr string) string {
	for _, node := range v {
		if node.addr != addr {
			continue
		}
		for _, other := range v {
			if other.id == node.primary {
				return other.addr
			}
		}
	}
	return ""
}

// settled returns an error unless the view has exactly the nodes of running, those that run are
// well and have slots or a primary, and those that do not run have no slots.
func (v clusterView) settled(running map[string]bool) error {
	if len(v) != len(running) {
		return fmt.Errorf("%d of %d nodes", len(v), len(running))
	}
	for _, node := range v {
		runs, known := running[node.addr]
		switch {
		case !known:
			return fmt.Errorf("%q is not a node of the cluster", node.addr)
		case !runs && len(node.slots) > 0:
			return fmt.Errorf("%s is down or frozen and has slots", node.addr)
		case !runs:
			continue
		case len(node.slots) == 0 && v.primaryOf(node.addr) == "":
			return fmt.Errorf("%s has neither slots nor a primary", node.addr)
		}
		for _, flag := range node.flags {
			if !slices.Contains([]string{"myself", "master", "slave", "nofailover"}, flag) {
				return fmt.Errorf("%s is in state %q", node.addr, flag)
			}
		}
	}
	return nil
}
