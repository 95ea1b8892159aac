// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

func TestIdentify(t *testing.T) {
	address := func(a string) limiter.Subject { return limiter.Subject{User: a, Kind: limiter.KindAddress} }
	cases := map[string]struct {
		reason string
		params parameters
		realIP []string
		remote string
		want   limiter.Subject
		err    string
	}{
		"User":         {reason: "the parameter goes first", params: parameters{user: "alice"}, realIP: []string{"203.0.113.7"}, want: limiter.Subject{User: "alice"}},
		"TenantRoute":  {reason: "tenant and route apply to every identity", params: parameters{tenant: "acme", route: "r"}, realIP: []string{"203.0.113.7"}, want: limiter.Subject{User: "203.0.113.7", Kind: limiter.KindAddress, Tenant: "acme", Route: "r"}},
		"RealIP":       {reason: "the ingress knows the client", realIP: []string{"203.0.113.7"}, want: address("203.0.113.7")},
		"Peer":         {reason: "without an ingress the peer is the client", remote: "198.51.100.9:4711", want: address("198.51.100.9")},
		"IPv6":         {reason: "one caller can use all of a /64", realIP: []string{"2001:db8:1:2:3:4:5:6"}, want: address("2001:db8:1:2::/64")},
		"IPv6Same":     {reason: "another address of the same /64 is the same caller", realIP: []string{"2001:db8:1:2:ffff::1"}, want: address("2001:db8:1:2::/64")},
		"IPv6Peer":     {reason: "a zone is this host's business", remote: "[fe80::1%eth0]:4711", want: address("fe80::/64")},
		"Mapped":       {reason: "an IPv4 client of an IPv6 socket is an IPv4 client", realIP: []string{"::ffff:203.0.113.7"}, want: address("203.0.113.7")},
		"RealIPTwice":  {reason: "one of them was not set by the ingress", realIP: []string{"203.0.113.7", "203.0.113.8"}, err: "twice"},
		"RealIPList":   {reason: "a list is not an address", realIP: []string{"203.0.113.7, 10.0.0.1"}, err: "not an IP address"},
		"RealIPBad":    {reason: "a client must not choose a name for itself", realIP: []string{"alice"}, err: "not an IP address"},
		"RealIPEmpty":  {reason: "an empty header does not fall back to the proxy's address", realIP: []string{""}, err: "not an IP address"},
		"NoPeer":       {reason: "a Unix socket has no address", remote: "@", err: `give the parameter "user"`},
		"UserNotAddr":  {reason: "a user called like an address is not that address", params: parameters{user: "203.0.113.7"}, want: limiter.Subject{User: "203.0.113.7"}},
		"UserSkipsBad": {reason: "with a user the header is not looked at", params: parameters{user: "u"}, realIP: []string{"x", "y"}, want: limiter.Subject{User: "u"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("GET", pathCheck, nil)
			if tc.remote != "" {
				r.RemoteAddr = tc.remote
			}
			for _, value := range tc.realIP {
				r.Header.Add("X-Real-IP", value)
			}
			got, err := identify(r, tc.params)
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("%s: error %v, want %q", tc.reason, err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s:\n%s", tc.reason, diff)
			}
		})
	}
}
