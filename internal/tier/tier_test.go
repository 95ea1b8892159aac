// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package tier

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// limits returns a tier of n requests a minute.
func limits(name string, n int64) *Tier {
	return &Tier{Name: name, Limits: []limiter.Limit{{Requests: n, Window: Minute}}}
}

func TestTable(t *testing.T) {
	var table Table
	if table.Ready() || table.Lookup("free") != nil || table.All() != nil {
		t.Error("a table that has not been filled is ready or has tiers")
	}
	if changed := table.Replace(nil); len(changed) != 0 || !table.Ready() || len(table.All()) != 0 {
		t.Errorf("after an empty set: changes %v, ready %v, %d tiers; want none, true, none", changed, table.Ready(), len(table.All()))
	}

	free, pro := limits("free", 5), limits("pro", 60)
	table.Replace([]*Tier{pro, free})
	if got := table.Lookup("free"); got != free {
		t.Errorf("Lookup(free) is %v, want %v", got, free)
	}
	if got := table.Lookup("enterprise"); got != nil {
		t.Errorf("Lookup of an unknown tier is %v, want nil", got)
	}
	if diff := cmp.Diff([]*Tier{free, pro}, table.All()); diff != "" {
		t.Errorf("All, ordered by name (-want +got):\n%s", diff)
	}
	table.Replace([]*Tier{pro})
	if table.Lookup("free") != nil {
		t.Error("a tier that is not in the set any more is still found")
	}
}

func TestReplaceReturnsChanges(t *testing.T) {
	engaged, dry, open := limits("free", 5), limits("free", 5), limits("free", 5)
	engaged.KillSwitch.Engaged, dry.DryRun, open.FailurePolicy = true, true, FailOpen
	at := time.Date(2126, 12, 1, 6, 0, 0, 0, time.UTC)
	until := func(at time.Time) *Tier {
		t := limits("free", 5)
		t.KillSwitch = KillSwitch{Engaged: true, ExpiresAt: at}
		return t
	}
	for name, tc := range map[string]struct {
		reason        string
		before, after []*Tier
		want          []Change
	}{
		"First":   {"the line about the start tells", nil, []*Tier{limits("free", 5)}, nil},
		"Added":   {"ordered by name", []*Tier{}, []*Tier{limits("pro", 60), limits("free", 5)}, []Change{{"free", "5 per 1m0s"}, {"pro", "60 per 1m0s"}}},
		"Changed": {"another budget", []*Tier{limits("free", 5)}, []*Tier{limits("free", 6)}, []Change{{"free", "6 per 1m0s"}}},
		"Engaged": {"it must be seen in the log", []*Tier{limits("free", 5)}, []*Tier{engaged}, []Change{{"free", "5 per 1m0s, KILL SWITCH ENGAGED: every request passes"}}},
		"DryRun":  {"nobody is rejected any more", []*Tier{limits("free", 5)}, []*Tier{dry}, []Change{{"free", "5 per 1m0s, dry run"}}},
		"Policy":  {"another answer in an outage", []*Tier{limits("free", 5)}, []*Tier{open}, []Change{{"free", "5 per 1m0s, fail open"}}},
		"Later":   {"a kill switch that lasts longer", []*Tier{until(at)}, []*Tier{until(at.Add(time.Hour))}, []Change{{"free", "5 per 1m0s, KILL SWITCH ENGAGED: every request passes until 2126-12-01T07:00:00Z"}}},
		"Zone":    {"the same moment elsewhere", []*Tier{until(at)}, []*Tier{until(at.In(time.FixedZone("", 3600)))}, nil},
		"Unsaid":  {"what the words do not tell is no change", []*Tier{until(at)}, []*Tier{until(at.Add(1))}, nil},
		"Removed": {"it falls back to the default tier now", []*Tier{limits("free", 5)}, nil, []Change{{"free", "removed"}}},
		"Same":    {"a new object that says the same", []*Tier{limits("free", 5)}, []*Tier{limits("free", 5)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var table Table
			if tc.before != nil {
				table.Replace(tc.before)
			}
			if diff := cmp.Diff(tc.want, table.Replace(tc.after)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestReadersSeeWholeSets has readers look up two tiers of one set while sets are replaced.
func TestReadersSeeWholeSets(t *testing.T) {
	var table Table
	table.Replace([]*Tier{limits("a", 0), limits("b", 0)})
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				all := table.All()
				if len(all) != 2 || all[0].Limits[0].Requests != all[1].Limits[0].Requests {
					t.Errorf("half of a set: %v", all)
					return
				}
				if table.Lookup("a") == nil {
					t.Error("a tier of every set was not found")
					return
				}
			}
		})
	}
	for n := range int64(1000) {
		table.Replace([]*Tier{limits("a", n), limits("b", n)})
	}
	close(done)
	readers.Wait()
}

func TestKillSwitchEngagedAt(t *testing.T) {
	at := time.Date(2026, 12, 1, 6, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		reason string
		k      KillSwitch
		now    time.Time
		want   bool
	}{
		"Zero":        {"a tier without a switch limits", KillSwitch{}, at, false},
		"Engaged":     {"until somebody says otherwise", KillSwitch{Engaged: true}, at, true},
		"Before":      {"a nanosecond before", KillSwitch{Engaged: true, ExpiresAt: at}, at.Add(-1), true},
		"At":          {"to the second", KillSwitch{Engaged: true, ExpiresAt: at}, at, false},
		"After":       {"limiting is back", KillSwitch{Engaged: true, ExpiresAt: at}, at.Add(time.Hour), false},
		"OtherZone":   {"the same moment elsewhere", KillSwitch{Engaged: true, ExpiresAt: at}, at.In(time.FixedZone("", 5*3600)), false},
		"OnlyExpires": {"an expiry alone engages nothing", KillSwitch{ExpiresAt: at}, at.Add(-1), false},
	} {
		if got := tc.k.EngagedAt(tc.now); got != tc.want {
			t.Errorf("%s: engaged is %v, want %v: %s", name, got, tc.want, tc.reason)
		}
	}
}

func TestDescribe(t *testing.T) {
	expiry := time.Date(2026, 12, 1, 7, 0, 0, 0, time.FixedZone("", 3600))
	full := &Tier{
		Name:          "free",
		Limits:        []limiter.Limit{{Requests: 5, Window: Minute}, {Requests: 100, Window: Day}},
		DryRun:        true,
		FailurePolicy: FailOpen,
		KillSwitch:    KillSwitch{Engaged: true, ExpiresAt: expiry},
	}
	common := "5 per 1m0s, 100 per 24h0m0s, dry run, fail open, "
	for now, want := range map[time.Time]string{
		expiry.Add(-1): common + "KILL SWITCH ENGAGED: every request passes until 2026-12-01T06:00:00Z",
		expiry:         common + "kill switch expired at 2026-12-01T06:00:00Z",
	} {
		if got := full.describe(now); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	local := &Tier{Name: "free", Limits: full.Limits[:1], FailurePolicy: FailLocal}
	if got, want := fmt.Sprint(local), "5 per 1m0s, fail local"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	plain := &Tier{Name: "free", Limits: full.Limits[:1], KillSwitch: KillSwitch{Engaged: true}}
	if got, want := fmt.Sprint(plain), "5 per 1m0s, KILL SWITCH ENGAGED: every request passes"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestExpiryIsAChange replaces a set by itself after its kill switch has expired.
func TestExpiryIsAChange(t *testing.T) {
	expiry := time.Now().Add(20 * time.Millisecond)
	set := []*Tier{{Name: "free", Limits: []limiter.Limit{{Requests: 5, Window: Minute}}, KillSwitch: KillSwitch{Engaged: true, ExpiresAt: expiry}}}
	var table Table
	table.Replace(set)
	time.Sleep(time.Until(expiry))
	changed := table.Replace(set)
	if len(changed) != 1 || changed[0].Name != "free" || !strings.Contains(changed[0].Now, "kill switch expired") {
		t.Errorf("changes %v", changed)
	}
	if again := table.Replace(set); len(again) != 0 {
		t.Errorf("nothing has changed since, but %v", again)
	}
}
