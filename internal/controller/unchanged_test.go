// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
	"github.com/tierlimit/tierlimit/internal/tier"
)

// sharing is a client that lists the same objects each time, as a cache without copies does.
type sharing struct {
	client.Client
	objects []v1alpha1.RateLimitTier
}

func (c *sharing) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*v1alpha1.RateLimitTierList).Items = c.objects
	return nil
}

// TestObjectsAreOnlyRead reconciles objects that belong to a cache: new ones, changed ones, and one whose
// status another replica has written.
func TestObjectsAreOnlyRead(t *testing.T) {
	c := newClient(t)
	t.Cleanup(func() { deleteAll(t) })
	expiresAt := metav1.NewTime(time.Now().Add(time.Hour).Truncate(time.Second))
	create(t, c, object("free"))
	create(t, c, object("pro", killSwitch("Redis migration", &expiresAt)))
	shared := &sharing{Client: c}
	d, other := newDirect(shared, false), newDirect(c, true)
	for _, change := range []func(){
		func() {},
		func() { update(t, c, "free", perMinute(6), mode(v1alpha1.ModeDryRun)) },
		func() { other.reconcile(t) },
		func() { d.clock = expiresAt.Time },
	} {
		change()
		var list v1alpha1.RateLimitTierList
		if err := c.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		shared.objects = list.Items
		before := list.DeepCopy()
		d.reconcile(t)
		if diff := cmp.Diff(before.Items, shared.objects); diff != "" {
			t.Errorf("an object of the cache was changed (-before +after):\n%s", diff)
		}
	}
}

// TestNothingToReport reports on tiers whose status is as it should be: that takes next to nothing for
// each, until its object or its kill switch changes.
func TestNothingToReport(t *testing.T) {
	now := time.Now()
	at := metav1.NewTime(now.Add(time.Hour).Truncate(time.Second))
	objects, outcomes := make([]v1alpha1.RateLimitTier, 100), make([]outcome, 100)
	for i := range objects {
		o := object("tier-"+strconv.Itoa(i), killSwitch("Redis migration", &at))
		o.UID, o.ResourceVersion, o.Generation = types.UID(o.Name), strconv.Itoa(i+1), 1
		compiled, err := Compile(o)
		if err != nil {
			t.Fatal(err)
		}
		outcomes[i] = outcome{inForce: compiled}
		v := alone()
		o.Status = statusFor(o, outcomes[i], &v, &progress{updated: 1}, now)
		objects[i] = *o
	}
	r := &Reconciler{Table: new(tier.Table), now: func() time.Time { return now }, reported: map[types.UID]*lastReport{}}
	report := func() {
		if _, err := r.report(t.Context(), objects, outcomes); err != nil {
			t.Error(err)
		}
	}
	report()
	if n := testing.AllocsPerRun(10, report); n >= float64(len(objects)) {
		t.Errorf("%v allocations for %d tiers of which nothing has changed, want less than one for each", n, len(objects))
	}

	last := r.reported[objects[0].UID]
	for name, tc := range map[string]struct {
		reason  string
		change  func(*v1alpha1.RateLimitTier, *outcome, *progress, *view)
		now     time.Time
		matters bool
	}{
		"Nothing":  {"the same object", func(*v1alpha1.RateLimitTier, *outcome, *progress, *view) {}, now, false},
		"Object":   {"its spec, or its status by somebody else", func(o *v1alpha1.RateLimitTier, _ *outcome, _ *progress, _ *view) { o.ResourceVersion = "101" }, now, true},
		"Invalid":  {"what is in force may be any tier", func(_ *v1alpha1.RateLimitTier, o *outcome, _ *progress, _ *view) { o.invalid = context.Canceled }, now, true},
		"Expired":  {"the object is the same, and yet limiting is back", func(*v1alpha1.RateLimitTier, *outcome, *progress, *view) {}, at.Time, true},
		"Behind":   {"a replica does not have it", func(_ *v1alpha1.RateLimitTier, _ *outcome, p *progress, _ *view) { p.waiting = []string{"b"} }, now, true},
		"Replicas": {"there is one more, which has it", func(_ *v1alpha1.RateLimitTier, _ *outcome, _ *progress, v *view) { v.replicas++ }, now, true},
		"Disabled": {"one lets everything pass", func(_ *v1alpha1.RateLimitTier, _ *outcome, _ *progress, v *view) { v.disabled++ }, now, true},
	} {
		o, out, p, seen := objects[0], outcomes[0], progress{updated: 1}, view{replicas: 1}
		tc.change(&o, &out, &p, &seen)
		on := basisOf(out, &seen, &p, tc.now)
		if got := !last.stillTrue(&o, &on); got != tc.matters {
			t.Errorf("%s: looked at again is %v, want %v: %s", name, got, tc.matters, tc.reason)
		}
	}
	if new(lastReport).stillTrue(new(v1alpha1.RateLimitTier), new(basis)) {
		t.Error("a tier of which nothing is known yet is not looked at")
	}
}
