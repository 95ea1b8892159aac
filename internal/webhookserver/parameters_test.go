// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseParameters(t *testing.T) {
	cases := map[string]struct {
		reason, query string
		want          parameters
		err           string // a part of the error, "" for none
	}{
		"None":          {reason: "everything is optional"},
		"All":           {reason: "in any order", query: "route=r&user=u&tenant=t&tier=free", want: parameters{tier: "free", user: "u", tenant: "t", route: "r"}},
		"Methods":       {reason: "which requests count", query: "methods=POST,PUT&exempt=OPTIONS&auth=none", want: parameters{methods: "POST,PUT", exempt: "OPTIONS", auth: "none"}},
		"MethodsCase":   {reason: "methods are case-sensitive, so that this would never match", query: "exempt=options", err: `"exempt" is "options": list methods in capital letters`},
		"MethodsSpace":  {reason: "as little would this", query: "methods=GET,+POST", err: `"methods" is "GET, POST"`},
		"MethodsEmpty":  {reason: "or this", query: "methods=GET,", err: `"methods" is "GET,"`},
		"Upstream":      {reason: "a cap for all callers", query: "upstream=gpt-4o&upstream-per=tenant", want: parameters{upstream: "gpt-4o", upstreamPer: "tenant"}},
		"UpstreamPer":   {reason: "there is one way to divide a cap", query: "upstream=gpt-4o&upstream-per=user", err: `"upstream-per" is "user": use tenant`},
		"PerNothing":    {reason: "a cap that is not there cannot be divided", query: "upstream-per=tenant", err: `"upstream-per" is given without upstream`},
		"UpstreamTwice": {reason: "as every parameter", query: "upstream=a&upstream=b", err: `"upstream" is given twice`},
		"UpstreamEmpty": {reason: "as every parameter", query: "upstream=", err: `"upstream" is empty`},
		"AuthOther":     {reason: "there is one way to leave the other service out", query: "auth=off", err: `"auth" is "off": use none`},
		"EmptyPairs":    {reason: "separators without a pair mean nothing", query: "&tier=free&&user=u&", want: parameters{tier: "free", user: "u"}},
		"Encoded":       {reason: "values are percent-decoded", query: "user=a%26b%3Dc%3B%25", want: parameters{user: "a&b=c;%"}},
		"EncodedName":   {reason: "names are percent-decoded too, so that an encoded one is not another", query: "%75ser=u", want: parameters{user: "u"}},
		"Plus":          {reason: "a plus is a space, as forms encode it", query: "user=a+b", want: parameters{user: "a b"}},
		"Equals":        {reason: "only the first '=' separates", query: "user=a=b", want: parameters{user: "a=b"}},
		"Twice":         {reason: "a smuggled parameter is not a choice between two", query: "tier=free&user=alice&tier=enterprise", err: `"tier" is given twice`},
		"TwiceSame":     {reason: "not even with the same value", query: "user=u&user=u", err: `"user" is given twice`},
		"TwiceEncoded":  {reason: "however it is spelled", query: "tier=free&t%69er=pro", err: `"tier" is given twice`},
		"Unknown":       {reason: "a typing error must not go unnoticed", query: "teir=pro", err: `unknown parameter "teir"`},
		"Case":          {reason: "names are in lower case", query: "Tier=pro", err: `unknown parameter "Tier"`},
		"NoName":        {reason: "a value without a name", query: "=pro", err: `unknown parameter ""`},
		"Empty":         {reason: "an empty variable would merge the budgets of many", query: "tier=free&user=", err: `"user" is empty`},
		"EmptyNoEquals": {reason: "the same without '='", query: "tenant", err: `"tenant" is empty`},
		"BadEncoding":   {reason: "a percent sign that encodes nothing", query: "user=50%", err: `"user" is not percent-encoded`},
		"BadName":       {reason: "in a name", query: "%zz=1", err: `a parameter name is not percent-encoded`},
		"Semicolon":     {reason: "older parsers separate by it", query: "user=a;tier=pro", err: `"user" contains ';'`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := inQuery.parse(tc.query)
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("%s: error %v, want %q", tc.reason, err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(parameters{})); diff != "" {
				t.Errorf("%s:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestParseParametersInPath(t *testing.T) {
	cases := map[string]struct {
		reason, path string
		want         parameters
		err          string
	}{
		"None":      {reason: "everything is optional"},
		"All":       {reason: "each begins with a semicolon", path: ";tier=free;route=r;tenant=t;user=u;exempt=OPTIONS", want: parameters{tier: "free", user: "u", tenant: "t", route: "r", exempt: "OPTIONS"}},
		"Plus":      {reason: "a plus is a plus in a path", path: ";user=a+b%20c", want: parameters{user: "a+b c"}},
		"Twice":     {reason: "as in a query", path: ";tier=free;tier=pro", err: `"tier" is given twice; percent-encode ';' in a value as %3B`},
		"Ampersand": {reason: "whoever writes it meant to separate", path: ";tier=free&route=r", err: `"tier" contains '&': percent-encode it as %26`},
		"Unknown":   {reason: "as in a query", path: ";teir=free", err: `unknown parameter "teir"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := inPath.parse(tc.path)
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("%s: error %v, want %q", tc.reason, err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(parameters{})); diff != "" {
				t.Errorf("%s:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestCounts(t *testing.T) {
	cases := map[string]struct {
		reason, query, method string
		want                  bool
	}{
		"All":           {"without parameters every method counts", "", "OPTIONS", true},
		"Exempt":        {"a preflight is exempted", "exempt=OPTIONS", "OPTIONS", false},
		"ExemptOther":   {"and nothing else", "exempt=OPTIONS,HEAD", "GET", true},
		"Listed":        {"a listed method counts", "methods=POST,PUT", "PUT", true},
		"NotListed":     {"and no other", "methods=POST,PUT", "GET", false},
		"Both":          {"what is exempt does not count even if listed", "methods=POST&exempt=POST", "POST", false},
		"Unknown":       {"an unknown method counts: a client must not gain by hiding it", "methods=POST&exempt=OPTIONS", "", true},
		"LowerCase":     {"an application may take it for the listed one", "methods=POST", "post", true},
		"MixedCase":     {"however it is written", "methods=POST", "Post", true},
		"TwoMethods":    {"or joined", "methods=POST", "POST,GET", true},
		"CaseSensitive": {"methods are case-sensitive", "exempt=OPTIONS", "options", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, err := inQuery.parse(tc.query)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.counts(tc.method); got != tc.want {
				t.Errorf("%s: %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestTierName(t *testing.T) {
	e := newEndpoint(nil, nil, budget("free", 1, 1))
	for _, name := range []string{"Gold", "a b", "a%0D%0AX-Evil:1", "-x", strings.Repeat("a", 300), "%C3%A9"} {
		r := e.ask(pathCheck + "?tier=" + strings.ReplaceAll(name, " ", "%20"))
		if r.Code != 400 || !strings.Contains(r.Body.String(), "cannot be the name of a RateLimitTier") {
			t.Errorf("tier %q: %d %s", name, r.Code, r.Body)
		}
	}
}

// FuzzParseParameters compares the parser with net/url's: what it accepts means the same there,
// and names nothing twice.
func FuzzParseParameters(f *testing.F) {
	for _, query := range []string{"", "tier=free&user=u", "user=a+b%20", "tier=a&tier=b", "user=%", "a;b", "&&user=x&"} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		got, err := inQuery.parse(query)
		if err != nil {
			return
		}
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatalf("net/url refuses %q: %v", query, err)
		}
		want := parameters{tier: values.Get("tier"), user: values.Get("user"), tenant: values.Get("tenant"), route: values.Get("route"),
			upstream: values.Get("upstream"), upstreamPer: values.Get("upstream-per"),
			methods: values.Get("methods"), exempt: values.Get("exempt"), auth: values.Get("auth")}
		if got != want {
			t.Fatalf("%q: %+v, net/url says %+v", query, got, want)
		}
		for name, all := range values {
			if len(all) != 1 || got.field(name) == nil {
				t.Fatalf("%q: accepted %s=%q", query, name, all)
			}
		}
	})
}
