// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	cases := map[string]struct {
		reason, list, err string
	}{
		"All":           {"every source there is", "jwt, jwt:X-Token, header:X-User, api-key:X-Api-Key, authorization, forwarded-for:2, address:X-Client, anonymous", ""},
		"Default":       {"the default is a list", Default, ""},
		"Empty":         {"a list has entries", "", `"" is not one of address[:HEADER]`},
		"EmptyEntry":    {"and no empty ones", "jwt,,address", `"" is not one of`},
		"Unknown":       {"a typing error", "addr", `"addr" is not one of`},
		"Twice":         {"the second would never be asked", "header:X-User,header:X-User", `"header:X-User" is listed twice`},
		"TwiceCase":     {"names of headers are not case-sensitive", "header:X-User,header:x-user", `"header:x-user" is listed twice`},
		"Host":          {"it would never be found", "header:host", "the host says where a request goes"},
		"Authorization": {"it would be taken for the token itself", "jwt:Authorization", "use jwt or authorization"},
		"AfterAddress":  {"nothing comes after an address that is always there", "address,jwt", `"jwt" is never reached: "address" finds a caller in every request`},
		"AfterAnon":     {"nor after everybody", "anonymous,address", `"address" is never reached`},
		"NoHeader":      {"a header has a name", "header:", `"header:" does not say which header: write header:NAME`},
		"NoColon":       {"a header must be named", "api-key", `"api-key" does not say which header: write api-key:NAME`},
		"BadHeader":     {"as HTTP allows", "api-key:X Key", `"api-key:X Key" does not name a header`},
		"NoProxies":     {"how many proxies there are cannot be guessed", "forwarded-for", "how many trusted proxies"},
		"ZeroProxies":   {"none of the entries would be trustworthy", "forwarded-for:0", "1 to 16"},
		"ManyProxies":   {"a typing error", "forwarded-for:17", "1 to 16"},
		"Argument":      {"Authorization is the name", "authorization:X-Auth", `"authorization" takes nothing after the colon`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(tc.list, Config{JWT: new(JWT)})
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: error %v, want %q", tc.reason, err, tc.err)
			}
		})
	}
	if _, err := Parse("jwt", Config{}); err == nil || !strings.Contains(err.Error(), "needs a JWKS URL") {
		t.Errorf("jwt without a verifier: %v", err)
	}
}

func TestNobody(t *testing.T) {
	cases := map[string]struct {
		reason, list string
		want         Refusal
	}{
		"Header":        {"a client cannot name itself", "header:X-User", Refusal{Status: 403, Detail: "The request does not say who is calling."}},
		"APIKey":        {"a client can send its key; no scheme of HTTP asks for it", "header:X-User,api-key:x-api-key", Refusal{Status: 403, Detail: "The request carries no credentials: send them in the header X-Api-Key."}},
		"Authorization": {"a client can be challenged", "authorization", Refusal{Status: 401, Challenge: "Bearer", Detail: "The request carries no credentials: send them in the header Authorization."}},
		"Either":        {"it has the choice", "jwt,api-key:X-Api-Key", Refusal{Status: 401, Challenge: "Bearer", Detail: "The request carries no credentials: send them in the header Authorization or X-Api-Key."}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := sources(t, tc.list, Config{JWT: new(JWT)}).Identify(context.Background(), &Request{Header: headers(), Peer: "192.0.2.1:1"})
			var got *Refusal
			if !errors.As(err, &got) || *got != tc.want {
				t.Errorf("%s: %+v, want %+v", tc.reason, err, tc.want)
			}
		})
	}
}
