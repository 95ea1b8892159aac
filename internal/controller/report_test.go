// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
	"github.com/tierlimit/tierlimit/internal/tier"
)

// others returns a Discovery that has found other replicas, which have everything or are asked in vain.
func others(now time.Time, replicas ...*other) *Discovery {
	d := &Discovery{Port: "8081", Log: logr.Discard(), Replicas: new(atomic.Int64)}
	d.roll = roll{known: true, reports: true, term: 1, replicas: 1 + len(replicas), others: map[string]*other{}, restsSince: now}
	for _, o := range replicas {
		d.roll.others[o.key] = o
	}
	return d
}

func upToDate(name string) *other {
	return &other{endpoint: endpoint{key: name, pod: name}, asked: 1 << 30}
}

// TestReplicasComeAndGoForLong scales up and down all day. The number in the status follows as fast at the
// end as at the beginning.
func TestReplicasComeAndGoForLong(t *testing.T) {
	c := newClient(t)
	t.Cleanup(func() { deleteAll(t) })
	create(t, c, object("free"))
	d := newDirect(c, false)
	for n := range 12 {
		if n%2 == 0 {
			d.Discovery = others(d.clock)
		} else {
			d.Discovery = others(d.clock, upToDate("b"))
		}
		began := d.clock
		for int32(1+n%2) != ptrOr(get(t, c, "free").Status.Replicas) {
			d.clock = d.clock.Add(max(d.reconcile(t).RequeueAfter, time.Millisecond))
			if d.clock.Sub(began) > time.Minute {
				t.Fatalf("change %d of the number of replicas is not reported within a minute", n+1)
			}
		}
		if took := d.clock.Sub(began); took > 2*settleTime {
			t.Errorf("change %d of the number of replicas was reported after %v", n+1, took)
		}
		d.reconcile(t)
		d.clock = d.clock.Add(time.Hour)
	}
}

func ptrOr(n *int32) int32 {
	if n == nil {
		return -1
	}
	return *n
}

// TestLookingTakesItsTime reports on tiers that lag behind and cannot be used, as their status says
// already. Nothing is to be written, so that nothing is to be done again, however long it took.
func TestLookingTakesItsTime(t *testing.T) {
	const tiers = 1000
	clock := time.Now()
	r := &Reconciler{
		Recorder: events.NewFakeRecorder(1), Table: &tier.Table{}, reported: map[types.UID]*lastReport{}, minors: newMinors(),
		now: func() time.Time { clock = clock.Add(time.Millisecond); return clock },
	}
	r.Discovery = others(clock.Add(-time.Hour), &other{endpoint: endpoint{key: "c", pod: "c"}, failures: 3})
	v := r.look()
	objects := make([]v1alpha1.RateLimitTier, tiers)
	outcomes := make([]outcome, tiers)
	for i := range objects {
		o := object(fmt.Sprintf("tier-%d", i))
		o.UID, o.Generation, o.ResourceVersion = types.UID(o.Name), 1, "1"
		compiled, err := Compile(o)
		if err != nil {
			t.Fatal(err)
		}
		p := progress{updated: 1, silent: []string{"c"}}
		outcomes[i] = outcome{inForce: compiled}
		if i%2 == 0 {
			p, outcomes[i].invalid = progress{}, errors.New("no budget")
		}
		o.Status = statusFor(o, outcomes[i], &v, &p, clock)
		objects[i] = *o
	}
	for range 3 {
		result, err := r.report(t.Context(), objects, outcomes)
		if err != nil || result.RequeueAfter != 0 {
			t.Errorf("reported with %v, and again after %v", err, result.RequeueAfter)
		}
	}
}

// TestStillTrue says when the status of a tier that is not in force everywhere has to be looked at again.
func TestStillTrue(t *testing.T) {
	o := object("free")
	o.ResourceVersion = "7"
	lastGood := &tier.Tier{Name: "free"}
	lags := basis{replicas: 3, progress: progress{updated: 1, waiting: []string{"b", "c"}}}
	for name, tc := range map[string]struct {
		reason  string
		was, is basis
		want    bool
	}{
		"Lagging":    {reason: "the same ones lag behind", was: lags, is: basis{replicas: 3, progress: progress{updated: 1, waiting: []string{"c", "b"}}}, want: true},
		"Others":     {reason: "another lags behind", was: lags, is: basis{replicas: 3, progress: progress{updated: 1, waiting: []string{"c", "d"}}}},
		"Silent":     {reason: "one cannot be asked any more", was: lags, is: basis{replicas: 3, progress: progress{updated: 1, waiting: []string{"c"}, silent: []string{"b"}}}},
		"Invalid":    {reason: "it is as wrong as before", was: basis{invalid: "a", lastGood: lastGood}, is: basis{invalid: "a", lastGood: lastGood}, want: true},
		"NoLastGood": {reason: "there is another last good one", was: basis{invalid: "a", lastGood: lastGood}, is: basis{invalid: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := lastReport{}
			l.found(o.ResourceVersion, o.Status, tc.was)
			if got := l.stillTrue(o, &tc.is); got != tc.want {
				t.Errorf("still true: %v, want %v: %s", got, tc.want, tc.reason)
			}
		})
	}
}

// TestMinorsAreBounded counts how many small changes are written in one second, however often it is
// looked.
func TestMinorsAreBounded(t *testing.T) {
	minors, now, written := newMinors(), time.Now(), 0
	for range 20 {
		for range 50 {
			if minors.AllowN(now, 1) {
				written++
			}
		}
		now = now.Add(minInterval)
	}
	if written > minorsPerSecond+minorsAtOnce {
		t.Errorf("%d in one second", written)
	}
}
