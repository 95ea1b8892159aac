// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"container/heap"
	"sort"
)

const (
	// logBytes is what a log takes beside its key and its entries: the log itself, its places in the
	// map and in the heap, and what the allocator rounds up. Measured, see TestLocalMemory.
	logBytes = 200
	// entryBytes is what an entry takes, its time.
	entryBytes = 8
	// firstEntries is for how many entries a log is made.
	firstEntries = 4

	// sweepSteps is at how many logs a check looks at the most to find those that have expired. A
	// check makes fewer logs than that, so that expired ones do not pile up.
	sweepSteps = 16
	// sweepStepsWhenFull is the same for a check that would fail otherwise: about 0.1 ms.
	sweepStepsWhenFull = 512
)

// localLog is the log of one subject and window: the times of its entries, oldest first, in a ring.
type localLog struct {
	key    string
	width  int64   // of the window, in microseconds
	expiry int64   // not after the time at which the newest entry leaves
	times  []int64 // the ring
	first  int     // where the oldest entry is
	count  int     // entries
}

// at returns the time of an entry, 0 for the oldest.
func (l *localLog) at(i int) int64 {
	if i += l.first; i >= len(l.times) {
		i -= len(l.times)
	}
	return l.times[i]
}

// add adds the newest entry, for which there is room.
func (l *localLog) add(now int64) {
	i := l.first + l.count
	if i >= len(l.times) {
		i -= len(l.times)
	}
	l.times[i] = now
	l.count++
}

// trim removes the entries that have left: those not after the horizon.
func (l *localLog) trim(horizon int64) {
	gone := sort.Search(l.count, func(i int) bool { return l.at(i) > horizon })
	l.count -= gone
	if l.first += gone; l.first >= len(l.times) {
		l.first -= len(l.times)
	}
}

// resize gives the ring another size, at least the number of entries.
func (l *localLog) resize(capacity int) {
	times := make([]int64, capacity)
	for i := range l.count {
		times[i] = l.at(i)
	}
	l.times, l.first = times, 0
}

// grown returns for how many entries the log of a window must be made before one is added. A log
// grows to twice its size, but not beyond the limit.
func (w *localWindow) grown() int {
	switch {
	case w.log == nil || len(w.log.times) == 0:
		return int(min(firstEntries, w.limit))
	case w.log.count < len(w.log.times):
		return len(w.log.times)
	}
	return int(max(min(2*int64(w.log.count), w.limit), int64(w.log.count)+1))
}

// growth returns how many bytes more a window takes when an entry is added.
func (w *localWindow) growth() int64 {
	if w.log == nil {
		return logBytes + int64(len(w.key)) + int64(w.grown())*entryBytes
	}
	return int64(w.grown()-len(w.log.times)) * entryBytes
}

// bytes is what a log takes.
func (l *localLog) bytes() int64 {
	return logBytes + int64(len(l.key)) + int64(len(l.times))*entryBytes
}

// sweep looks at logs that may have expired, soonest first, and removes those that have. In a log
// that has not it makes room smaller that is not needed any more.
func (l *Local) sweep(now int64, steps int) {
	for ; steps > 0 && len(l.expiries) > 0 && l.expiries[0].expiry <= now; steps-- {
		log := l.expiries[0]
		log.trim(now - log.width)
		if log.count == 0 {
			heap.Pop(&l.expiries)
			delete(l.logs, log.key)
			l.bytes -= log.bytes()
			continue
		}
		if capacity := max(2*log.count, firstEntries); capacity <= len(log.times)/2 {
			l.bytes -= log.bytes()
			log.resize(capacity)
			l.bytes += log.bytes()
		}
		log.expiry = log.at(log.count-1) + log.width
		heap.Fix(&l.expiries, 0)
	}
}

// expiries is a heap of logs, the one that may expire first on top. An admission does not move its
// log: the log is moved when it comes to the top, once for each of its windows at the most.
type expiries []*localLog

func (e *expiries) push(log *localLog) { heap.Push(e, log) }

// Len implements heap.Interface.
func (e expiries) Len() int { return len(e) }

// Less implements heap.Interface.
func (e expiries) Less(i, j int) bool { return e[i].expiry < e[j].expiry }

// Swap implements heap.Interface.
func (e expiries) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *expiries) Push(log any) { *e = append(*e, log.(*localLog)) }

// Pop implements heap.Interface.
func (e *expiries) Pop() any {
	last := len(*e) - 1
	log := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	return log
}
