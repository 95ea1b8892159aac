// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"errors"
	"net/http"
	"net/netip"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// realIPHeader carries the client's address. ingress-nginx overwrites what a client sends in it.
// Its canonical form in net/http, to look it up without converting it each time.
const realIPHeader = "X-Real-Ip"

// ipv6Prefix is how much of an IPv6 address is one caller, in bits: a site is given a /64 and can
// use any address in it.
const ipv6Prefix = 64

// identify returns whose budget a check speaks of: the user parameter if there is one, else the
// client's address as the ingress gives it, else the address of the connection.
func identify(r *http.Request, p parameters) (limiter.Subject, error) {
	subject := limiter.Subject{Tenant: p.tenant, Route: p.route}
	if p.user != "" {
		subject.User = p.user
		return subject, nil
	}
	address, err := clientAddress(r)
	if err != nil {
		return limiter.Subject{}, err
	}
	subject.Kind, subject.User = limiter.KindAddress, address
	return subject, nil
}

// clientAddress returns one name for all the addresses that one client can use.
func clientAddress(r *http.Request) (string, error) {
	var address netip.Addr
	switch values := r.Header[realIPHeader]; len(values) {
	case 0:
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil {
			return "", errors.New("the caller has no address: give the parameter \"user\"")
		}
		address = peer.Addr()
	case 1:
		var err error
		if address, err = netip.ParseAddr(values[0]); err != nil {
			return "", errors.New("the header X-Real-IP is not an IP address")
		}
	default:
		return "", errors.New("the header X-Real-IP is given twice")
	}
	address = address.Unmap().WithZone("")
	if address.Is4() {
		return address.String(), nil
	}
	return netip.PrefixFrom(address, ipv6Prefix).Masked().String(), nil
}
