// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

// TestRates adds up the rates of replicas that were not counted over the same time. Each does 100 a second.
func TestRates(t *testing.T) {
	at := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	// look is the answer of a replica that has been running for so long at that time, by a clock that is late.
	look := func(replica string, second, running, late int) adminapi.Decisions {
		now := at.Add(time.Duration(second-late) * time.Second)
		return adminapi.Decisions{Replicas: []string{replica}, Now: now, StartedAt: now.Add(-time.Duration(running) * time.Second),
			Tiers: []adminapi.TierDecisions{{Tier: "free", Mode: "Enforce", Outcomes: map[string]int64{"admitted": 100 * int64(running)}}}}
	}
	idle := func(replica string, second int) adminapi.Decisions { // it has been idle for an hour before
		d := look(replica, second, second, 0)
		d.StartedAt = d.StartedAt.Add(-time.Hour)
		return d
	}
	type looks [][]adminapi.Decisions
	for name, tc := range map[string]struct {
		reason string
		looks  looks
		want   []string // of each table: replicas and admitted a second
	}{
		"same time": {"the usual case", looks{{look("a", 0, 1000, 0), look("b", 0, 1000, 0)}, {look("a", 2, 1002, 0), look("b", 2, 1002, 0)}}, []string{"2 replicas 200.0"}},
		"late clock": {"a clock may be wrong", looks{{look("a", 0, 1000, 0), look("b", 0, 1000, 30)}, {look("a", 2, 1002, 0), look("b", 2, 1002, 30)}},
			[]string{"2 replicas 200.0"}},
		"missed a look": {"b is compared with its last answer", looks{{look("a", 0, 1000, 0), idle("b", 0)}, {look("a", 2, 1002, 0)}, {look("a", 4, 1004, 0), idle("b", 4)}},
			[]string{"1 replica 100.0", "2 replicas 200.0"}},
		"new": {"what it did before is not of this table", looks{{look("a", 0, 1000, 0)}, {look("a", 2, 1002, 0)}, {look("a", 4, 1004, 0), idle("b", 4)}, {look("a", 6, 1006, 0), idle("b", 6)}},
			[]string{"1 replica 100.0", "1 replica 100.0", "2 replicas 200.0"}},
		"new in the first table": {"there may be only one table", looks{{look("a", 0, 1000, 0)}, {look("a", 2, 1002, 0), look("b", 2, 1, 0)}}, []string{"2 replicas 200.0"}},
		"restarted":              {"its counters began anew", looks{{look("a", 0, 1000, 0), look("b", 0, 1000, 0)}, {look("a", 2, 1002, 0), look("b", 2, 1, 0)}}, []string{"2 replicas 200.0"}},
		"replaced":               {"a table of nothing helps nobody", looks{{look("a", 0, 1000, 0)}, {look("a", 2, 1002, 0)}, {look("b", 4, 1, 0)}}, []string{"1 replica 100.0", "1 replica 100.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			w := &watch{desk: &desk{Options: Options{Streams: genericiooptions.IOStreams{Out: &out}}}}
			w.remember(tc.looks[0])
			for i, answers := range tc.looks[1:] {
				out.Reset()
				if err := w.show(answers); err != nil {
					t.Fatal(err)
				}
				w.shown++
				at := strings.LastIndex(tc.want[i], " ")
				replicas, admitted := tc.want[i][:at], tc.want[i][at+1:]
				if text := out.String(); !strings.Contains(text, replicas+"\n") || !strings.Contains(text, "Enforce   "+admitted+" ") {
					t.Errorf("%s: table %d, want %s:\n%s", tc.reason, i, tc.want[i], text)
				}
			}
		})
	}
}

// TestWatchHanging has one replica hang: the tables go on.
func TestWatchHanging(t *testing.T) {
	all, _, stderr := replicasThat(t, time.Minute, hangs)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"replicas":["b"],"tiers":[{"tier":"free"}]}`))
	}))
	t.Cleanup(other.Close)
	all.list = append(all.list, &replica{name: "Pod b", base: other.URL, client: other.Client()})
	var out bytes.Buffer
	w := &watch{desk: all.d, interval: minInterval, count: 1}
	w.Streams.Out = &out
	w.now = time.Now
	if err := w.follow(t.Context(), all); err != nil || !strings.Contains(out.String(), "1 replica") {
		t.Errorf("%v\n%s%s", err, &out, stderr)
	}
	for _, want := range []string{"no answer within 10s", "no answer within 2s"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("want %q: %s", want, stderr)
		}
	}
}

// TestLeft never says less than the time that is left.
func TestLeft(t *testing.T) {
	now := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		-time.Second:                           "0s",
		57*time.Second + 900*time.Millisecond:  "58s",
		3*time.Minute + time.Millisecond:       "3m1s",
		9*time.Minute + 59001*time.Millisecond: "10m",
		11*time.Minute + time.Second:           "12m",
		2*time.Hour + 59*time.Minute + 1:       "3h",
		7*time.Hour + 59*time.Minute + 1:       "8h",
		23*time.Hour + 58*time.Minute:          "24h",
		47*time.Hour + time.Second:             "2d",
		3*24*time.Hour + 2*time.Hour + 1:       "3d3h",
		30*24*time.Hour + 23*time.Hour + 1:     "31d",
		time.Hour:                              "60m",
	} {
		if got := left(now, now.Add(d)); got != want {
			t.Errorf("%v is shown as %q, want %q", d, got, want)
		}
	}
}

// TestEscaped keeps JSON what it is.
func TestEscaped(t *testing.T) {
	got := string(escaped([]byte("{\n  \"user\": \"a\u009b2J\u202eé\U000e0001\"\n}\n")))
	if want := "{\n  \"user\": \"a\\u009b2J\\u202eé\\udb40\\udc01\"\n}\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestNothingMovesTheCursor has an admin API put an escape into every text that it answers with.
func TestNothingMovesTheCursor(t *testing.T) {
	const evil = "\x1b[2J\u202e"
	at := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	who := adminapi.Subject{User: evil, Kind: evil, Tenant: evil, Route: evil}
	limit := adminapi.Limit{Window: evil, Requests: 1}
	tier := adminapi.Tier{Name: evil, Asked: evil, Mode: evil, FailurePolicy: evil, Limits: []adminapi.Limit{limit}}
	quota := adminapi.Quota{Now: at, Subject: who, AuditID: evil, Tier: tier, BlockedBy: evil, BlockedUntil: &at,
		Windows: []adminapi.Window{{Limit: limit}}, SeenAs: []adminapi.Seen{{Subject: who, Tier: evil}}}
	var out bytes.Buffer
	_ = printQuota(&out, quota, true)
	quota.BlockedUntil = nil
	_ = printQuota(&out, quota, false)
	out.WriteString(resetQuestion(&quota, "", evil))
	explanation := adminapi.Explanation{Outcome: evil, Status: 200, Enforcement: evil, Window: evil, Reasons: []string{evil}, Tier: &tier, Upstream: &tier,
		Identity: &adminapi.Identity{Subject: who, Source: evil}, Headers: map[string]string{evil: evil}}
	printExplanation(&out, explanation, true)
	decisions := adminapi.Decisions{Replicas: []string{evil}, Tiers: []adminapi.TierDecisions{{Tier: evil, Mode: evil, Outcomes: map[string]int64{evil: 1},
		Users: []adminapi.TopUser{{Subject: who, Tier: evil}}}}}
	_ = printDecisions(&out, decisions, ratesOf([]adminapi.Decisions{decisions}))
	d := &desk{Options: Options{Streams: genericiooptions.IOStreams{Out: &out, ErrOut: &out}}}
	_ = d.printTop(adminapi.Top{Replicas: []string{evil}, Users: decisions.Tiers[0].Users}, output{format: formatWide})
	d.printSimulation(adminapi.Simulation{Replicas: []string{evil}, Tier: tier, Limits: []adminapi.Limit{limit}})
	out.WriteString(audit(evil, evil) + cleared(adminapi.ResetResult{Subject: who, Windows: []adminapi.Cleared{{Window: evil}}}))
	out.WriteString((&refused{detail: detail(&http.Response{}, []byte(evil))}).Error() + (&replica{}).decode([]byte("{\"now\":\"\u009b2J\"}"), &quota).Error())
	for _, line := range strings.Split(out.String(), "\n") {
		if line != printable(line) {
			t.Errorf("%q", line)
		}
	}
}

// TestWriteErrors expects that nobody takes a full disk for an answer.
func TestWriteErrors(t *testing.T) {
	answers := map[string]string{
		"GET " + adminapi.PathQuota:    `{"auditID":"1","tier":{"name":"free"}}`,
		"GET " + adminapi.PathExplain:  `{"outcome":"admitted","status":200}`,
		"DELETE " + adminapi.PathQuota: granted,
		"PUT " + adminapi.PathGrant:    `{"auditID":"1","tier":"free","grant":{"requests":1}}`,
		"GET " + adminapi.PathSimulate: `{"replicas":["a"],"tier":{"name":"free"}}`,
		"GET " + adminapi.PathTop:      `{"replicas":["a"],"users":[{"user":"8421"}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(answers[r.Method+" "+r.URL.Path]))
	}))
	t.Cleanup(server.Close)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { full.Close() })
	for _, command := range []string{"get 8421", "explain 8421", "reset 8421 --yes", "grant 8421 --requests 1 --for 1h --yes", "revoke 8421 --yes", "top", "simulate --tier free --per-minute 1"} {
		if command == "revoke 8421 --yes" {
			answers["DELETE "+adminapi.PathGrant] = granted
		}
		var stderr bytes.Buffer
		root := NewCommand(Options{Streams: genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: full, ErrOut: &stderr}, Getenv: func(string) string { return server.URL }})
		root.SetContext(t.Context())
		root.SetArgs(strings.Fields(command))
		if code := Run(root, &stderr); code != 1 || !strings.Contains(stderr.String(), "no space left on device") {
			t.Errorf("%s: code %d: %s", command, code, &stderr)
		}
	}
}
