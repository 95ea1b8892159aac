// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest_test

import (
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/internal/proxytest"
)

// TestNginxAccepts asks nginx about configurations: a mistake in a snippet keeps ingress-nginx from
// every later change.
func TestNginxAccepts(t *testing.T) {
	const check, application = "127.0.0.1:1", "127.0.0.1:2"
	cases := map[string]struct {
		reason    string
		configure func(*testing.T, proxytest.Nginx) proxytest.Nginx
		routes    []proxytest.NginxRoute
		pages     string
		refused   bool
	}{
		"ConfigMap":              {reason: "a route with a check and one without", configure: recipes["ConfigMap"], routes: []proxytest.NginxRoute{{Path: "/free/", AuthURL: authURL(check, "tier=free")}, {Path: "/"}}},
		"ConfigMap, no check":    {reason: "before the first route asks", configure: recipes["ConfigMap"], routes: []proxytest.NginxRoute{{Path: "/"}}},
		"ConfigMap, error pages": {reason: "custom-http-errors of the ConfigMap", configure: recipes["ConfigMap"], routes: []proxytest.NginxRoute{{Path: "/"}}, pages: application},
		"ConfigMap, everything": {reason: "what else an Ingress can have", configure: recipes["ConfigMap"], routes: []proxytest.NginxRoute{
			{Path: "/", AuthURL: authURL(check, "tier=free"), SigninURL: "https://sign-in.example/", Denied: true, ErrorBackend: application},
			{Path: "/keep/", AuthURL: authURL(check, "tier=free"), Keepalive: true},
		}},
		"annotations": {reason: "a route with a check and one without", configure: recipes["annotations"], routes: []proxytest.NginxRoute{{Path: "/free/", AuthURL: authURL(check, "tier=free")}, {Path: "/"}}},
		"both":        {reason: "the ConfigMap comes to a cluster with annotations", configure: both, routes: []proxytest.NginxRoute{{Path: "/free/", AuthURL: authURL(check, "tier=free")}, {Path: "/"}}},
		"no snippets": {reason: "the test's own configuration", configure: func(_ *testing.T, n proxytest.Nginx) proxytest.Nginx { return n }, routes: []proxytest.NginxRoute{{Path: "/"}}},
		"half": {reason: "that this test can fail", configure: func(t *testing.T, n proxytest.Nginx) proxytest.Nginx {
			n = recipes["ConfigMap"](t, n)
			n.LocationSnippet = "" // the other snippets know none of its variables
			return n
		}, routes: []proxytest.NginxRoute{{Path: "/"}}, refused: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			output, err := tc.configure(t, proxytest.Nginx{Application: application, Routes: tc.routes, ErrorPages: tc.pages}).Validate(t)
			if refused := err != nil; refused != tc.refused {
				t.Errorf("%s: %v\n%s", tc.reason, err, output)
			}
			if !tc.refused && strings.Contains(output, "[warn]") {
				t.Errorf("%s: a warning:\n%s", tc.reason, output)
			}
		})
	}
}
