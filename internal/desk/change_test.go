// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

var (
	wasReset = adminapi.ResetResult{Subject: user8421, AuditID: "3f9a21c0d2e4b517", Tier: "free", EverywhereAfterMilliseconds: 250,
		Windows: []adminapi.Cleared{{Window: "minute", Used: 5}, {Window: "day", Used: 42}}}
	wasGranted = adminapi.GrantResult{Subject: user8421, AuditID: "3f9a21c0d2e4b517", Tier: "free", EverywhereAfterMilliseconds: 250,
		Grant:  &adminapi.Grant{Requests: 100, Remaining: 100, ExpiresAt: time.Date(2030, 1, 2, 9, 0, 0, 0, time.UTC)},
		Before: &adminapi.Grant{Requests: 100, Used: 93, Remaining: 7}}
	wasRevoked = adminapi.GrantResult{Subject: user8421, AuditID: "3f9a21c0d2e4b517", Tier: "free",
		Before: &adminapi.Grant{Requests: 100, Used: 93, Remaining: 7}}
	changes = map[string]any{getQuota: blocked, deleteQuota: wasReset, putGrant: wasGranted, deleteGrant: wasRevoked}
)

// TestChange resets, grants and revokes: it says exactly what will happen, asks, and says what was done.
func TestChange(t *testing.T) {
	t.Setenv("TZ", "UTC")
	cases := map[string]struct {
		args            []string
		asks            string // on the terminal
		path, query     string
		method, printed string
	}{
		"reset": {
			args: []string{"reset", "8421", "--tier", "free"}, method: "DELETE", path: adminapi.PathQuota, query: "tier=free&user=8421",
			asks: "Clear the minute (5 of 5 used) and the day (42 of 100 used) of user 8421? This cannot be taken back. [y/N] ",
			printed: "Cleared the minute (5 requests) and the day (42 requests) of user 8421. Every replica knows it within 250ms.\n" +
				"Audit ID 3f9a21c0d2e4b517 (in the log and, in a cluster, in the Events of the tier free).\n",
		},
		"a window": {
			args: []string{"reset", "8421", "--window", "minute"}, method: "DELETE", path: adminapi.PathQuota, query: "user=8421&window=minute",
			asks:    "Clear the minute (5 of 5 used) of user 8421? This cannot be taken back. [y/N] ",
			printed: "Cleared the minute (5 requests)",
		},
		"grant": {
			args: []string{"grant", "8421", "--requests", "100", "--for", "1h"}, method: "PUT", path: adminapi.PathGrant, query: "for=1h0m0s&requests=100&user=8421",
			asks:    "Grant 100 extra requests to user 8421 for 1h, in place of the grant with 0 requests left? [y/N] ",
			printed: "Granted 100 extra requests to user 8421 until 2030-01-02 09:00:00 UTC, in place of a grant with 7 requests left. Every replica knows it within 250ms.\n",
		},
		"revoke": {
			args: []string{"revoke", "8421"}, method: "DELETE", path: adminapi.PathGrant, query: "user=8421",
			asks:    "Take the grant of user 8421 back, with 0 requests left? [y/N] ",
			printed: "Took the grant of user 8421 back, with 7 of 100 requests left. Every replica knows it now.\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := startAdmin(t, false, changes)
			args := slices.Concat(tc.args, []string{"--server", api.URL})
			change := asked{Method: tc.method, Path: tc.path, Query: tc.query}

			for answer, done := range map[string]bool{"y\n": true, "YES\n": true, "n\n": false, "\n": false, "\x04": false} {
				person, program := openTerminal(t)
				if _, err := person.WriteString(answer); err != nil {
					t.Fatal(err)
				}
				got := callWith(t.Context(), program, nil, args...)
				if !strings.Contains(got.stderr, "NEXT SLOT") || !strings.Contains(got.stderr, tc.asks) {
					t.Errorf("want what get shows, and %q: %v", tc.asks, got)
				}
				requests := api.requests()
				if wasDone := len(requests) > 1; wasDone != done || wasDone && requests[1] != change || (got.code == 0) != done || strings.Contains(got.stdout, tc.printed) != done {
					t.Errorf("%q: want it done: %v, with %q: asked %v: %v", answer, done, tc.printed, requests, got)
				}
				if !done && !strings.Contains(got.stderr, "tierlimit: nothing was changed") {
					t.Errorf("%q: %v", answer, got)
				}
			}
			if got := call(t, nil, args...); got.code != 2 || !strings.Contains(got.stderr, "give --yes") || len(api.requests()) > 0 {
				t.Errorf("without a terminal and without --yes: %v", got)
			}
			got := call(t, nil, append(args, "--yes")...)
			if diff := cmp.Diff([]asked{change}, api.requests()); diff != "" || got.code != 0 || !strings.Contains(got.stdout, tc.printed) {
				t.Errorf("--yes: %v (-want +got):\n%s", got, diff)
			}
			got = call(t, nil, append(args, "--yes", "-o", "json")...)
			if got.code != 0 || !json.Valid([]byte(got.stdout)) || !strings.Contains(got.stdout, `"auditID": "3f9a21c0d2e4b517"`) {
				t.Errorf("-o json: %v", got)
			}
		})
	}
}

// TestWrongCommandLine expects exit code 2, one line, and no request.
func TestWrongCommandLine(t *testing.T) {
	api := startAdmin(t, false, changes)
	for args, want := range map[string]string{
		"get":                                      "no USER",
		"get a b":                                  "2 users: give one USER",
		"get 8421 --kind mail":                     "--kind is \"mail\": use ip, key, anonymous, upstream",
		"get 8421 -o xml":                          "--output is \"xml\": use json, yaml, wide",
		"get 8421 --last 101":                      "--last is 101: use 0 to 100",
		"get 8421 --tires free":                    "unknown flag: --tires",
		"get 8421 --request-timeout soon":          "--request-timeout is \"soon\"",
		"grant 8421 --for 1h --yes":                "say how many requests to grant and for how long, such as --requests 100 --for 1h",
		"grant 8421 --requests 1 --yes":            "say how many requests to grant and for how long",
		"grant 8421 --requests 1 --for 1.5s --yes": "--for is 1.5s: use whole seconds",
		"grant 8421 --requests 1 --for 745h --yes": "--for is 745h0m0s",
		"reset 8421 --window hour --yes":           "--window is \"hour\": use minute or day",
		"explain --header secret":                  "a --header is not 'Name: value'",
		"top --by name":                            "--by is \"name\": use used or rejected",
		"top --limit 0":                            "--limit is 0: use 1 to 1000",
		"top now":                                  "unexpected argument \"now\"",
		"watch --interval 1ms":                     "--interval is 1ms",
		"watch --count -1":                         "--count is -1",
		"simulate --per-minute 30":                 "no --tier",
		"simulate --tier pro":                      "no limit to try out",
		"simulate --tier pro --per-day -1":         "a limit is negative",
		"bench":                                    "0 URLs: give one",
		"bench ftp://h":                            "is not one of http:// or https://",
		"bench http://u:secret@h:x":                "is not one of http:// or https://",
		"bench http://127.0.0.1 --requests 10001":  "--requests is 10001: use 1 to 10,000",
		"bench http://127.0.0.1 -c 201":            "--concurrency is 201",
		"bench http://127.0.0.1 --duration 11m":    "--duration is 11m0s",
		"bench http://127.0.0.1 --window minute":   "--window is given without --limit",
		"bench http://127.0.0.1 -H secret":         "a --header is not 'Name: value'",
		"bench http://192.0.2.1":                   "there is no terminal to ask for confirmation on",
		"gte 8421":                                 "unknown command \"gte\"",
	} {
		t.Run(args, func(t *testing.T) {
			got := call(t, map[string]string{"TIERLIMIT_SERVER": api.URL}, strings.Fields(args)...)
			if got.code != 2 || got.stdout != "" || !strings.HasPrefix(got.stderr, "tierlimit: ") || strings.Count(got.stderr, "\n") != 1 ||
				!strings.Contains(got.stderr, want) || strings.Contains(got.stderr, "secret") || len(api.requests()) > 0 {
				t.Errorf("want code 2 and %q: %v", want, got)
			}
		})
	}
}

// TestChangeIsSentOnce has a replica that breaks off after it was asked: another must not be asked to do
// the same, unlike for what only reads.
func TestChangeIsSentOnce(t *testing.T) {
	space := namespace(t)
	kubelet := cluster.StartKubelet(t)
	breaking, good := startAdmin(t, true, nil), startAdmin(t, true, changes)
	breaking.breakOff = true
	kubelet.Pod(t, space, "tierlimit-a", 8444, breaking.address(), nil)
	kubelet.Pod(t, space, "tierlimit-b", 8444, good.address(), nil)
	admin := cluster.Kubeconfig(t, "alice", "system:masters")
	if got := call(t, nil, "get", "8421", "--kubeconfig", admin, "-n", space); got.code != 0 || !strings.Contains(got.stderr, "Warning: Pod tierlimit-a cannot be asked") {
		t.Errorf("get: %v", got)
	}
	good.requests()
	if got := call(t, nil, "grant", "8421", "--requests", "1", "--for", "1h", "--yes", "--kubeconfig", admin, "-n", space); got.code != 1 || len(good.requests()) > 0 {
		t.Errorf("grant: %v", got)
	}
	kubelet.Pod(t, space, "tierlimit-0", 8444, "", nil) // the first, where nothing listens: nothing was sent
	breaking.breakOff = false
	breaking.answers = changes
	if got := call(t, nil, "grant", "8421", "--requests", "1", "--for", "1h", "--yes", "--kubeconfig", admin, "-n", space); got.code != 0 || len(breaking.requests()) == 0 {
		t.Errorf("grant, the first is not there: %v", got)
	}
}
