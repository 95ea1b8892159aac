// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestKey(t *testing.T) {
	hash := func(part string) string { return fmt.Sprintf("%%sha256.%x", sha256.Sum256([]byte(part))) }
	long := strings.Repeat("x", 129)
	cases := map[string]struct {
		reason  string
		subject Subject
		window  time.Duration
		want    string
	}{
		"User":           {"A user alone.", Subject{User: "user_8421"}, time.Minute, "ratelimit:user_8421:60"},
		"Day":            {"The window is in seconds.", Subject{User: "user_8421"}, day, "ratelimit:user_8421:86400"},
		"Tenant":         {"A tenant comes first.", Subject{User: "user123", Tenant: "acme"}, time.Minute, "acme:ratelimit:user123:60"},
		"Route":          {"A route precedes the user.", Subject{User: "user123", Route: "export"}, time.Minute, "ratelimit:export:user123:60"},
		"TenantAndRoute": {"Both.", Subject{User: "user123", Tenant: "acme", Route: "suggest-categories"}, time.Minute, "acme:ratelimit:suggest-categories:user123:60"},
		"Address":        {"An address is marked, and its colons encoded.", Subject{User: "2001:db8::", Kind: KindAddress}, time.Minute, "ratelimit:%ip.2001%3Adb8%3A%3A:60"},
		"Encoded":        {"What separates or groups is encoded.", Subject{User: "a:b%c{d}e\n\x7f"}, time.Minute, "ratelimit:a%3Ab%25c%7Bd%7De%0A%7F:60"},
		"AsItIs":         {"All else is not.", Subject{User: "käse @/?#[]*\xff"}, time.Minute, "ratelimit:käse @/?#[]*\xff:60"},
		"NamedRatelimit": {"The constant part appears once.", Subject{User: "ratelimit", Tenant: "ratelimit", Route: "ratelimit"}, time.Minute, "%72atelimit:ratelimit:%72atelimit:ratelimit:60"},
		"Long":           {"128 bytes appear as they are.", Subject{User: long[:128]}, time.Minute, "ratelimit:" + long[:128] + ":60"},
		"TooLong":        {"More are hashed.", Subject{User: long}, time.Minute, "ratelimit:" + hash(long) + ":60"},
		"TooLongEncoded": {"What counts is the length in the key.", Subject{User: strings.Repeat(":", 43)}, time.Minute, "ratelimit:" + hash(strings.Repeat(":", 43)) + ":60"},
		"LongAddress":    {"The kind stays.", Subject{User: long, Kind: KindAddress}, time.Minute, "ratelimit:%ip." + hash(long) + ":60"},
		"LongEverything": {"Every part is bounded.", Subject{User: long, Tenant: long, Route: long}, time.Minute, hash(long) + ":ratelimit:" + hash(long) + ":" + hash(long) + ":60"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.subject.Key(tc.window)); diff != "" {
				t.Errorf("%s -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestSubjectsThatLookAlikeHaveDifferentKeys(t *testing.T) {
	long := strings.Repeat("x", 200)
	sum := sha256.Sum256([]byte(long))
	hash := hex.EncodeToString(sum[:])
	subjects := []Subject{
		{User: "a"}, {User: "A"}, {User: " a"}, {User: "a "}, {User: "a\t"}, {User: "a\n"}, {User: "a\r\n"}, {User: "a\x00"},
		{User: "a", Tenant: "b"}, {User: "b", Tenant: "a"},
		{User: "a", Route: "b"}, {User: "b", Route: "a"},
		{User: "a", Tenant: "b", Route: "c"}, {User: "a", Tenant: "c", Route: "b"}, {User: "b", Tenant: "a", Route: "c"},
		{User: "a:b"}, {User: "b:a"}, {User: "a:b:c"}, {User: "b:c", Route: "a"}, {User: "c", Route: "a:b"}, {User: "c", Tenant: "a:b"},
		{User: "a%3Ab"}, {User: "a%3ab"}, {User: "a%253Ab"}, {User: "a%b"}, {User: "a%25b"},
		{User: "{a}"}, {User: "{a"}, {User: "a}"}, {User: "%7Ba%7D"},
		{User: "a:60"}, {User: "a:60:60"}, {User: "60", Route: "a"}, {User: "a", Tenant: "60"},
		{User: "ratelimit"}, {User: "ratelimit:a"}, {User: "ratelimit", Route: "a"}, {User: "ratelimit", Tenant: "a"},
		{User: "a", Tenant: "ratelimit"}, {User: "a", Route: "ratelimit"}, {User: "a", Tenant: "ratelimit", Route: "ratelimit"},
		{User: "ratelimit", Tenant: "ratelimit"}, {User: "ratelimit", Route: "ratelimit"},
		{User: "a", Tenant: "%72atelimit"}, {User: "a", Route: "%72atelimit"}, {User: "%72atelimit"},
		{User: "a", Tenant: "Ratelimit"}, {User: "a", Tenant: "ratelimit:ratelimit"}, {User: "b:ratelimit:a"},
		{User: "10.0.0.1"}, {User: "10.0.0.1", Kind: KindAddress}, {User: "%ip.10.0.0.1"}, {User: "ip.10.0.0.1"}, {User: "%25ip.10.0.0.1"},
		{User: "::1"}, {User: "::1", Kind: KindAddress}, {User: "%ip.::1"},
		{User: "x", Kind: "key"}, {User: "%key.x"}, {User: "y.x", Kind: "key"}, {User: "x", Kind: "keys"},
		{User: long}, {User: long + "x"}, {User: long, Kind: KindAddress}, {User: long, Route: long}, {User: long, Tenant: long},
		{User: "%sha256." + hash}, {User: "sha256." + hash}, {User: hash}, {User: "%25sha256." + hash}, {User: "%sha256." + hash, Kind: KindAddress},
		{User: "é"}, {User: "e\u0301"}, {User: "\xe9"}, {User: "%C3%A9"}, {User: "\ufffd"}, {User: "\xff"}, {User: "\xff\xfe"}, {User: "漢字"},
	}
	seen := map[string]string{}
	for _, subject := range subjects {
		if err := subject.validate(); err != nil {
			t.Errorf("%+q: %v", subject, err)
		}
		for _, window := range []time.Duration{6 * time.Second, time.Minute, 600 * time.Second} {
			key, what := subject.Key(window), fmt.Sprintf("%+q for %v", subject, window)
			if other, ok := seen[key]; ok {
				t.Errorf("%s and %s share the key %q", what, other, key)
			}
			seen[key] = what
		}
	}
}

// part is what a key tells about a field of a subject.
type part struct{ text, hash string }

// parts is what a key tells about a subject and a window.
type parts struct {
	tenant, route, user part
	kind                string
	window              int64
}

// wantParts is what the key of the subject has to tell: each part, or its hash if it is long.
func wantParts(s Subject, window time.Duration) parts {
	of := func(text string) part {
		encoded := len(text)
		for _, c := range []byte(text) {
			if strings.ContainsRune(":%{}\x7f", rune(c)) || c < 0x20 {
				encoded += 2
			}
		}
		if encoded > 128 {
			return part{hash: fmt.Sprintf("%x", sha256.Sum256([]byte(text)))}
		}
		return part{text: text}
	}
	return parts{of(s.Tenant), of(s.Route), of(s.User), string(s.Kind), int64(window / time.Second)}
}

// readKey takes a key apart, knowing only what the documentation of Key says.
func readKey(key string) (parts, error) {
	var p parts
	fields := strings.Split(key, ":")
	var err error
	if p.window, err = strconv.ParseInt(fields[len(fields)-1], 10, 64); err != nil {
		return p, err
	}
	rest := fields[1 : len(fields)-1]
	if fields[0] != "ratelimit" {
		if p.tenant, err = readPart(fields[0]); err != nil || rest[0] != "ratelimit" {
			return p, fmt.Errorf("no ratelimit in second place, or %w", err)
		}
		rest = rest[1:]
	}
	if len(rest) == 2 {
		if p.route, err = readPart(rest[0]); err != nil {
			return p, err
		}
		rest = rest[1:]
	}
	if len(rest) != 1 {
		return p, fmt.Errorf("%d parts where the user is", len(rest))
	}
	user := rest[0]
	if strings.HasPrefix(user, "%") && len(user) > 1 && user[1] >= 'a' && user[1] <= 'z' && !strings.HasPrefix(user, "%sha256.") {
		var found bool
		if p.kind, user, found = strings.Cut(user[1:], "."); !found {
			return p, fmt.Errorf("a kind without an end")
		}
	}
	p.user, err = readPart(user)
	return p, err
}

func readPart(text string) (part, error) {
	if hash, found := strings.CutPrefix(text, "%sha256."); found {
		return part{hash: hash}, nil
	}
	decoded, err := url.PathUnescape(text)
	return part{text: decoded}, err
}

// Whoever can read every part back from a key has shown that no two subjects share one.
func FuzzKey(f *testing.F) {
	f.Add("user_8421", "", "", "", uint32(60))
	f.Add("user123", "acme", "suggest-categories", "ip", uint32(86400))
	f.Add("ratelimit", "ratelimit", "ratelimit", "", uint32(1))
	f.Add("%ip.a", "%72atelimit", "a:b", "sha", uint32(1))
	f.Add(strings.Repeat(":", 43), strings.Repeat("x", 128), strings.Repeat("x", 129), "ip", uint32(1))
	f.Fuzz(func(t *testing.T, user, tenant, route, kind string, seconds uint32) {
		s := Subject{User: user, Tenant: tenant, Route: route, Kind: Kind(kind)}
		window := time.Duration(seconds) * time.Second
		if s.validate() != nil {
			t.Skip()
		}
		key := s.Key(window)
		got, err := readKey(key)
		if err != nil || got != wantParts(s, window) {
			t.Errorf("%#v has the key %q, which reads %#v, %v", s, key, got, err)
		}
		if strings.ContainsAny(key, "{}\r\n\x00") || len(key) > 3*128+len(kind)+64 {
			t.Errorf("%#v has the key %q, %d bytes", s, key, len(key))
		}
	})
}
