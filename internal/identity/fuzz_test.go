// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// FuzzIdentify reads headers with every source that believes none of them as it stands. A caller is a
// hash or an address in one way of writing it, or the request is refused in words of ours.
func FuzzIdentify(f *testing.F) {
	f.Add("Bearer sk-secret", "sk-secret", "203.0.113.7", "203.0.113.7, 10.0.0.1", "192.0.2.1:1234")
	f.Add("Basic YWxpY2U6cHc=", "a b", "::ffff:203.0.113.7", "[2001:db8::1]:443", "[fe80::1%eth0]:4711")
	f.Add("Basic YTpwdx==", "", "alice", ",,", "@")
	f.Add("", "", "", "", "")
	f.Add("Bearer\tsk\x00", "k\xa0", "2001:db8:1:2:3:4:5:6%x", "fe80::1%\r\n", "x")
	f.Fuzz(func(t *testing.T, authorization, key, realIP, forwardedFor, peer string) {
		r := &Request{Header: http.Header{}, Peer: peer}
		for name, value := range map[string]string{authorizationHeader: authorization, "X-Api-Key": key, realIPHeader: realIP, forwardedForHeader: forwardedFor} {
			if value != "" {
				r.Header[name] = []string{value}
			}
		}
		for _, list := range []string{"authorization", "api-key:X-Api-Key", "address", "forwarded-for:1", "forwarded-for:2", "authorization,api-key:X-Api-Key,forwarded-for:1,address"} {
			caller, err := sources(t, list, Config{}).Identify(context.Background(), r)
			var refusal *Refusal
			switch {
			case errors.As(err, &refusal):
				if !slices.Contains([]int{400, 401, 403}, refusal.Status) || refusal.Detail == "" || strings.ContainsFunc(refusal.Detail, unicode.IsControl) {
					t.Fatalf("%s: refused with %+v", list, refusal)
				}
			case err != nil:
				t.Fatalf("%s: %v", list, err)
			default:
				canonical(t, list, caller)
			}
		}
	})
}

// canonical fails the test unless a caller is written in the one way there is for it.
func canonical(t *testing.T, list string, caller Caller) {
	t.Helper()
	ok := false
	switch caller.Kind {
	case limiter.KindKey:
		sum, err := hex.DecodeString(caller.User)
		ok = err == nil && len(sum) == hashLength && caller.User == strings.ToLower(caller.User)
	case limiter.KindAddress:
		if address, err := netip.ParseAddr(caller.User); err == nil {
			ok = address.Is4() && address.String() == caller.User
		} else if prefix, err := netip.ParsePrefix(caller.User); err == nil {
			ok = prefix.Bits() == ipv6Prefix && !prefix.Addr().Is4In6() && prefix.Masked().String() == caller.User
		}
	default: // no other source was asked
	}
	if !ok || caller.Tenant != "" || caller.Tier != "" {
		t.Fatalf("%s: the caller is %+v", list, caller)
	}
}

// FuzzAuthorization writes the same credentials in another way: they stay the same caller, and hold
// nothing that ends or separates texts elsewhere.
func FuzzAuthorization(f *testing.F) {
	for _, value := range []string{"Bearer sk-secret", " token\tsk-secret ", "Basic YWxpY2U6cHc=", "basic Og==", "ApiKey token=a", "Bearer", "Bearer a,b", "Basic AAA6", "Basic YTpwdx==", "Basic w4Q6", "\x00"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got, err := canonicalAuthorization(value)
		if err != nil {
			return
		}
		if got == "" || strings.ContainsFunc(got, unicode.IsControl) {
			t.Fatalf("%q is the caller %q", value, got)
		}
		again := "API-KEY \t " + got + " "
		if decoded, isBasic := strings.CutPrefix(got, "basic "); isBasic {
			encoded := base64.StdEncoding.EncodeToString([]byte(decoded))
			if !strings.Contains(value, encoded) {
				t.Fatalf("%q is another way to write %s", value, encoded)
			}
			again = "bAsIc  " + encoded
		}
		if same, err := canonicalAuthorization(again); err != nil || same != got {
			t.Fatalf("%q is the caller %q, but written as %q it is %q, %v", value, got, again, same, err)
		}
	})
}

// FuzzForged has a client send an X-Forwarded-For of its own, in one header or several. It stays who it
// is: what proxies add behind that decides.
func FuzzForged(f *testing.F) {
	f.Add("198.51.100.66", "", false)
	f.Add("198.51.100.66, 10.0.0.1", "2001:db8::1", true)
	f.Add(",", "[", false)
	f.Add("\x00", "unknown, _hidden", true)
	f.Fuzz(func(t *testing.T, first, second string, joined bool) {
		const real, proxy = "203.0.113.7", "10.0.0.1"
		lines := []string{first, second, real, proxy}
		if joined {
			lines = []string{first, second + "," + real + ", " + proxy}
		}
		r := &Request{Header: http.Header{forwardedForHeader: lines}, Joined: joined}
		for list, want := range map[string]string{"forwarded-for:1": proxy, "forwarded-for:2": real} {
			if caller, err := sources(t, list, Config{}).Identify(context.Background(), r); err != nil || caller != at(want) {
				t.Fatalf("%s of %q: %+v, %v; want %s", list, lines, caller, err, want)
			}
		}
	})
}
