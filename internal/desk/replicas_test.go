// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

// answersOf are those of one replica, which has seen one user of its own and one of all.
func answersOf(replica string) map[string]any {
	users := []adminapi.TopUser{
		{Subject: adminapi.Subject{User: "everywhere"}, Tier: "free", Used: 10, Rejected: 4},
		{Subject: adminapi.Subject{User: "only-" + replica, Kind: "ip", Tenant: "a b\x1b[2J"}, Tier: "free", Used: 3, UsedError: 1},
	}
	limits := []adminapi.Limit{{Window: "minute", Requests: 2}, {Window: "day", Requests: 100}}
	return map[string]any{
		getTop: adminapi.Top{Replicas: []string{replica}, By: "used", WindowSeconds: 60, Users: users},
		getSimulation: adminapi.Simulation{Replicas: []string{replica}, Tier: freeTier, Limits: limits, Now: now, Since: *after(-24 * time.Hour), KnownSeconds: 86400, SampledOneIn: 1,
			Users: []adminapi.SimulatedUser{{ID: "00000000000000ff", Requests: 9, Rejected: 3, RejectedNow: true}, {ID: fmt.Sprintf("%016x", replica[len(replica)-1]), Requests: 1}}},
		getDecisions: adminapi.Decisions{Replicas: []string{replica}, Now: now, StartedAt: *after(-time.Hour), Tiers: []adminapi.TierDecisions{
			{Tier: "free", Mode: "Enforce", Outcomes: map[string]int64{"admitted": 100, "rejected": 50, "failed_open": 0}, Users: users},
			{Tier: "pro", Mode: "DryRun", KillSwitch: &adminapi.KillSwitch{}, Outcomes: map[string]int64{"disabled": 10}},
		}},
	}
}

// TestEveryReplica asks three replicas, one of which does not answer.
func TestEveryReplica(t *testing.T) {
	t.Setenv("TZ", "UTC")
	space := namespace(t)
	kubelet := cluster.StartKubelet(t)
	for _, name := range []string{"tierlimit-a", "tierlimit-b"} {
		kubelet.Pod(t, space, name, 8444, startAdmin(t, true, answersOf(name)).address(), nil)
	}
	kubelet.Pod(t, space, "tierlimit-c", 8444, "", nil)
	cluster := []string{"--kubeconfig", cluster.Kubeconfig(t, "alice", "system:masters"), "-n", space}
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"top":   {[]string{"top"}, []string{"everywhere         user", "free   20     8", "only-tierlimit-b", `"a b\x1b[2J"`, "~3"}},
		"limit": {[]string{"top", "--limit", "1", "-o", "wide"}, []string{"USED ERROR", "everywhere"}},
		"simulate": {[]string{"simulate", "--tier", "free", "--per-minute", "2"}, []string{
			"1 (33.3%) of 3 users would have been rejected at least once, and 1 (33.3%) would be now.\n3 (27.3%) of 11 requests would have been rejected.\n",
			"Tier:     free: 5 a minute, 100 a day; Enforce, FailClosed\nTried:    2 a minute, 100 a day\n", "by 2 replicas"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := call(t, nil, append(tc.args, cluster...)...)
			for _, want := range append(tc.want, "") {
				if got.code != 0 || !strings.Contains(got.stdout, want) {
					t.Errorf("want %q: %v", want, got)
				}
			}
			for _, want := range []string{"Warning: Pod tierlimit-c cannot be asked", "Warning: 2 of 3 replicas answered"} {
				if !strings.Contains(got.stderr, want) {
					t.Errorf("want %q: %v", want, got)
				}
			}
			if name == "limit" && strings.Contains(got.stdout, "only-") {
				t.Error(got)
			}
		})
	}
	got := call(t, nil, append([]string{"top", "-o", "json"}, cluster...)...)
	var top adminapi.Top
	if err := json.Unmarshal([]byte(got.stdout), &top); err != nil || !cmp.Equal(top.Replicas, []string{"tierlimit-a", "tierlimit-b"}) || len(top.Users) != 3 {
		t.Errorf("-o json: %v", got)
	}
}

// TestWatch has the counters go on between two looks.
func TestWatch(t *testing.T) {
	t.Setenv("TZ", "UTC")
	first := answersOf("tierlimit-a")
	api := startAdmin(t, false, first)
	next := maps.Clone(first)
	decisions := first[getDecisions].(adminapi.Decisions)
	decisions.Now = *after(10 * time.Second)
	decisions.Tiers = []adminapi.TierDecisions{
		{Tier: "free", Mode: "Enforce", Outcomes: map[string]int64{"admitted": 110, "granted": 10, "rejected": 85, "failed_open": 5}, Users: decisions.Tiers[0].Users},
		decisions.Tiers[1],
	}
	next[getDecisions] = decisions
	go func() {
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			if len(api.requests()) > 0 {
				api.mu.Lock()
				api.answers = next
				api.mu.Unlock()
				return
			}
		}
	}()
	got := call(t, nil, "watch", "--count", "1", "--interval", "1s", "--server", api.URL)
	want := `2026-11-30 09:00:10 UTC  1 replica

TIER   MODE      ADMITTED/S   REJECTED/S   OTHER/S   NOTE
free   Enforce   2.0          3.5          0.5       failed_open 0.5
pro    DryRun    0.0          0.0          0.0       kill switch engaged

USER (LAST MINUTE)   KIND   TENANT         ROUTE   TIER   USED   REJECTED   
everywhere           user   -              -       free   10     4          <- rejected
only-tierlimit-a     ip     "a b\x1b[2J"   -       free   ~3     0          

`
	if diff := cmp.Diff(want, got.stdout); got.code != 0 || diff != "" {
		t.Errorf("%v (-want +got):\n%s", got, diff)
	}
	got = call(t, nil, "watch", "--count", "2", "--interval", "500ms", "--tier", "pro", "-o", "json", "--server", api.URL)
	decoder := json.NewDecoder(strings.NewReader(got.stdout))
	for i := range 2 {
		var d adminapi.Decisions
		if err := decoder.Decode(&d); err != nil || len(d.Tiers) != 1 || d.Tiers[0].Outcomes["disabled"] != 10 {
			t.Errorf("-o json, table %d: %v: %v", i, err, got)
		}
	}
	for _, format := range [][]string{nil, {"-o", "json"}} {
		got := call(t, nil, append([]string{"watch", "--count", "1", "--tier", "nope", "--server", api.URL}, format...)...)
		if got.code != 1 || got.stdout != "" || !strings.Contains(got.stderr, "there is no RateLimitTier nope") {
			t.Errorf("a tier that does not exist %v: %v", format, got)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	go func() { time.Sleep(time.Second); cancel() }() // Ctrl-C
	if got := callWith(ctx, strings.NewReader(""), nil, "watch", "--server", api.URL); got.code != 0 || strings.Contains(got.stderr, "tierlimit:") {
		t.Errorf("Ctrl-C: %v", got)
	}
}

// TestExplain prints the verdict first, then the reasons.
func TestExplain(t *testing.T) {
	t.Setenv("TZ", "UTC")
	api := startAdmin(t, false, map[string]any{getExplain: adminapi.Explanation{
		Now: now, Status: 429, Outcome: "rejected", Window: "minute", Limit: 5, RetryAfterSeconds: 12, RetryAt: after(11500 * time.Millisecond),
		Reasons:  []string{"The caller is 8421, by X-User.", "The minute is full.\x1b[2J"},
		Identity: &adminapi.Identity{Subject: user8421, Source: "header:X-User"}, Tier: &freeTier,
		Headers: map[string]string{"Retry-After": "12"},
	}})
	got := call(t, nil, "explain", "-H", "X-User: 8421", "--tier", "free", "--peer", "192.0.2.1", "-o", "wide", "--server", api.URL)
	want := `429 Too Many Requests: the request would be rejected; one would pass in 12s (09:00:12 UTC)
  - The caller is 8421, by X-User.
  - The minute is full.` + "\uFFFD" + `[2J

Caller:       user 8421, by header:X-User
Tier:         free: 5 a minute, 100 a day; Enforce, FailClosed
Window:       minute: 0 of 5 remaining
Outcome:      rejected in tierlimit_checks_total
Header:       Retry-After: 12
`
	if diff := cmp.Diff(want, got.stdout); got.code != 0 || diff != "" {
		t.Errorf("%v (-want +got):\n%s", got, diff)
	}
	if diff := cmp.Diff([]asked{{Method: "GET", Path: adminapi.PathExplain, Query: "header=X-User%3A+8421&peer=192.0.2.1&tier=free"}}, api.requests()); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// TestFormats prints answers as they are: also what this client does not know.
func TestFormats(t *testing.T) {
	api := startAdmin(t, false, map[string]any{getQuota: map[string]any{"user": "8421", "new": []int{1}, "auditID": "3f", "tier": map[string]any{"name": "free"}}})
	for format, want := range map[string]string{
		"json": "{\n  \"auditID\": \"3f\",\n  \"new\": [\n    1\n  ],\n  \"tier\": {\n    \"name\": \"free\"\n  },\n  \"user\": \"8421\"\n}\n",
		"yaml": "auditID: 3f\nnew:\n- 1\ntier:\n  name: free\nuser: \"8421\"\n",
	} {
		if got := call(t, nil, "get", "8421", "-o", format, "--server", api.URL); got.code != 0 || got.stdout != want {
			t.Errorf("-o %s: %v", format, got)
		}
	}
}

// TestCompletion asks kubectl, which asks the plugin.
func TestCompletion(t *testing.T) {
	admin := cluster.Kubeconfig(t, "alice", "system:masters")
	tier := `{"apiVersion":"tierlimit.dev/v1alpha1","kind":"RateLimitTier","metadata":{"name":"gold"},"spec":{"requests":{"perMinute":5}}}`
	cluster.MustKubectl(t, admin, tier, "apply", "-f", "-")
	for words, want := range map[string]string{
		"":              "simulate",
		"get --kind ":   "upstream",
		"top --by ":     "rejected",
		"get 1 --tier ": "gold",
		"get 1 -n ":     "kube-system",
		"reset 1 -o ":   "yaml",
	} {
		output, err := kubectl(t, admin, append([]string{"__complete", "tierlimit"}, strings.Split(words, " ")...)...)
		if err != nil || !strings.Contains(output, want) {
			t.Errorf("%q is not completed by %q: %v\n%s", words, want, err, output)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := call(t, nil, "completion", shell); got.code != 0 || !strings.Contains(got.stdout, "tierlimit") {
			t.Errorf("completion %s: %v", shell, got)
		}
	}
}
