// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Default is the list of sources when none is given.
const Default = "address"

// maxProxies bounds forwarded-for:N.
const maxProxies = 16

// Config configures Sources.
type Config struct {
	// HashKey keys the hashes of credentials; without it they are plain SHA-256.
	HashKey []byte
	// JWT verifies tokens; nil if no source is "jwt".
	JWT *JWT
}

// Parse reads a list of sources, separated by commas:
//
//	address            the client's address in X-Real-IP, or else the connection's
//	address:HEADER     the client's address in another header that the proxy sets
//	forwarded-for:N    the N-th address of X-Forwarded-For from the right, 1 to 16
//	header:NAME        the user, from a header that the proxy sets
//	authorization      a hash of the credentials in Authorization
//	api-key:NAME       a hash of the key in a header
//	jwt, jwt:NAME      claims of the bearer token in Authorization, or of the token in a header
//	anonymous          one budget for everybody who is left
//
// After a list without a source that always finds somebody, callers are refused.
func Parse(list string, config Config) (*Sources, error) {
	s := new(Sources)
	var credentials []string // headers in which a client could say who it is
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.TrimSpace(entry)
		if len(s.list) > 0 && always(s.list[len(s.list)-1]) {
			return nil, fmt.Errorf("%q is never reached: %q finds a caller in every request", entry, s.names[len(s.names)-1])
		}
		if slices.ContainsFunc(s.names, func(name string) bool { return strings.EqualFold(name, entry) }) {
			return nil, fmt.Errorf("%q is listed twice", entry)
		}
		source, err := parseSource(entry, config)
		if err != nil {
			return nil, err
		}
		s.list, s.names = append(s.list, source), append(s.names, entry)
		if header := credentialHeader(source); header != "" && !slices.Contains(credentials, header) {
			credentials = append(credentials, header)
		}
	}
	s.last = nobody(credentials)
	return s, nil
}

// nobody is the refusal when no source has found a caller.
func nobody(credentials []string) *Refusal {
	r := &Refusal{Status: http.StatusForbidden, Detail: "The request does not say who is calling."}
	if len(credentials) > 0 {
		r.Detail = "The request carries no credentials: send them in the header " + strings.Join(credentials, " or ") + "."
	}
	if slices.Contains(credentials, authorizationHeader) {
		r.Status, r.Challenge = http.StatusUnauthorized, "Bearer"
	}
	return r
}

// UsesJWT returns whether a list needs Config.JWT.
func UsesJWT(list string) bool {
	for entry := range strings.SplitSeq(list, ",") {
		if name, _, _ := strings.Cut(strings.TrimSpace(entry), ":"); name == "jwt" {
			return true
		}
	}
	return false
}

func parseSource(entry string, config Config) (source, error) {
	name, argument, hasArgument := strings.Cut(entry, ":")
	switch name {
	case "address", "header", "api-key", "jwt":
		if hasArgument && argument != "" && !httpguts.ValidHeaderFieldName(argument) {
			return nil, fmt.Errorf("%q does not name a header: write it as in HTTP, without spaces", entry)
		}
	case "authorization", "anonymous":
		if hasArgument {
			return nil, fmt.Errorf("%q takes nothing after the colon", name)
		}
	}
	header := http.CanonicalHeaderKey(argument)
	switch {
	case header == "Host":
		return nil, fmt.Errorf("%q: the host says where a request goes, not who sends it", entry)
	case header == authorizationHeader:
		return nil, fmt.Errorf("%q: for the header Authorization use jwt or authorization", entry)
	case entry == "address":
		return realIP{header: realIPHeader, peer: true}, nil
	case name == "address":
		return realIP{header: header}, nil
	case name == "forwarded-for":
		return parseForwardedFor(entry, argument)
	case name == "header" && header != "":
		return userHeader{header: header}, nil
	case name == "authorization":
		return credential{header: authorizationHeader, hashKey: config.HashKey}, nil
	case name == "api-key" && header != "":
		return credential{header: header, hashKey: config.HashKey}, nil
	case name == "jwt" && config.JWT == nil:
		return nil, errors.New("\"jwt\" needs a JWKS URL, an issuer and an audience")
	case name == "jwt":
		return jwtSource{header: header, verifier: config.JWT}, nil
	case name == "anonymous":
		return anonymous{}, nil
	}
	if name == "header" || name == "api-key" {
		return nil, fmt.Errorf("%q does not say which header: write %s:NAME", entry, name)
	}
	return nil, fmt.Errorf("%q is not one of address[:HEADER], forwarded-for:N, header:NAME, authorization, api-key:NAME, jwt[:NAME], anonymous", entry)
}

func parseForwardedFor(entry, argument string) (source, error) {
	proxies, err := strconv.Atoi(argument)
	if err != nil || proxies < 1 || proxies > maxProxies {
		return nil, fmt.Errorf("%q: write how many trusted proxies add to X-Forwarded-For, 1 to %d", entry, maxProxies)
	}
	return forwardedFor{proxies: proxies}, nil
}

// always returns whether a source finds a caller in every request.
func always(s source) bool {
	switch s := s.(type) {
	case realIP:
		return s.peer
	case anonymous:
		return true
	}
	return false
}

// credentialHeader returns the header in which a source looks for what a client authenticates with.
func credentialHeader(s source) string {
	switch s := s.(type) {
	case jwtSource:
		return cmp.Or(s.header, authorizationHeader)
	case credential:
		return s.header
	}
	return ""
}
