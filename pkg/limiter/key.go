// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxKeyPart is the longest part, in bytes after escaping, that appears in a key as it is. A
// longer one appears as its hash, so that no caller decides how much memory a key takes.
const maxKeyPart = 128

// keyspace is the constant part of every key.
const keyspace = "ratelimit"

// Kind says what a Subject's User is, in lower-case letters (a to z). Subjects of different kinds
// never share a budget, even if one is named like the other.
type Kind string

const (
	// KindUser is an account or application known by its id.
	KindUser Kind = ""
	// KindAddress is a caller of whom only the network address is known.
	KindAddress Kind = "ip"
	// KindKey is a caller of whom only a hash of its credentials is known.
	KindKey Kind = "key"
	// KindAnonymous is everybody of whom nothing is known.
	KindAnonymous Kind = "anonymous"
	// KindUpstream is not a caller: its log is that of everybody who is let through to a service,
	// which User names.
	KindUpstream Kind = "upstream"
)

// Subject is whose budget a check speaks of. Two subjects that differ in any field never share
// one.
type Subject struct {
	// User identifies the caller: any bytes, not empty. Example: "user_8421".
	User string
	// Tenant keeps the users of one tenant apart from those of another; "" is no tenant.
	// Example: "acme".
	Tenant string
	// Route gives a user a budget of its own on one route; "" is no route.
	// Example: "suggest-categories".
	Route string
	// Kind says what User is.
	Kind Kind
}

// validate returns an error that wraps ErrInvalid unless s can be told from every other subject by
// its key.
func (s Subject) validate() error {
	if s.User == "" {
		return fmt.Errorf("%w: the user is empty", ErrInvalid)
	}
	if strings.ContainsFunc(string(s.Kind), func(r rune) bool { return r < 'a' || r > 'z' }) {
		return fmt.Errorf("%w: the kind %q is not in lower-case letters", ErrInvalid, s.Kind)
	}
	return nil
}

// Key returns the name of the Redis sorted set that holds the subject's log for a window:
//
//	[tenant:]ratelimit:[route:]user:window_seconds
//
// for example "ratelimit:user_8421:60" or "acme:ratelimit:suggest-categories:user123:60".
// In each part ':', '%', '{', '}' and control characters are percent-encoded (RFC 3986, section
// 2.1), and so is the first letter of a tenant or route named "ratelimit". A part longer than
// 128 bytes is replaced by "%sha256." and its hash in hex; a user of another kind than KindUser
// begins with '%', the kind and '.'. No percent-encoding looks like either, so that different
// subjects have different keys. The key of an invalid subject or window means nothing.
func (s Subject) Key(window time.Duration) string { return s.log(window, false) }

// ClusterKey returns the name of the same log in a Redis Cluster, where a hash tag keeps all logs of
// a user in one slot, so that one script can use them together:
//
//	[tenant:]ratelimit:[route:]{user}:window_seconds
//
// for example "ratelimit:{user_8421}:60".
func (s Subject) ClusterKey(window time.Duration) string { return s.log(window, true) }

func (s Subject) log(window time.Duration, tagged bool) string {
	return string(appendSeconds(s.appendPrefix(make([]byte, 0, 64), tagged), window))
}

// GrantKey returns the name of the Redis hash that holds the subject's grant, which begins as those of
// its logs do: "ratelimit:user_8421:grant", in a Redis Cluster "ratelimit:{user_8421}:grant".
func (s Subject) GrantKey(cluster bool) string {
	return string(append(s.appendPrefix(make([]byte, 0, 64), cluster), grantSuffix...))
}

// appendKeys appends the names of the logs for all limits, and that of the grant.
func (s Subject) appendKeys(keys []string, limits []Limit, tagged bool) (logs []string, grant string) {
	prefix := s.appendPrefix(make([]byte, 0, 64), tagged)
	for _, l := range limits {
		keys = append(keys, string(appendSeconds(prefix, l.Window)))
	}
	return keys, string(append(prefix, grantSuffix...))
}

// grantSuffix is where the key of a log has the length of the window.
const grantSuffix = "grant"

func appendSeconds(prefix []byte, window time.Duration) []byte {
	return strconv.AppendInt(prefix, int64(window/time.Second), 10)
}

// appendPrefix appends what all keys of a subject begin with.
func (s Subject) appendPrefix(key []byte, tagged bool) []byte {
	if s.Tenant != "" {
		key = appendName(key, s.Tenant)
		key = append(key, ':')
	}
	key = append(key, keyspace...)
	key = append(key, ':')
	if s.Route != "" {
		key = appendName(key, s.Route)
		key = append(key, ':')
	}
	if tagged {
		key = append(key, '{')
	}
	if s.Kind != KindUser {
		key = append(key, '%')
		key = append(key, s.Kind...)
		key = append(key, '.')
	}
	key = appendPart(key, s.User)
	if tagged {
		key = append(key, '}')
	}
	return append(key, ':')
}

// appendName appends a tenant or a route. Without the exception, tenant "ratelimit" and route
// "ratelimit" of the same user would be one key.
func appendName(key []byte, name string) []byte {
	if name == keyspace {
		return append(appendEscape(key, name[0]), name[1:]...)
	}
	return appendPart(key, name)
}

// appendPart appends one part of a key so that it can be told from every other part.
func appendPart(key []byte, part string) []byte {
	start := len(key)
	for i := range len(part) {
		if c := part[i]; mustEscape(c) {
			key = appendEscape(key, c)
		} else {
			key = append(key, c)
		}
		if len(key)-start > maxKeyPart {
			sum := sha256.Sum256([]byte(part))
			return hex.AppendEncode(append(key[:start], "%sha256."...), sum[:])
		}
	}
	return key
}

func mustEscape(c byte) bool {
	return c == ':' || c == '%' || c == '{' || c == '}' || c < ' ' || c == 0x7f
}

func appendEscape(key []byte, c byte) []byte {
	const digits = "0123456789ABCDEF"
	return append(key, '%', digits[c>>4], digits[c&0xf])
}
