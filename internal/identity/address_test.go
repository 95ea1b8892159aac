// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// headers returns a header from name, value, name, value.
func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i+1 < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// sources returns the sources of a list.
func sources(t testing.TB, list string, config Config) *Sources {
	t.Helper()
	s, err := Parse(list, config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// expect fails the test unless a request has this caller, or is refused with this status and a
// detail that contains this text.
func expect(t *testing.T, s *Sources, r *Request, reason string, want Caller, status int, detail string) {
	t.Helper()
	got, err := s.Identify(context.Background(), r)
	var refusal *Refusal
	if errors.As(err, &refusal) != (status != 0) || err != nil && (refusal == nil || refusal.Status != status || !strings.Contains(refusal.Detail, detail)) {
		t.Fatalf("%s: error %v (%+v), want status %d and %q", reason, err, refusal, status, detail)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: -want +got:\n%s", reason, diff)
	}
}

func at(address string) Caller { return Caller{Kind: limiter.KindAddress, User: address} }

func TestAddress(t *testing.T) {
	const peer = "192.0.2.1:1234"
	cases := map[string]struct {
		reason string
		list   string
		header http.Header
		peer   string
		want   Caller
		status int
		detail string
	}{
		"RealIP":      {reason: "the ingress knows the client", header: headers("X-Real-IP", "203.0.113.7"), want: at("203.0.113.7")},
		"Peer":        {reason: "without an ingress the peer is the client", peer: "198.51.100.9:4711", want: at("198.51.100.9")},
		"IPv6":        {reason: "one caller can use all of a /64", header: headers("X-Real-IP", "2001:db8:1:2:3:4:5:6"), want: at("2001:db8:1:2::/64")},
		"IPv6Same":    {reason: "another address of the same /64 is the same caller", header: headers("X-Real-IP", "2001:db8:1:2:ffff::1"), want: at("2001:db8:1:2::/64")},
		"IPv6Peer":    {reason: "a zone is this host's business", peer: "[fe80::1%eth0]:4711", want: at("fe80::/64")},
		"Mapped":      {reason: "an IPv4 client of an IPv6 socket is an IPv4 client", header: headers("X-Real-IP", "::ffff:203.0.113.7"), want: at("203.0.113.7")},
		"RealIPTwice": {reason: "one of them was not set by the ingress", header: headers("X-Real-IP", "203.0.113.7", "X-Real-IP", "203.0.113.8"), status: 400, detail: "twice"},
		"RealIPList":  {reason: "a list is not an address", header: headers("X-Real-IP", "203.0.113.7, 10.0.0.1"), status: 400, detail: "not an IP address"},
		"RealIPBad":   {reason: "a client must not choose a name for itself", header: headers("X-Real-IP", "alice"), status: 400, detail: "not an IP address"},
		"RealIPEmpty": {reason: "an empty header does not fall back to the proxy's address", header: headers("X-Real-IP", ""), status: 400, detail: "not an IP address"},
		"NoPeer":      {reason: "a Unix socket has no address", peer: "@", status: 400, detail: `give the parameter "user"`},
		"ForgedList":  {reason: "X-Forwarded-For is not believed unless configured", header: headers("X-Forwarded-For", "203.0.113.7"), want: at("192.0.2.1")},

		"OwnHeader":       {reason: "a proxy may use a header of its own", list: "address:x-envoy-external-address", header: headers("X-Envoy-External-Address", "203.0.113.7", "X-Real-IP", "203.0.113.8"), want: at("203.0.113.7")},
		"OwnHeaderAbsent": {reason: "without it there is no caller", list: "address:X-Client", header: headers("X-Real-IP", "203.0.113.8"), status: 403, detail: "does not say who is calling"},
		"OwnHeaderTwice":  {reason: "one of them is the client's", list: "address:X-Client", header: headers("X-Client", "203.0.113.7", "X-Client", "203.0.113.8"), status: 400, detail: "X-Client is given twice"},

		"ForwardedOne":      {reason: "the last entry was added by the proxy that asks", list: "forwarded-for:1", header: headers("X-Forwarded-For", "198.51.100.1, 203.0.113.7"), want: at("203.0.113.7")},
		"ForwardedTwo":      {reason: "the second from the right was added by the first proxy", list: "forwarded-for:2", header: headers("X-Forwarded-For", "198.51.100.1,203.0.113.7,10.0.0.1"), want: at("203.0.113.7")},
		"ForwardedForged":   {reason: "what a client writes in front changes nothing", list: "forwarded-for:1", header: headers("X-Forwarded-For", "alice, , 198.51.100.1,203.0.113.7"), want: at("203.0.113.7")},
		"ForwardedLines":    {reason: "several headers are one list (RFC 9110, section 5.3)", list: "forwarded-for:1", header: headers("X-Forwarded-For", "198.51.100.1", "X-Forwarded-For", "203.0.113.7"), want: at("203.0.113.7")},
		"ForwardedPort":     {reason: "some proxies add the port", list: "forwarded-for:1", header: headers("X-Forwarded-For", "203.0.113.7:4711"), want: at("203.0.113.7")},
		"ForwardedIPv6":     {reason: "a /64 is one caller here too", list: "forwarded-for:1", header: headers("X-Forwarded-For", "2001:db8:1:2::9"), want: at("2001:db8:1:2::/64")},
		"ForwardedBrackets": {reason: "some proxies add brackets", list: "forwarded-for:1", header: headers("X-Forwarded-For", "[2001:db8:1:2::9]"), want: at("2001:db8:1:2::/64")},
		"ForwardedIPv6Port": {reason: "or brackets and a port", list: "forwarded-for:1", header: headers("X-Forwarded-For", "[2001:db8:1:2::9]:443"), want: at("2001:db8:1:2::/64")},
		"ForwardedMapped":   {reason: "an IPv4 client of an IPv6 socket is an IPv4 client", list: "forwarded-for:1", header: headers("X-Forwarded-For", "::ffff:203.0.113.7"), want: at("203.0.113.7")},
		"ForwardedFew":      {reason: "the request came another way than through all proxies", list: "forwarded-for:3", header: headers("X-Forwarded-For", "198.51.100.1, 203.0.113.7"), status: 400, detail: "fewer addresses (2) than there are proxies that should have added one (3)"},
		"ForwardedBad":      {reason: "a name is not an address", list: "forwarded-for:1", header: headers("X-Forwarded-For", "unknown"), status: 400, detail: "does not have an IP address"},
		"ForwardedAbsent":   {reason: "without it the next source is asked", list: "forwarded-for:1,address", header: headers("X-Real-IP", "203.0.113.7"), want: at("203.0.113.7")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.list == "" {
				tc.list = Default
			}
			if tc.peer == "" {
				tc.peer = peer
			}
			expect(t, sources(t, tc.list, Config{}), &Request{Header: tc.header, Peer: tc.peer}, tc.reason, tc.want, tc.status, tc.detail)
		})
	}
}
