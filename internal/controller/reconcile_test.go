// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
	"github.com/tierlimit/tierlimit/internal/tier"
)

// direct is a Reconciler without a manager, called by hand, with its own clock. It talks to the
// real API server.
type direct struct {
	*Reconciler
	clock time.Time
}

func newDirect(c client.Client, disabled bool) *direct {
	d := &direct{clock: time.Now()}
	d.Reconciler = &Reconciler{
		Client:           c,
		Recorder:         events.NewFakeRecorder(100),
		Table:            &tier.Table{},
		GloballyDisabled: disabled,
		now:              func() time.Time { return d.clock },
		reported:         map[types.UID]*lastReport{},
		minors:           newMinors(),
	}
	return d
}

func (d *direct) reconcile(t *testing.T) reconcile.Result {
	t.Helper()
	result, err := d.Reconcile(t.Context(), theTable)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func clientKey(name string) client.ObjectKey { return client.ObjectKey{Name: name} }

// TestLastGoodStays has a tier turn into one that cannot be used. The validation of the API server
// keeps such a spec out, so that it is put in on the way from there.
func TestLastGoodStays(t *testing.T) {
	broken := map[string]bool{}
	c := newClient(t)
	t.Cleanup(func() { deleteAll(t) })
	d := newDirect(interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := c.List(ctx, list, opts...); err != nil {
				return err
			}
			items := list.(*v1alpha1.RateLimitTierList).Items
			for i := range items {
				if broken[items[i].Name] {
					items[i].Spec.Mode = "Bogus"
				}
			}
			return nil
		},
	}), false)
	inForce := func(name, want string) {
		t.Helper()
		if err := inTables([]*replica{{table: d.Table}}, name, want)(); err != nil {
			t.Error(err)
		}
	}
	reported := func(name, want string) {
		t.Helper()
		if err := hasReasons(t, c, name, want)(); err != nil {
			t.Error(err)
		}
	}

	create(t, c, object("free"))
	create(t, c, object("pro"))
	d.reconcile(t)

	broken["free"], broken["never"] = true, true
	create(t, c, object("never"))
	update(t, c, "free", perMinute(6))
	update(t, c, "pro", perMinute(60))
	d.reconcile(t)
	inForce("free", "5 per 1m0s")
	reported("free", "Invalid/Enforcing")
	inForce("pro", "60 per 1m0s")
	reported("pro", "InForce/Enforcing")
	inForce("never", "")
	reported("never", "Invalid/NotInForce")

	broken = map[string]bool{}
	d.reconcile(t)
	inForce("free", "6 per 1m0s")
	reported("free", "InForce/Enforcing")
	inForce("never", "5 per 1m0s")
	reported("never", "InForce/Enforcing")

	broken = map[string]bool{"free": true}
	if err := c.Delete(t.Context(), object("free")); err != nil {
		t.Fatal(err)
	}
	d.reconcile(t)
	inForce("free", "")
	if len(d.reported) != 2 {
		t.Errorf("%d tiers are remembered, want the 2 that exist", len(d.reported))
	}
}

// TestLastWordOfAReplicaThatIsGone has a replica with RATE_LIMIT_DISABLED overwrite a status and
// disappear. The one that stays leaves it standing for a while, and then tells the truth.
func TestLastWordOfAReplicaThatIsGone(t *testing.T) {
	c := newClient(t)
	t.Cleanup(func() { deleteAll(t) })
	stays, goes := newDirect(c, false), newDirect(c, true)
	says := func(want string) {
		t.Helper()
		if err := hasReasons(t, c, "free", want)(); err != nil {
			t.Fatal(err)
		}
	}

	create(t, c, object("free"))
	stays.reconcile(t)
	says("InForce/Enforcing")
	goes.reconcile(t)
	says("InForce/GloballyDisabled")

	if got := stays.reconcile(t).RequeueAfter; got != firstPatience {
		t.Errorf("comes back after %v, want %v", got, firstPatience)
	}
	says("InForce/GloballyDisabled")
	stays.clock = stays.clock.Add(firstPatience)
	stays.reconcile(t)
	says("InForce/Enforcing")

	// Should the other one exist still, each waits twice as long every time.
	goes.reconcile(t)
	goes.clock = goes.clock.Add(firstPatience)
	goes.reconcile(t)
	says("InForce/GloballyDisabled")
	if got := stays.reconcile(t).RequeueAfter; got != 2*firstPatience {
		t.Errorf("comes back after %v, want %v", got, 2*firstPatience)
	}
}

// TestLostRace has another replica write between reading and writing.
func TestLostRace(t *testing.T) {
	c := newClient(t)
	t.Cleanup(func() { deleteAll(t) })
	winner := newDirect(c, false)
	loser := newDirect(interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			winner.reconcile(t)
			return err
		},
	}), false)
	create(t, c, object("free"))
	if got := loser.reconcile(t).RequeueAfter; got != retryDelay {
		t.Errorf("after a lost race it comes back in %v, want %v", got, retryDelay)
	}
	if n := len(loser.Recorder.(*events.FakeRecorder).Events); n != 0 {
		t.Errorf("the loser has recorded %d Events", n)
	}
	if n := len(winner.Recorder.(*events.FakeRecorder).Events); n != 1 {
		t.Errorf("the winner has recorded %d Events, want 1", n)
	}
}
