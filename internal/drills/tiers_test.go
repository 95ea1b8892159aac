// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package drills

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tierlimit/tierlimit/internal/processtest"
	"github.com/tierlimit/tierlimit/internal/redistest"
)

// TestTiers has the drills with tiers, one after the other on an API server of their own.
func TestTiers(t *testing.T) {
	t.Parallel()
	own := newInstallation(t)
	t.Run("EditedAllTheTime", func(t *testing.T) { drillEditedTier(t, own) })
	t.Run("TenThousand", func(t *testing.T) { drillManyTiers(t, own) })
}

// drillEditedTier edits a tier 100 times a second for 10 seconds. Where the machine takes longer
// for as many edits, they end after 20.
func drillEditedTier(t *testing.T, own *installation) {
	const first = 1000
	edits := 1000
	server := redistest.Start(t)
	own.apply(t, newTier("edited", "", first, 10*first))
	replicas := own.start(t, 2, server.URL(), patient)
	inForce(t, replicas, "edited")
	before, written := replicas[0].Resources(t), own.statusWrites(t)
	l := newBalancer(t, replicas...).begin(t, 6, 30*time.Millisecond, "tier=edited&user=a", "tier=edited&user=b", "tier=edited&user=c")
	begin := time.Now()
	edit := func(n int) error {
		object := newTier("edited", "", 0, 0)
		return own.client.Patch(context.Background(), object, client.RawPatch(types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"requests":{"perMinute":%d,"perDay":%d}}}`, first+n, 10*(first+n))))
	}
	// Several at a time, so that a slow answer delays no other: which is the last of two is left open, but
	// for the last of all.
	var failed atomic.Int64
	var editors sync.WaitGroup
	free := make(chan struct{}, 3)
	for i := 1; i < edits; i++ {
		if time.Since(begin) > 20*time.Second {
			edits = i
			break
		}
		time.Sleep(time.Until(begin.Add(time.Duration(i) * 10 * time.Millisecond)))
		free <- struct{}{}
		editors.Go(func() {
			if edit(i) != nil { // beside others it may lose five times in a row
				failed.Add(1)
			}
			<-free
		})
	}
	editors.Wait()
	if err := edit(edits); err != nil || int(failed.Load()) > edits/2 {
		t.Errorf("%d of %d edits failed, the last with %v", failed.Load(), edits, err)
	}
	edited := time.Now()
	policy := func(n int) string { return fmt.Sprintf(`"minute";q=%d;w=60, "day";q=%d;w=86400`, n, 10*n) }
	took := eventually(t, "the last edit is in force on all replicas", func() bool {
		for _, p := range replicas {
			if ask(t, p, "tier=edited&user=probe").header.Get("RateLimit-Policy") != policy(first+edits) {
				return false
			}
		}
		return true
	})
	all := l.end()
	after := replicas[0].Resources(t)

	all.answered(t)
	all.allDecided(t)
	existed := map[string]bool{}
	for i := range edits + 1 {
		existed[policy(first+i)] = true
	}
	all.none(t, "checks by a budget that never existed", func(a answer) bool { return !existed[a.header.Get("RateLimit-Policy")] })
	seen := map[string]bool{}
	for _, a := range all {
		seen[a.header.Get("RateLimit-Policy")] = true
	}
	if len(seen) < 3 {
		t.Errorf("only %d of %d budgets were ever in force", len(seen), edits)
	}
	// The status follows as well; generously, and never more than a write by each replica for each edit.
	writes := own.statusWrites(t) - written
	if writes > len(replicas)*(edits+1) {
		t.Errorf("%d writes of status for %d edits", writes, edits)
	}
	note(t, "%d edits in %v, 2 replicas: %v; %d of the budgets were met by a check", edits-int(failed.Load()), round(edited.Sub(begin)), all, len(seen))
	note(t, "the last edit was in force on both %v after it was made; %d writes of status", round(took), writes)
	note(t, "a replica took %v of a core (%.0f %%) and has %d MiB, %d MiB before", round(after.CPU-before.CPU),
		100*(after.CPU-before.CPU).Seconds()/time.Since(begin).Seconds(), after.Memory>>20, before.Memory>>20)
}

// drillManyTiers creates 10,000 tiers while checks are made.
func drillManyTiers(t *testing.T, own *installation) {
	const tiers = 10_000
	server := redistest.Start(t)
	own.apply(t, newTier("free", "", 1000, 0))
	replicas := own.start(t, 2, server.URL(), patient)
	inForce(t, replicas, "free")
	idle := replicas[0].Resources(t)
	// One that does not exist yet falls back to the default tier.
	l := newBalancer(t, replicas...).begin(t, 4, 40*time.Millisecond, "user=a", "tier=t5000&user=b")
	begin := time.Now()
	createTiers(t, own, tiers)
	created := time.Now()
	right := func(p *processtest.Process, i int, limit int) bool {
		header := ask(t, p, fmt.Sprintf("tier=t%d&user=probe", i)).header
		return header.Get("X-Tierlimit-Tier") == fmt.Sprint("t", i) && header.Get("X-RateLimit-Limit") == fmt.Sprint(limit)
	}
	took := eventually(t, "the last tier is in force on all replicas", func() bool {
		return right(replicas[0], tiers-1, tiers) && right(replicas[1], tiers-1, tiers)
	})
	for _, p := range replicas {
		for range 200 {
			if i := rand.IntN(tiers); !right(p, i, i+1) {
				t.Errorf("tier t%d is not in force with a limit of %d", i, i+1)
			}
		}
	}
	own.patch(t, "t5000", `{"spec":{"requests":{"perMinute":77777}}}`)
	changed := eventually(t, "a changed tier is in force on all replicas", func() bool {
		return right(replicas[0], 5000, 77777) && right(replicas[1], 5000, 77777)
	})
	all := l.end()
	full := replicas[0].Resources(t)
	starting := time.Now()
	another := own.start(t, 1, server.URL(), patient)[0]
	started := time.Since(starting)
	if !right(another, tiers-1, tiers) {
		t.Error("a new replica was ready without the last tier")
	}

	all.answered(t)
	all.allDecided(t)
	note(t, "%d tiers created in %v; all in force on 2 replicas %v after the last; checks meanwhile: %v", tiers, round(created.Sub(begin)), round(took), all)
	note(t, "one changed of %d: in force on both after %v, while the status of others is still written", tiers, round(changed))
	note(t, "memory of a replica: %d MiB with one tier, %d MiB with %d; a third replica was ready after %v", idle.Memory>>20, full.Memory>>20, tiers, round(started))
}

// createTiers creates tiers t0, t1 and so on; the limit of each is its number and one.
func createTiers(t *testing.T, own *installation, n int) {
	t.Helper()
	var next, failed atomic.Int64
	var wait sync.WaitGroup
	for range 16 {
		wait.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := own.client.Create(context.Background(), newTier(fmt.Sprint("t", i), "", int32(i+1), 0)); err != nil {
					failed.Add(1)
				}
			}
		})
	}
	wait.Wait()
	if failed.Load() > 0 {
		t.Fatalf("%d of %d tiers could not be created", failed.Load(), n)
	}
}
