// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// lookAlikes are texts made of two others that a careless key could take for each other. The fuzzer
// chooses the parts of two subjects among them, since it would never find two that look alike by itself.
func lookAlikes(x, y string) []string {
	sum := string(appendPart(nil, strings.Repeat(x, 200)))
	return []string{x, y, "", x + ":" + y, x + "%3A" + y, "ratelimit", "%72atelimit", "ratelimit:" + x, x + ":ratelimit",
		"{" + x + "}", "%ip." + x, "ip." + x, string(appendPart(nil, x)), strings.Repeat(x, 200), sum, "60"}
}

// pick makes a subject of texts.
func pick(texts []string, choice uint32, kind string) Subject {
	at := func(shift int) string { return texts[choice>>shift%16] }
	return Subject{User: at(0), Tenant: at(4), Route: at(8), Kind: Kind(kind)}
}

// FuzzTwoSubjects compares the keys of two subjects, alone and in a Redis Cluster, for two windows. A
// key is of one subject and one window only, prints on one line and is bounded.
func FuzzTwoSubjects(f *testing.F) {
	// From the right: the user, the tenant, the route; 2 is none.
	f.Add("a", "b", uint32(0x220), uint32(0x220), "", "", uint32(60), uint32(86400))
	f.Add("a", "b", uint32(0x212), uint32(0x122), "", "ip", uint32(60), uint32(60))
	f.Add("a", "b", uint32(0x250), uint32(0x520), "", "", uint32(60), uint32(60)) // tenant or route "ratelimit"
	f.Add("a", "b", uint32(0x223), uint32(0x021), "", "", uint32(60), uint32(60)) // user "a:b", or "b" of route "a"
	f.Add("a", "b", uint32(0x224), uint32(0x223), "", "", uint32(60), uint32(60)) // "a%3Ab", "a:b"
	f.Add("a", "b", uint32(0x22a), uint32(0x220), "", "ip", uint32(60), uint32(60))
	f.Add("a", "b", uint32(0x22d), uint32(0x22e), "", "", uint32(60), uint32(60)) // a long text, its hash
	f.Add("}{", "\x00\r\n", uint32(0x229), uint32(0x221), "", "", uint32(1), uint32(2))
	f.Add("%sha", "256.", uint32(0x22a), uint32(0x220), "sha", "ip", uint32(60), uint32(60))
	f.Fuzz(func(t *testing.T, x, y string, chooseA, chooseB uint32, kindA, kindB string, secondsA, secondsB uint32) {
		texts := lookAlikes(x, y)
		a, b := pick(texts, chooseA, kindA), pick(texts, chooseB, kindB)
		if a.validate() != nil || b.validate() != nil {
			t.Skip()
		}
		windowA, windowB := time.Duration(secondsA)*time.Second, time.Duration(secondsB)*time.Second
		same := a == b && windowA == windowB
		if key := a.Key(windowA); (key == b.Key(windowB)) != same {
			t.Errorf("%#v for %v and %#v for %v: one of them has the key %q, same is %v", a, windowA, b, windowB, key, !same)
		}
		tagged := a.ClusterKey(windowA)
		if (tagged == b.ClusterKey(windowB)) != same {
			t.Errorf("%#v for %v and %#v for %v: one of them has the key %q, same is %v", a, windowA, b, windowB, tagged, !same)
		}
		if (a.GrantKey(false) == b.GrantKey(false)) != (a == b) || (a.GrantKey(true) == b.GrantKey(true)) != (a == b) {
			t.Errorf("%#v and %#v: one of them has the grant %q, same is %v", a, b, a.GrantKey(false), a != b)
		}
		for _, key := range []string{a.GrantKey(false), a.GrantKey(true)} {
			if key == b.Key(windowB) || key == tagged {
				t.Errorf("%#v: the grant of one is the log %q of the other %#v", a, key, b)
			}
		}
		for _, key := range []string{a.Key(windowA), b.Key(windowB)} {
			if key == tagged {
				t.Errorf("%#v and %#v: the key %q is also one of a Redis Cluster", a, b, key)
			}
		}
		if most := 3*maxKeyPart + len(a.Kind) + len("%.{}:ratelimit:::4294967295"); len(tagged) > most {
			t.Errorf("%#v: a key of %d bytes, want at most %d", a, len(tagged), most)
		}
		for _, c := range []byte(tagged) {
			if c < ' ' || c == 0x7f {
				t.Errorf("%#v: a control character in the key %q", a, tagged)
			}
		}
		if tag, other := hashTag(t, tagged), hashTag(t, a.ClusterKey(windowB)); tag != other {
			t.Errorf("%#v: hash tags %q and %q for two windows", a, tag, other)
		}
	})
}

// hashTag returns what Redis hashes of a key: what is between the first '{' and the next '}'. It fails
// the test if there are other braces, or nothing between these.
func hashTag(t *testing.T, key string) string {
	t.Helper()
	_, rest, _ := strings.Cut(key, "{")
	tag, _, _ := strings.Cut(rest, "}")
	if tag == "" || strings.Count(key, "{") != 1 || strings.Count(key, "}") != 1 {
		t.Errorf("the key %q has not exactly one hash tag", key)
	}
	return tag
}

// FuzzLimits sorts limits. What is accepted is the same limits, in order, each for another window and
// within its bounds; the given ones stay as they are.
func FuzzLimits(f *testing.F) {
	f.Add(int64(100), int64(86400e9), int64(5), int64(60e9), int64(1), int64(1e9), uint8(3))
	f.Add(int64(0), int64(60e9), int64(5), int64(60e9), int64(0), int64(0), uint8(2))
	f.Add(int64(-1), int64(60e9), int64(MaxRequests+1), int64(MaxWindow)+1e9, int64(1), int64(1.5e9), uint8(1))
	f.Add(int64(1), int64(1e9), int64(1), int64(1e9), int64(1), int64(1e9), uint8(0))
	f.Fuzz(func(t *testing.T, n1, w1, n2, w2, n3, w3 int64, count uint8) {
		given := []Limit{{n1, time.Duration(w1)}, {n2, time.Duration(w2)}, {n3, time.Duration(w3)}}[:count%4]
		before := slices.Clone(given)
		sorted, err := shortestFirst(given)
		if !slices.Equal(given, before) {
			t.Fatalf("%v was changed to %v", before, given)
		}
		good := len(given) > 0
		for i, l := range given {
			good = good && l.Requests >= 0 && l.Requests <= MaxRequests && l.Window >= time.Second && l.Window <= MaxWindow && l.Window%time.Second == 0 &&
				!slices.ContainsFunc(given[:i], func(other Limit) bool { return other.Window == l.Window })
		}
		if good != (err == nil) || err != nil && !errors.Is(err, ErrInvalid) {
			t.Fatalf("%v: error %v", given, err)
		}
		for i, l := range sorted {
			if !slices.Contains(given, l) || len(sorted) != len(given) || i > 0 && l.Window <= sorted[i-1].Window {
				t.Fatalf("%v became %v", given, sorted)
			}
		}
	})
}
