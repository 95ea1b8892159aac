// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

func TestUserHeader(t *testing.T) {
	cases := map[string]struct {
		reason    string
		list      string
		header    http.Header
		unvouched bool
		joined    bool
		want      Caller
		status    int
		detail    string
	}{
		"Present":          {reason: "the header that was configured names the user", header: headers("X-User", "alice"), want: Caller{User: "alice"}},
		"Twice":            {reason: "one of them is the client's", header: headers("X-User", "alice", "X-User", "bob"), status: 400, detail: "X-User is given twice"},
		"TwiceSame":        {reason: "whoever sends it twice is not the ingress", header: headers("X-User", "alice", "X-User", "alice"), status: 400, detail: "twice"},
		"Absent":           {reason: "the next source is asked", header: headers(), want: at("192.0.2.1")},
		"Empty":            {reason: "an ingress that blanks the header names nobody", header: headers("X-User", ""), want: at("192.0.2.1")},
		"Forged":           {reason: "no other header is believed", header: headers("X-User-Id", "alice", "X-Auth-Request-User", "alice"), want: at("192.0.2.1")},
		"Unvouched":        {reason: "where a client could have set it, it is not looked at", header: headers("X-User", "alice"), unvouched: true, want: at("192.0.2.1")},
		"UnvouchedAddress": {reason: "nor is an address that only a proxy could have set", list: "address:X-Client,anonymous", header: headers("X-Client", "203.0.113.7"), unvouched: true, want: Caller{Kind: limiter.KindAnonymous, User: "all"}},
		"Joined":           {reason: "two headers may have become one", header: headers("X-User", "alice,bob"), joined: true, status: 400, detail: "twice or contains a comma"},
		"Comma":            {reason: "where two stay two, a comma belongs to the name", header: headers("X-User", "cn=alice,dc=example"), want: Caller{User: "cn=alice,dc=example"}},
		"NoneLeft":         {reason: "at the end of the list the caller is refused", list: "header:X-User", header: headers(), status: 403, detail: "does not say who is calling"},
		"Anonymous":        {reason: "or shares one budget with all others", list: "header:X-User,anonymous", header: headers(), want: Caller{Kind: limiter.KindAnonymous, User: "all"}},
		"Order":            {reason: "the first that is present wins", list: "header:X-App,header:X-User", header: headers("X-User", "alice", "X-App", "app"), want: Caller{User: "app"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.list == "" {
				tc.list = "header:x-user,address"
			}
			r := &Request{Header: tc.header, Peer: "192.0.2.1:1234", Unvouched: tc.unvouched, Joined: tc.joined}
			expect(t, sources(t, tc.list, Config{}), r, tc.reason, tc.want, tc.status, tc.detail)
		})
	}
}

func basic(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }

func TestCredential(t *testing.T) {
	key := func(hash string) Caller { return Caller{Kind: limiter.KindKey, User: hash} }
	cases := map[string]struct {
		reason string
		header http.Header
		joined bool
		same   string // Authorization with the same budget
		status int
		detail string
	}{
		"Bearer":       {reason: "a bearer token is a key", header: headers("Authorization", "Bearer sk-secret"), same: "Bearer sk-secret"},
		"Scheme":       {reason: "the scheme is not case-sensitive (RFC 9110, section 11.1)", header: headers("Authorization", "bEARER sk-secret"), same: "Bearer sk-secret"},
		"Spaces":       {reason: "nor do spaces make another key", header: headers("Authorization", "  Bearer   sk-secret "), same: "Bearer sk-secret"},
		"ApiKey":       {reason: "the same key in a header of its own is the same key", header: headers("X-Api-Key", "sk-secret"), same: "Bearer sk-secret"},
		"Basic":        {reason: "user and password are a key", header: headers("Authorization", "basic "+strings.TrimPrefix(basic("alice:pw"), "Basic ")), same: basic("alice:pw")},
		"Token":        {reason: "other schemes for a key mean the same key", header: headers("Authorization", "Token sk-secret"), same: "Bearer sk-secret"},
		"Tab":          {reason: "any white space separates, since applications take any", header: headers("Authorization", "Bearer\tsk-secret"), same: "Bearer sk-secret"},
		"NoScheme":     {reason: "an application that cuts seven characters off would take any seven", header: headers("Authorization", "sk-secret"), status: 400, detail: "not a scheme, a space and credentials"},
		"TokenParam":   {reason: "some applications take it for the key", header: headers("Authorization", "Bearer token=sk-secret"), status: 400, detail: "a parameter in place of a key"},
		"BasicNUL":     {reason: "a password ends at a NUL for applications in C", header: headers("Authorization", basic("alice:pw\x00"+"1")), status: 400, detail: "not correct Basic"},
		"BasicNoColon": {reason: "there is no password (RFC 7617)", header: headers("Authorization", basic("alice")), status: 400, detail: "not correct Basic"},
		"Colon":        {reason: "an application might read a key in it", header: headers("Authorization", "Bearer: sk-secret"), status: 400, detail: "not a scheme, a space and credentials"},
		"Invented":     {reason: "an application might not look at the scheme", header: headers("Authorization", "a sk-secret"), status: 400, detail: "not one of Bearer"},
		"More":         {reason: "an application might take the first word", header: headers("Authorization", "Bearer sk-secret 1"), status: 400, detail: "not a scheme, a space and credentials"},
		"Comma":        {reason: "or the first of a list", header: headers("Authorization", "Bearer sk-secret,1"), status: 400, detail: "not a scheme, a space and credentials"},
		"Parameters":   {reason: "or a parameter", header: headers("Authorization", `Token token="sk-secret"`), status: 400, detail: "not a scheme, a space and credentials"},
		"Latin1Space":  {reason: "or trim what is white space in Latin-1", header: headers("Authorization", "Bearer sk-secret\xa0"), status: 400, detail: "not a scheme, a space and credentials"},
		"UTF8Space":    {reason: "or in UTF-8", header: headers("Authorization", "Bearer sk-secret\u00a0"), status: 400, detail: "not a scheme, a space and credentials"},
		"Digest":       {reason: "a new nonce would be a new budget", header: headers("Authorization", `Digest nonce=1`), status: 400, detail: "not one of Bearer"},
		"ApiKeySpace":  {reason: "a key of its own is trimmed by applications too", header: headers("X-Api-Key", "sk-secret\xa0"), status: 400, detail: "X-Api-Key is not a key"},
		"ApiKeyMore":   {reason: "and could be a list", header: headers("X-Api-Key", "sk-secret,1"), status: 400, detail: "X-Api-Key is not a key"},
		"Twice":        {reason: "which one is meant cannot be known", header: headers("Authorization", "Bearer a", "Authorization", "Bearer b"), status: 400, detail: "Authorization is given twice"},
		"Joined":       {reason: "two may have become one", header: headers("Authorization", "Bearer a,Bearer b"), joined: true, status: 400, detail: "twice or contains a comma"},
		"ApiKeyTwice":  {reason: "which one is meant cannot be known", header: headers("X-Api-Key", "a", "X-Api-Key", "b"), status: 400, detail: "X-Api-Key is given twice"},
		"NoToken":      {reason: "a scheme alone is nobody", header: headers("Authorization", "Bearer "), status: 400, detail: "not a scheme, a space and credentials"},
		"Nothing":      {reason: "nor is white space a key", header: headers("Authorization", " "), status: 400, detail: "not a scheme, a space and credentials"},
		"BasicBad":     {reason: "what is not base64 could be any number of keys", header: headers("Authorization", "Basic alice:pw"), status: 400, detail: "not correct Basic"},
		"BasicTrailer": {reason: "trailing bits could be any number of keys", header: headers("Authorization", "Basic YTpwdx=="), status: 400, detail: "not correct Basic"},
		"Absent":       {reason: "a client without a key is told to send one", header: headers("Cookie", "session=1"), status: 401, detail: "no credentials"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := sources(t, "authorization,api-key:X-Api-Key", Config{})
			var want Caller
			if tc.same != "" {
				canonical, err := canonicalAuthorization(tc.same)
				if err != nil {
					t.Fatal(err)
				}
				want = key(hashOf(nil, canonical))
			}
			expect(t, s, &Request{Header: tc.header, Joined: tc.joined}, tc.reason, want, tc.status, tc.detail)
		})
	}
}

// The hash is documented, so that support can find a key's log.
func TestHash(t *testing.T) {
	cases := map[string]struct{ key, want string }{
		// printf %s sk-secret | sha256sum | cut -c1-32
		"Plain": {"", "746b4ad1ca9129e1caf080bf9406d435"},
		// printf %s sk-secret | openssl dgst -sha256 -hmac pepper -r | cut -c1-32
		"Keyed": {"pepper", "28c1ee3a0b207b29b526f4d940d424cd"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := sources(t, "authorization", Config{HashKey: []byte(tc.key)})
			expect(t, s, &Request{Header: headers("Authorization", "Bearer sk-secret")}, "as documented", Caller{Kind: limiter.KindKey, User: tc.want}, 0, "")
		})
	}
}
