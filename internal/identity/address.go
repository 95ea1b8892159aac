// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"net/netip"
	"strings"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

const (
	// realIPHeader carries the client's address. ingress-nginx and Traefik overwrite what a client
	// sends in it. Like all names here it is in the canonical form of net/http, in which headers
	// are looked up without converting them each time.
	realIPHeader = "X-Real-Ip"

	forwardedForHeader = "X-Forwarded-For"
)

// ipv6Prefix is how much of an IPv6 address is one caller, in bits: a site is given a /64 and can
// use any address in it.
const ipv6Prefix = 64

// realIP takes the address in a header that the proxy sets.
type realIP struct {
	header string
	peer   bool // without the header, take the address of the connection
}

func (s realIP) identify(_ context.Context, r *Request) (Caller, bool, error) {
	values := r.Header[s.header]
	switch {
	case r.Unvouched && s.header != realIPHeader:
		return Caller{}, false, nil
	case len(values) > 1:
		return Caller{}, false, malformedAddress("the header %s is given twice", s.header)
	case len(values) == 1:
		address, err := netip.ParseAddr(values[0])
		if err != nil {
			return Caller{}, false, malformedAddress("the header %s is not an IP address", s.header)
		}
		return CallerAt(address), true, nil
	case !s.peer:
		return Caller{}, false, nil
	}
	peer, err := netip.ParseAddrPort(r.Peer)
	if err != nil {
		return Caller{}, false, malformedAddress("the caller has no address: give the parameter \"user\"")
	}
	return CallerAt(peer.Addr()), true, nil
}

// forwardedFor takes an address of X-Forwarded-For, to which each proxy appends whom it was asked
// by. What stands left of the trusted proxies' entries is the client's own invention.
type forwardedFor struct {
	proxies int // how many proxies are trusted, the one that asks for the check included
}

func (s forwardedFor) identify(_ context.Context, r *Request) (Caller, bool, error) {
	lines := r.Header[forwardedForHeader]
	if len(lines) == 0 {
		return Caller{}, false, nil
	}
	addresses := strings.Split(strings.Join(lines, ","), ",")
	if len(addresses) < s.proxies {
		return Caller{}, false, malformedAddress("the header X-Forwarded-For has fewer addresses (%d) than there are proxies that should have added one (%d)",
			len(addresses), s.proxies)
	}
	address, err := forwardedAddress(strings.TrimSpace(addresses[len(addresses)-s.proxies]))
	if err != nil {
		return Caller{}, false, malformedAddress("the header X-Forwarded-For does not have an IP address where %d proxies put it", s.proxies)
	}
	return CallerAt(address), true, nil
}

// forwardedAddress parses an address that some proxies write with a port or in brackets.
func forwardedAddress(s string) (netip.Addr, error) {
	if withPort, err := netip.ParseAddrPort(s); err == nil {
		return withPort.Addr(), nil
	}
	if inside, bracketed := strings.CutPrefix(s, "["); bracketed {
		s = strings.TrimSuffix(inside, "]")
	}
	return netip.ParseAddr(s)
}

// CallerAt returns one caller for all the addresses that one client can use.
func CallerAt(address netip.Addr) Caller {
	address = address.Unmap().WithZone("")
	name := address.String()
	if !address.Is4() {
		name = netip.PrefixFrom(address, ipv6Prefix).Masked().String()
	}
	return Caller{Kind: limiter.KindAddress, User: name}
}
