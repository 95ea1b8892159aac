// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package tierfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/clustertest"
)

// yamlOf returns a manifest of 12 lines or so, in which requests is line 6.
func yamlOf(name string, lines ...string) string {
	return "apiVersion: tierlimit.dev/v1alpha1\nkind: RateLimitTier\nmetadata:\n  name: " + name + "\nspec:\n" + strings.Join(lines, "\n") + "\n"
}

// plain returns a manifest of a tier of n requests a minute.
func plain(name string, n int) string {
	return yamlOf(name, "  requests:", fmt.Sprintf("    perMinute: %d", n))
}

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		content string
		tiers   []string // name and line
		errs    []string // the beginning of each line
	}{
		"One":             {"the common case", plain("free", 5), []string{"free:4"}, nil},
		"Several":         {"a file may hold several", plain("free", 5) + "---\n" + plain("pro", 60), []string{"free:4", "pro:12"}, nil},
		"Separators":      {"nothing between two separators", "---\n---\n" + plain("free", 5) + "---\n# the end\n", []string{"free:6"}, nil},
		"JSON":            {"JSON is YAML", `{"apiVersion":"tierlimit.dev/v1alpha1","kind":"RateLimitTier","metadata":{"name":"free"},"spec":{"requests":{"perDay":1}}}`, []string{"free:1"}, nil},
		"Anchors":         {"YAML's own way to repeat", yamlOf("free", "  requests: &b", "    perMinute: 5", "  killSwitch: {engaged: false}"), []string{"free:4"}, nil},
		"Empty":           {"an editor may have emptied it", "", nil, []string{"f.yaml:1: no RateLimitTier in this file"}},
		"OnlyComments":    {"the same", "# later\n", nil, []string{"f.yaml:1: no RateLimitTier in this file"}},
		"BrokenYAML":      {"with the line", "apiVersion: tierlimit.dev/v1alpha1\nkind: [\n", nil, []string{"f.yaml:"}},
		"Tab":             {"the line where what holds the tab begins", "apiVersion: tierlimit.dev/v1alpha1\nkind: RateLimitTier\n\tmetadata: {}\n", nil, []string{"f.yaml:2: found a tab character"}},
		"NotAnObject":     {"what was expected instead", "- a\n- b\n", nil, []string{"f.yaml:1: expected a RateLimitTier object"}},
		"NotAWord":        {"what was expected instead", "hello\n", nil, []string{"f.yaml:1: expected a RateLimitTier object"}},
		"OtherKind":       {"only one kind can be read", "apiVersion: v1\nkind: ConfigMap\n", nil, []string{"f.yaml:2: apiVersion v1, kind ConfigMap: only apiVersion tierlimit.dev/v1alpha1, kind RateLimitTier can be read"}},
		"NoKind":          {"only one kind can be read", "metadata: {name: free}\n", nil, []string{"f.yaml:1: apiVersion (none), kind (none)"}},
		"RuleViolation":   {"the line of the very field", yamlOf("free", "  requests:", "    perMinute: -1"), nil, []string{"f.yaml:7: spec.requests.perMinute: "}},
		"Requiredness":    {"the line of what should contain it", yamlOf("free", "  mode: Enforce"), nil, []string{"f.yaml:5: spec.requests: Required value"}},
		"UnknownField":    {"the line of the field", yamlOf("free", "  requests:", "    perMinute: 5", "    perHour: 6"), nil, []string{`f.yaml:8: unknown field "spec.requests.perHour"`}},
		"DuplicateKey":    {"both lines", yamlOf("free", "  requests:", "    perMinute: 5", "    perMinute: 6"), nil, []string{`f.yaml:8: mapping key "perMinute" already defined at line 7`}},
		"SeveralFaults":   {"all at once", yamlOf("Free", "  requests:", "    perMinute: -1", "  mode: Off!", "  failPolicy: FailOpen"), nil, []string{"f.yaml:4: metadata.name: Invalid value", "f.yaml:7: spec.requests.perMinute", "f.yaml:8: spec.mode", "f.yaml:9: unknown field"}},
		"OneOfTwoIsBad":   {"what is good is read nevertheless, the caller decides", plain("free", 5) + "---\n" + plain("pro", -1), []string{"free:4"}, []string{"f.yaml:15: spec.requests.perMinute"}},
		"NumberAsKey":     {"a key is a string", "1: 2\n" + plain("free", 5), nil, []string{"f.yaml:1: "}},
		"NotJSON":         {"a number that JSON has not", yamlOf("free", "  requests:", "    perMinute: .inf"), nil, []string{"f.yaml:1: cannot be written as JSON"}},
		"ExponentialBomb": {"aliases of aliases", "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n", nil, []string{"f.yaml:1: "}},
	} {
		t.Run(name, func(t *testing.T) {
			declared, err := rules(t).parse("f.yaml", []byte(tc.content))
			var tiers []string
			for _, d := range declared {
				tiers = append(tiers, fmt.Sprintf("%s:%d", d.tier.Name, d.line))
			}
			if diff := cmp.Diff(tc.tiers, tiers); diff != "" {
				t.Errorf("%s: tiers (-want +got):\n%s", tc.reason, diff)
			}
			var lines []string
			if err != nil {
				lines = strings.Split(err.Error(), "\n")
			}
			if len(lines) != len(tc.errs) {
				t.Fatalf("%s: %d errors, want %d:\n%v", tc.reason, len(lines), len(tc.errs), err)
			}
			for i, want := range tc.errs {
				if !strings.HasPrefix(lines[i], want) {
					t.Errorf("%s: error %d\ngot:  %s\nwant: %s...", tc.reason, i, lines[i], want)
				}
			}
		})
	}
}

// FuzzParse looks for content that parse cannot bear, or for which it returns nothing at all.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"valid", "invalid"} {
		files, err := filepath.Glob(filepath.Join(clustertest.Root(), "api", "v1alpha1", "testdata", pattern, "*.yaml"))
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(content)
		}
	}
	f.Add([]byte("a: &a\n  b: *a\n"))
	f.Add([]byte("<<: {kind: RateLimitTier}\n"))
	rules := rules(f)
	f.Fuzz(func(t *testing.T, content []byte) {
		tiers, err := rules.parse("f.yaml", content)
		if len(tiers) == 0 && err == nil {
			t.Error("neither a tier nor an error")
		}
		for _, d := range tiers {
			if d.tier.Name == "" || len(d.tier.Limits) == 0 || d.line < 1 {
				t.Errorf("a tier that should not be: %+v, line %d", d.tier, d.line)
			}
		}
	})
}

func rules(t testing.TB) *validator {
	t.Helper()
	v, err := newValidator()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestAbsurdFiles have more in them than anybody has written by hand.
func TestAbsurdFiles(t *testing.T) {
	v, err := newValidator()
	if err != nil {
		t.Fatal(err)
	}
	var fields strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&fields, "  field%d: 1\n", i)
	}
	aliases := "  aliases: [" + strings.Repeat("*a, ", 5000) + "*a]\n"
	for name, tc := range map[string]struct{ content, want string }{
		"ManyFaults":  {plain("free", 5) + fields.String(), "(and 19980 more problems)"},
		"ManyAliases": {plain("free", 5) + "  text: &a " + strings.Repeat("x", 100_000) + "\n" + aliases, "f.yaml:1: its aliases expand it"},
		"Latin1":      {plain("free", 5) + "# caf\xe9\n", "f.yaml:8: not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := v.parse("f.yaml", []byte(tc.content))
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Count(err.Error(), "\n") > maxProblems {
				t.Errorf("want %q in at most %d lines:\n%.2000v", tc.want, maxProblems, err)
			}
		})
	}
}

// TestKeysAreStrings reads keys as JSON has them.
func TestKeysAreStrings(t *testing.T) {
	v, err := newValidator()
	if err != nil {
		t.Fatal(err)
	}
	content := strings.Replace(plain("free", 5), "metadata:\n", "metadata:\n  annotations: {5: five, yes: sure}\n", 1)
	if _, err := v.parse("f.yaml", []byte(content)); err != nil {
		t.Error(err)
	}
}
