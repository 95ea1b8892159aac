// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package tier

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// many is how many tiers a large installation is taken to have.
const many = 10_000

// generation returns a set of many tiers that all say the same number. Names come from the caller,
// so that a writer does not spend its time on them.
func generation(names []string, n int64) []*Tier {
	tiers := make([]*Tier, len(names))
	for i, name := range names {
		tiers[i] = limits(name, n)
	}
	return tiers
}

func manyNames() []string {
	names := make([]string, many)
	for i := range names {
		names[i] = fmt.Sprintf("tier-%05d", i)
	}
	return names
}

// TestManyTiers has readers look up while a writer replaces a table of 10,000 tiers. Each lookup
// finds its tier, no lookup sees an older set than the one before it, and a snapshot is one set.
func TestManyTiers(t *testing.T) {
	const replacements = 30
	names := manyNames()
	var table Table
	table.Replace(generation(names, 0))
	var lookups atomic.Int64
	done := make(chan struct{})
	var readers sync.WaitGroup
	for reader := range 4 {
		readers.Go(func() {
			newest := int64(0)
			for i := reader; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				found := table.Lookup(names[i*7919%many])
				if found == nil {
					t.Errorf("tier %s of every set was not found", names[i*7919%many])
					return
				}
				if n := found.Limits[0].Requests; n < newest {
					t.Errorf("%s is of set %d, after set %d was in force", found.Name, n, newest)
					return
				} else {
					newest = n
				}
				lookups.Add(1)
			}
		})
	}
	readers.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			all := table.All()
			if len(all) != many {
				t.Errorf("%d tiers, want %d", len(all), many)
				return
			}
			for _, one := range all {
				if one.Limits[0].Requests != all[0].Limits[0].Requests {
					t.Errorf("one set has %s of %d and %s of %d", all[0].Name, all[0].Limits[0].Requests, one.Name, one.Limits[0].Requests)
					return
				}
			}
		}
	})
	for n := range int64(replacements) {
		if changed := table.Replace(generation(names, n+1)); len(changed) != many {
			t.Errorf("replacement %d has changed %d tiers, want all", n, len(changed))
		}
	}
	close(done)
	readers.Wait()
	t.Logf("%d lookups during %d replacements of %d tiers", lookups.Load(), replacements, many)
}

// TestLookupTakesNoMemory counts what a lookup leaves to the garbage collector.
func TestLookupTakesNoMemory(t *testing.T) {
	names := manyNames()
	var table Table
	table.Replace(generation(names, 1))
	i := 0
	if n := testing.AllocsPerRun(1000, func() { table.Lookup(names[i%many]); i++ }); n != 0 {
		t.Errorf("%v allocations a lookup, want none", n)
	}
}

// BenchmarkLookup measures a lookup among 10,000 tiers, alone and while they are being replaced.
func BenchmarkLookup(b *testing.B) {
	names := manyNames()
	for name, swapping := range map[string]bool{"Alone": false, "WhileReplaced": true} {
		b.Run(name, func(b *testing.B) {
			var table Table
			table.Replace(generation(names, 0))
			done := make(chan struct{})
			var writer sync.WaitGroup
			sets := [][]*Tier{generation(names, 1), generation(names, 2)}
			replaced := 0
			if swapping {
				writer.Go(func() {
					for {
						select {
						case <-done:
							return
						default:
							table.Replace(sets[replaced%2])
							replaced++
						}
					}
				})
			}
			i := 0
			for b.Loop() {
				if table.Lookup(names[i%many]) == nil {
					b.Fatal("not found")
				}
				i++
			}
			elapsed := b.Elapsed()
			close(done)
			writer.Wait()
			if swapping {
				b.ReportMetric(float64(replaced)/elapsed.Seconds(), "replacements/s")
			}
		})
	}
}

// BenchmarkReplace10000 measures one replacement of 10,000 tiers: by the same ones, as after a status
// was written; by equal ones, as from a file that is read again; and by others.
func BenchmarkReplace10000(b *testing.B) {
	names := manyNames()
	one, equal, other := generation(names, 1), generation(names, 1), generation(names, 2)
	for name, sets := range map[string][2][]*Tier{"Same": {one, one}, "Equal": {one, equal}, "Other": {one, other}} {
		b.Run(name, func(b *testing.B) {
			var table Table
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				table.Replace(sets[i%2])
				i++
			}
		})
	}
}
