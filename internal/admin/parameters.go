// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/identity"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// parameters are those of one request, by name. None is empty.
type parameters struct {
	single map[string]string
	header http.Header // of explain, the only one that may be repeated
}

// parse reads a query as that of a check is read: what is unknown, empty or given twice is refused.
func parse(raw string, known []string) (parameters, error) {
	p := parameters{single: map[string]string{}, header: http.Header{}}
	err := webhookserver.EachParameter(raw, func(name, value string) error {
		switch {
		case !slices.Contains(known, name):
			return unknownParameter(name, known)
		case value == "":
			return fmt.Errorf("parameter %q %w", name, webhookserver.ErrEmpty)
		case name == "header":
			return p.addHeader(value)
		case p.single[name] != "":
			return fmt.Errorf("parameter %q is given twice", name)
		}
		p.single[name] = value
		return nil
	})
	return p, err
}

func unknownParameter(name string, known []string) error {
	if len(known) == 0 {
		return fmt.Errorf("unknown parameter %.40q: there are none", name)
	}
	return fmt.Errorf("unknown parameter %.40q: use %s", name, strings.Join(known, ", "))
}

// addHeader reads "Name: value".
func (p *parameters) addHeader(line string) error {
	name, value, found := strings.Cut(line, ":")
	value = strings.Trim(value, " \t")
	if !found || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
		return fmt.Errorf("parameter \"header\" is not written as \"Name: value\"") // its value may be a credential
	}
	p.header.Add(name, value)
	return nil
}

// number returns a parameter that is a number within bounds, or what it is without it.
func (p *parameters) number(name string, without, least, most int64) (int64, error) {
	text, given := p.single[name]
	if !given {
		return without, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, refuse(http.StatusBadRequest, "Parameter %q is %.40q: use a whole number from %d to %d.", name, text, least, most)
	}
	return n, nil
}

// oneOf returns a parameter that is one of a few words, or the first of them without it.
func (p *parameters) oneOf(name string, words ...string) (string, error) {
	value := cmp.Or(p.single[name], words[0])
	if !slices.Contains(words, value) {
		return "", refuse(http.StatusBadRequest, "Parameter %q is %.40q: use %s.", name, value, strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " or "))
	}
	return value, nil
}

// kinds are what a user can be.
var kinds = []limiter.Kind{limiter.KindUser, limiter.KindAddress, limiter.KindKey, limiter.KindAnonymous, limiter.KindUpstream}

// subject returns whose budget is meant.
func (p *parameters) subject() (limiter.Subject, error) {
	s := limiter.Subject{User: p.single["user"], Kind: limiter.Kind(p.single["kind"]), Tenant: p.single["tenant"], Route: p.single["route"]}
	switch {
	case !slices.Contains(kinds, s.Kind):
		return s, refuse(http.StatusBadRequest, `Parameter "kind" is %.40q: use ip, key, anonymous or upstream, or leave it out for a user's id.`, s.Kind)
	case s.Kind == limiter.KindAnonymous && (s.User == "" || s.User == identity.Anonymous):
		s.User = identity.Anonymous
	case s.Kind == limiter.KindAnonymous:
		return s, refuse(http.StatusBadRequest, `Parameter "user" is given for kind=anonymous, which is everybody of whom nothing is known together: leave it out.`)
	case s.User == "":
		return s, refuse(http.StatusBadRequest, `Parameter "user" is missing: say whose budget is meant.`)
	case s.Kind == limiter.KindKey && !identity.IsHash(s.User): // it may be the key itself, and is not repeated
		return s, refuse(http.StatusBadRequest, `Parameter "user" is not the hash of a key, 32 hexadecimal digits: explain with the header that has the key says what it is.`)
	case s.Kind == limiter.KindAddress:
		user, err := address(s.User)
		if err != nil {
			return s, err
		}
		s.User = user
	case s.Kind == limiter.KindUpstream && s.Route != "":
		return s, refuse(http.StatusBadRequest, `Parameter "route" is given for an upstream, whose cap is the same on all routes: leave it out.`)
	}
	return s, nil
}

// address returns the caller at an address, whichever way it is written: of IPv6 that is the whole /64.
func address(text string) (string, error) {
	if prefix, err := netip.ParsePrefix(text); err == nil && prefix.Masked() == prefix && identity.CallerAt(prefix.Addr()).User == text {
		return text, nil
	}
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return "", refuse(http.StatusBadRequest, `Parameter "user" is %.60q, which is not an IP address: write it like 203.0.113.7 or 2001:db8::1.`, text)
	}
	return identity.CallerAt(ip).User, nil
}

// shown is a subject in the terms of the API.
func shown(s limiter.Subject) adminapi.Subject {
	return adminapi.Subject{User: s.User, Kind: string(s.Kind), Tenant: s.Tenant, Route: s.Route}
}

// windowNames are the windows of tiers.
var windowNames = map[time.Duration]string{tier.Minute: adminapi.WindowMinute, tier.Day: adminapi.WindowDay}

func windowName(window time.Duration) string { return cmp.Or(windowNames[window], window.String()) }
