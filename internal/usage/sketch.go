// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import "bytes"

// partUsers is how many users a part of a sketch counts.
const partUsers = 128

// none is no index.
const none = ^uint16(0)

// counter counts the requests of a user in one part, by one tier: a client of two routes with two tiers is
// not to hide from one of them.
type counter struct {
	hash  uint64
	name  []byte
	tier  *tierState
	used  uint32 // since it is counted
	over  uint32 // rejected since it is counted
	prior uint32 // at most so many came before
	head  uint16 // of its list
	next  uint16 // in the list
	place uint16 // in the heap
}

func (c *counter) total() uint32 { return c.used + c.over + c.prior }

// part is a Space-Saving sketch of some seconds (Metwally, Agrawal and El Abbadi, "Efficient Computation
// of Frequent and Top-k Elements in Data Streams", 2005). It counts so many users. Another one takes the
// place of the user with the smallest total and inherits it as its possible error. So of N requests
//
//   - whoever is counted has made at least used + over of them and at most prior more,
//   - no prior is larger than N / partUsers,
//   - whoever is not counted has made at most missed of them, which is not larger either.
//
// Until it is full it is exact.
type part struct {
	epoch    int64 // which stretch of time it counts
	missed   uint32
	counters []counter
	heads    [2 * partUsers]uint16
	heap     []uint16 // the smallest total on top; nil until it is full
}

// reset empties it for another stretch of time. What names took is used again.
func (p *part) reset(epoch int64) {
	p.epoch, p.missed, p.counters, p.heap = epoch, 0, p.counters[:0], p.heap[:0]
	for i := range p.heads {
		p.heads[i] = none
	}
}

// add counts a request. Place spreads hashes evenly.
func (p *part) add(hash, place uint64, name []byte, t *tierState, rejected bool) {
	head := uint16(place % uint64(len(p.heads)))
	i := p.find(head, hash, name, t)
	if i == none {
		i = p.admit(head, hash, name)
		p.counters[i].tier = t
	}
	c := &p.counters[i]
	if rejected {
		c.over++
	} else {
		c.used++
	}
	if len(p.heap) > 0 {
		p.down(int(c.place))
	}
}

func (p *part) find(head uint16, hash uint64, name []byte, t *tierState) uint16 {
	for i := p.heads[head]; i != none; i = p.counters[i].next {
		if c := &p.counters[i]; c.hash == hash && c.tier == t && bytes.Equal(c.name, name) {
			return i
		}
	}
	return none
}

// admit returns the counter of a user who is not counted yet.
func (p *part) admit(head uint16, hash uint64, name []byte) uint16 {
	n := len(p.counters)
	i := uint16(n) //nolint:gosec // G115: at most partUsers
	var c *counter
	switch {
	case n == partUsers:
		p.heapify()
		i = p.heap[0]
		c = &p.counters[i]
		p.unlink(i)
		p.missed = c.total()
		*c = counter{name: c.name, prior: p.missed, place: c.place}
	case n < cap(p.counters):
		p.counters = p.counters[:n+1]
		c = &p.counters[i]
		*c = counter{name: c.name}
	default:
		p.counters = append(p.counters, counter{})
		c = &p.counters[i]
	}
	c.hash, c.name, c.head, c.next = hash, append(c.name[:0], name...), head, p.heads[head]
	p.heads[head] = i
	return i
}

// unlink takes a counter out of its list.
func (p *part) unlink(i uint16) {
	at := &p.heads[p.counters[i].head]
	for *at != i {
		at = &p.counters[*at].next
	}
	*at = p.counters[i].next
}

// heapify makes the heap when it is first needed.
func (p *part) heapify() {
	if len(p.heap) > 0 {
		return
	}
	for i := range p.counters {
		p.heap = append(p.heap, uint16(i))
		p.counters[i].place = uint16(i)
	}
	for i := len(p.heap)/2 - 1; i >= 0; i-- {
		p.down(i)
	}
}

// down moves a counter that has grown to where it belongs in the heap.
func (p *part) down(i int) {
	moving := p.heap[i]
	total := p.counters[moving].total()
	for {
		child := 2*i + 1
		if child >= len(p.heap) {
			break
		}
		if right := child + 1; right < len(p.heap) && p.counters[p.heap[right]].total() < p.counters[p.heap[child]].total() {
			child = right
		}
		if p.counters[p.heap[child]].total() >= total {
			break
		}
		p.put(i, p.heap[child])
		i = child
	}
	p.put(i, moving)
}

func (p *part) put(place int, i uint16) {
	p.heap[place] = i
	p.counters[i].place = uint16(place) //nolint:gosec // G115: below partUsers
}
