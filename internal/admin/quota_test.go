// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/openapitest"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

func TestQuota(t *testing.T) {
	d := newDesk(t, openapitest.Load(t), nil, budget("free", 5, 100), budget("pro", 60, 500))
	d.usage.seen = []adminapi.Seen{{Subject: adminapi.Subject{User: "u", Tenant: "acme"}, Tier: "pro"}, {Subject: adminapi.Subject{User: "u"}, Tier: "free"}}
	d.spend(3, "user=u")
	q := answered[adminapi.Quota](d, http.MethodGet, "/admin/v1/quota?user=u&last=2")
	if q.AuditID != AuditID([]byte("k"), limiter.Subject{User: "u"}) || q.User != "u" || q.Tier.Name != "free" || !q.Tier.Seen || q.Tier.Default || q.Tier.Asked != "" || q.BlockedBy != "" || q.Grant != nil {
		t.Errorf("%+v", q)
	}
	for i, want := range []struct {
		name            string
		seconds, limit  int64
		used, remaining int64
	}{{"minute", 60, 5, 3, 2}, {"day", 86400, 100, 3, 97}} {
		w := q.Windows[i]
		length := time.Duration(w.WindowSeconds) * time.Second
		if w.Window != want.name || w.WindowSeconds != want.seconds || w.Requests != want.limit || w.Used != want.used || w.Remaining != want.remaining {
			t.Errorf("window %d: %+v", i, w)
		}
		if len(w.LastRequests) != 2 || w.LastRequests[0].Before(w.LastRequests[1]) || w.EmptyAt == nil || !w.EmptyAt.Equal(w.LastRequests[0].Add(length)) ||
			w.NextSlotAt == nil || w.NextSlotAt.After(*w.EmptyAt) || q.Now.Before(w.LastRequests[0]) {
			t.Errorf("times of window %d: %+v", i, w)
		}
	}
	if diff := cmp.Diff([]adminapi.Seen{{Subject: adminapi.Subject{User: "u", Tenant: "acme"}, Tier: "pro"}}, q.SeenAs); diff != "" {
		t.Errorf("seen as: -want +got:\n%s", diff)
	}
	for _, seen := range []struct {
		reason string
		as     []adminapi.Seen
		want   adminapi.Tier
	}{
		{"the tier that was lately applied", []adminapi.Seen{{Subject: adminapi.Subject{User: "u"}, Tier: "pro"}}, adminapi.Tier{Name: "pro", Seen: true}},
		{"of another tenant's user nothing follows", []adminapi.Seen{{Subject: adminapi.Subject{User: "u", Tenant: "acme"}, Tier: "pro"}}, adminapi.Tier{Name: "free", Default: true}},
		{"of two it is not known which", []adminapi.Seen{{Subject: adminapi.Subject{User: "u"}, Tier: "pro"}, {Subject: adminapi.Subject{User: "u"}, Tier: "free"}}, adminapi.Tier{Name: "free", Default: true}},
		{"it is gone", []adminapi.Seen{{Subject: adminapi.Subject{User: "u"}, Tier: "gold"}}, adminapi.Tier{Name: "free", Default: true}},
	} {
		d.usage.seen = seen.as
		if got := answered[adminapi.Quota](d, http.MethodGet, "/admin/v1/quota?user=u").Tier; got.Name != seen.want.Name || got.Seen != seen.want.Seen || got.Default != seen.want.Default {
			t.Errorf("%s: %+v, want %+v", seen.reason, got, seen.want)
		}
	}
	// A tier changes what is measured, not whose requests are counted.
	if q := answered[adminapi.Quota](d, http.MethodGet, "/admin/v1/quota?user=u&tier=pro"); q.Windows[0].Used != 3 || q.Windows[0].Requests != 60 || q.Tier.Default {
		t.Errorf("by another tier: %+v", q)
	}
	if q := answered[adminapi.Quota](d, http.MethodGet, "/admin/v1/quota?user=u&tier=gold"); q.Tier.Name != "free" || q.Tier.Asked != "gold" || q.Windows[0].Requests != 5 {
		t.Errorf("by a tier that does not exist: %+v", q.Tier)
	}
	if q := answered[adminapi.Quota](d, http.MethodGet, "/admin/v1/quota?user=nobody&last=0"); q.Windows[0].Used != 0 || q.Windows[0].NextSlotAt != nil || q.Windows[0].EmptyAt != nil || len(q.Windows[0].LastRequests) != 0 {
		t.Errorf("of nobody: %+v", q.Windows[0])
	}
	if len(d.events) != 0 || d.log.Len() != 0 {
		t.Errorf("looking was told of: %v %s", d.events, d.log)
	}
}

// TestBlocked says which window rejects, and compares with what a check is answered.
func TestBlocked(t *testing.T) {
	until := func(w time.Duration) time.Duration { return w }
	for name, tc := range map[string]struct {
		reason  string
		tier    *tier.Tier
		spent   int
		grant   string
		by      string
		within  time.Duration // 0: no wait would help
		waiting bool
	}{
		"Room":      {"nothing rejects", budget("free", 5, 100), 4, "", "", 0, false},
		"Minute":    {"the minute is full", budget("free", 5, 100), 5, "", "minute", until(tier.Minute), true},
		"Day":       {"the day is full", budget("free", 5, 4), 4, "", "day", until(tier.Day), true},
		"Both":      {"of two the one that rejects longest", budget("free", 4, 4), 4, "", "day", until(tier.Day), true},
		"Zero":      {"no wait would help", budget("free", 0, 4), 0, "", "minute", 0, false},
		"Granted":   {"the grant has more", budget("free", 2, 100), 2, "3", "", 0, false},
		"GrantUsed": {"the grant is used up too", budget("free", 2, 100), 5, "3", "minute", until(tier.Minute), true},
		"DryRun":    {"it rejects nobody", budget("free", 2, 100, func(t *tier.Tier) { t.DryRun = true }), 3, "", "", 0, false},
		"Switch":    {"it limits nothing", budget("free", 2, 100, func(t *tier.Tier) { t.KillSwitch.Engaged = true }), 3, "", "", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, openapitest.Load(t), nil, tc.tier)
			if tc.grant != "" {
				answered[adminapi.GrantResult](d, http.MethodPut, "/admin/v1/grant?user=u&for=1h&requests="+tc.grant)
			}
			d.spend(tc.spent, "user=u")
			q := answered[adminapi.Quota](d, http.MethodGet, "/admin/v1/quota?user=u")
			if q.BlockedBy != tc.by || (q.BlockedUntil != nil) != tc.waiting || tc.waiting && (!q.BlockedUntil.After(q.Now) || q.BlockedUntil.After(q.Now.Add(tc.within))) {
				t.Errorf("%s: blocked by %q until %v, want %q", tc.reason, q.BlockedBy, q.BlockedUntil, tc.by)
			}
			if got := d.spend(1, "user=u"); (got == http.StatusTooManyRequests) != (q.BlockedBy != "") {
				t.Errorf("blocked by %q, and a check gets %d", q.BlockedBy, got)
			}
		})
	}
}

// TestSubjects asks for the budgets of every kind of caller, as the check has charged them.
func TestSubjects(t *testing.T) {
	d := newDesk(t, openapitest.Load(t), nil, budget("free", 5, 100), budget("gpt", 9, 9))
	d.spend(1, "user=u&tenant=t&route=r")
	d.spend(2, "upstream=gpt&user=x")
	for _, subject := range []limiter.Subject{{User: "2001:db8::/64", Kind: limiter.KindAddress}, {User: "203.0.113.7", Kind: limiter.KindAddress}, {User: "all", Kind: limiter.KindAnonymous}, {User: "746b4ad1ca9129e1caf080bf9406d435", Kind: limiter.KindKey}} {
		for range 3 {
			if _, err := d.window.CheckAll(t.Context(), subject, limiter.Limit{Requests: 9, Window: tier.Minute}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		reason, query string
		want          int64 // used in the minute
		says          string
	}{
		"User":         {"with its tenant and route", "user=u&tenant=t&route=r", 1, ""},
		"OtherTenant":  {"of which each has its own", "user=u&route=r", 0, ""},
		"Address":      {"of IPv4", "kind=ip&user=203.0.113.7", 3, ""},
		"Mapped":       {"written as IPv6", "kind=ip&user=::ffff:203.0.113.7", 3, ""},
		"IPv6":         {"any address of the site", "kind=ip&user=2001:db8::1234", 3, ""},
		"Prefix":       {"as top shows it", "kind=ip&user=2001:db8::%2F64", 3, ""},
		"LongPrefix":   {"another prefix is none", "kind=ip&user=2001:db8::%2F56", 0, "is not an IP address"},
		"NoAddress":    {"nor is a name", "kind=ip&user=alice", 0, "is not an IP address"},
		"Anonymous":    {"there is one", "kind=anonymous", 3, ""},
		"Key":          {"by its hash", "kind=key&user=746b4ad1ca9129e1caf080bf9406d435", 3, ""},
		"KeyItself":    {"that is a secret", "kind=key&user=sk-live-abc123", 0, "is not the hash of a key"},
		"OneAnonymous": {"there is only one", "kind=anonymous&user=bob", 0, "leave it out"},
		"Upstream":     {"by its own tier", "kind=upstream&user=gpt", 2, ""},
		"UpstreamTier": {"and no other", "kind=upstream&user=gpt&tier=free", 0, "leave the parameter"},
		"NoUpstream":   {"nothing stands in for it", "kind=upstream&user=gold", 0, "No default tier stands in"},
		"RouteOfIt":    {"it has none", "kind=upstream&user=gpt&route=r", 0, "leave it out"},
		"Kind":         {"there are others", "kind=user&user=u", 0, "use ip, key, anonymous or upstream"},
		"Nobody":       {"whose", "tenant=t", 0, "say whose budget"},
		"BadTier":      {"as in a check", "user=u&tier=Free", 0, "cannot be the name of a RateLimitTier"},
		"Last":         {"bounded", "user=u&last=101", 0, "from 0 to 100"},
		"Unknown":      {"as in a check", "user=u&usr=v", 0, `Unknown parameter \"usr\": use user, kind`},
		"Twice":        {"as in a check", "user=u&user=u", 0, "is given twice"},
		"Empty":        {"as in a check", "user=", 0, "is empty: give it a value or leave it out"},
		"Encoding":     {"as in a check", "user=%zz", 0, "write '%' as %25"},
	} {
		t.Run(name, func(t *testing.T) {
			r := d.ask(http.MethodGet, "/admin/v1/quota?"+tc.query)
			if tc.says != "" {
				if r.Code != http.StatusBadRequest || !strings.Contains(r.Body.String(), tc.says) {
					t.Errorf("%s: %d %s, want %q", tc.reason, r.Code, r.Body, tc.says)
				}
				return
			}
			q := answered[adminapi.Quota](d, http.MethodGet, "/admin/v1/quota?"+tc.query)
			if q.Windows[0].Used != tc.want {
				t.Errorf("%s: %d used, want %d", tc.reason, q.Windows[0].Used, tc.want)
			}
		})
	}
}

func TestReset(t *testing.T) {
	d := newDesk(t, openapitest.Load(t), nil, budget("free", 3, 100), &tier.Tier{Name: "hourly", Limits: []limiter.Limit{{Requests: 3, Window: tier.Minute}}})
	if got := d.spend(4, "user=u"); got != http.StatusTooManyRequests {
		t.Fatalf("%d", got)
	}
	r := answered[adminapi.ResetResult](d, http.MethodDelete, "/admin/v1/quota?user=u&window=minute")
	id := AuditID([]byte("k"), limiter.Subject{User: "u"})
	want := adminapi.ResetResult{Subject: adminapi.Subject{User: "u"}, AuditID: id, Tier: "free", Windows: []adminapi.Cleared{{Window: "minute", Used: 3}}, EverywhereAfterMilliseconds: 250}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := d.spend(1, "user=u"); got != http.StatusOK { // also what this replica remembers is forgotten
		t.Errorf("after the reset: %d", got)
	}
	r = answered[adminapi.ResetResult](d, http.MethodDelete, "/admin/v1/quota?user=u")
	if diff := cmp.Diff([]adminapi.Cleared{{Window: "minute", Used: 1}, {Window: "day", Used: 4}}, r.Windows); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(d.events) != 2 || d.events[0].Reason != ReasonReset || d.events[0].Tier.UID != "uid-free" || d.events[0].Note != "alice@example.com cleared 3 requests of the minute of user "+id ||
		d.events[1].Note != "alice@example.com cleared 1 requests of the minute and 4 requests of the day of user "+id {
		t.Errorf("%+v", d.events)
	}
	if strings.Count(d.log.String(), "msg=QuotaReset by=alice@example.com") != 2 {
		t.Errorf("log: %s", d.log)
	}
	for query, says := range map[string]string{"user=u&window=hour": "use minute or day", "user=u&tier=hourly&window=day": "has no limit per day", "user=u&last=1": "Unknown parameter"} {
		if r := d.ask(http.MethodDelete, "/admin/v1/quota?"+query); r.Code != http.StatusBadRequest || !strings.Contains(r.Body.String(), says) {
			t.Errorf("%s: %d %s", query, r.Code, r.Body)
		}
	}
	if len(d.events) != 2 {
		t.Errorf("what was refused was told of: %+v", d.events)
	}
}

// TestAuditID tells subjects apart, and replicas with the same key do not.
func TestAuditID(t *testing.T) {
	seen := map[string]limiter.Subject{}
	for _, s := range []limiter.Subject{{User: "u"}, {User: "u", Kind: "ip"}, {User: "u", Tenant: "t"}, {User: "u", Route: "t"}, {User: `u" "t`}, {User: "t", Tenant: "u"}, {User: ` "u"`}} {
		id := AuditID(nil, s)
		if other, taken := seen[id]; taken || len(id) != 16 || id != AuditID([]byte{}, s) || id == AuditID([]byte("k"), s) {
			t.Errorf("%+v: %s, as %+v", s, id, other)
		}
		seen[id] = s
	}
}
