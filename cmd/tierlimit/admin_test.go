// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tierlimit/tierlimit/internal/admin"
	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/openapitest"
	"github.com/tierlimit/tierlimit/internal/redistest"
)

// adminClient asks an admin API, and holds what it answers against the document.
type adminClient struct {
	t        *testing.T
	document *openapitest.Document
	base     string
	token    string
	http     *http.Client
}

// adminOf returns a client of a process, by a token unless that is empty, and a client certificate unless that is nil.
func adminOf(t *testing.T, document *openapitest.Document, p *process, token string, certificate *tls.Certificate) *adminClient {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true} // the server signs for itself
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	t.Cleanup(client.CloseIdleConnections)
	return &adminClient{t: t, document: document, base: "https://" + p.Admin, token: token, http: client}
}

func (c *adminClient) ask(method, target string, headers ...string) (int, string) {
	c.t.Helper()
	request, err := http.NewRequest(method, c.base+target, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			request.Host = headers[i+1]
		}
	}
	response, err := c.http.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	described := httptest.NewRequest(method, target, nil) // the document names no server
	c.document.Check(c.t, described, response.StatusCode, response.Header, body)
	return response.StatusCode, string(body)
}

// TestAdminLocal makes changes in local mode, where nobody is authenticated.
func TestAdminLocal(t *testing.T) {
	p := start(t, nil, "--tiers", "config/samples")
	c := adminOf(t, openapitest.Load(t), p, "", nil)
	c.base = "http://" + p.Admin
	p.statuses(5, "user=alice-in-clear")
	if got := p.ask("user=alice-in-clear").status; got != 429 {
		t.Fatalf("a budget that is used up: %d", got)
	}
	var quota adminapi.Quota
	_, body := c.ask("GET", "/admin/v1/quota?user=alice-in-clear")
	if err := json.Unmarshal([]byte(body), &quota); err != nil || quota.BlockedBy != "minute" || quota.Windows[1].Used != 5 {
		t.Fatalf("%v %s", err, body)
	}
	if code, body := c.ask("PUT", "/admin/v1/grant?user=alice-in-clear&requests=2&for=1h"); code != 200 {
		t.Fatalf("granting: %d %s", code, body)
	}
	if got := fmt.Sprint(p.statuses(3, "user=alice-in-clear")); got != "[200 200 429]" {
		t.Errorf("with a grant of two: %s", got)
	}
	if code, body := c.ask("DELETE", "/admin/v1/quota?user=alice-in-clear"); code != 200 {
		t.Fatalf("clearing: %d %s", code, body)
	}
	if got := p.ask("user=alice-in-clear").status; got != 200 {
		t.Errorf("after that: %d", got)
	}
	for target, want := range map[string]string{
		"/admin/v1/top?by=rejected":                       `"user":"alice-in-clear"`,
		"/admin/v1/decisions":                             `"rejected":2`,
		"/admin/v1/simulate?per-minute=1":                 `"users":[{"id":`,
		"/admin/v1/explain?user=alice-in-clear":           `"outcome":"admitted"`,
		"/admin/v1/quota?user=alice-in-clear&tenant=acme": `"seenAs":[{"user":"alice-in-clear","tier":"free"}]`,
	} {
		if code, body := c.ask("GET", target); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", target, code, body, want)
		}
	}
	for _, want := range []string{`msg=QuotaGranted`, `by=local`, "auditID=" + quota.AuditID, `msg=QuotaReset`} {
		if !strings.Contains(p.log.String(), want) {
			t.Errorf("the log does not say %s", want)
		}
	}
	if strings.Contains(p.log.String(), "alice-in-clear") {
		t.Error("the log names the user")
	}
	for _, base := range []string{p.check, p.health, "http://" + p.metrics} {
		if got := status(base + "/admin/v1/quota?user=u"); got != http.StatusNotFound {
			t.Errorf("%s answers the admin API: %d", base, got)
		}
	}
}

// TestAdminIsNotForPages sends what a browser on the same machine would for a page.
func TestAdminIsNotForPages(t *testing.T) {
	p := start(t, nil, "--tiers", "config/samples")
	c := adminOf(t, openapitest.Load(t), p, "", nil)
	c.base = "http://" + p.Admin
	_, port, _ := net.SplitHostPort(p.Admin)
	for name, tc := range map[string]struct {
		reason  string
		headers []string
		want    int
	}{
		"Program":    {"curl sends none of it", nil, 200},
		"Localhost":  {"by another name of this machine", []string{"Host", "localhost:" + port}, 200},
		"IPv6":       {"by another address of it", []string{"Host", "[::1]:" + port}, 200},
		"NoPort":     {"a forwarded port 80", []string{"Host", "127.0.0.1"}, 200},
		"Rebinding":  {"a page whose name leads here", []string{"Host", "evil.example:" + port}, 403},
		"LooksLocal": {"a name that begins like one", []string{"Host", "localhost.evil.example"}, 403},
		"Address":    {"an address of a network", []string{"Host", "192.0.2.1:" + port}, 403},
		"Origin":     {"a page of any origin", []string{"Origin", "https://evil.example"}, 403},
		"NullOrigin": {"a sandboxed one", []string{"Origin", "null"}, 403},
		"CrossSite":  {"an image in a page", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"SameSite":   {"a page of another port of this machine", []string{"Sec-Fetch-Site", "same-site"}, 403},
		"TypedIn":    {"somebody who looks", []string{"Sec-Fetch-Site", "none"}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			if got, body := c.ask("GET", "/admin/v1/quota?user=u", tc.headers...); got != tc.want {
				t.Errorf("%d, want %d: %s: %s", got, tc.want, tc.reason, body)
			}
		})
	}
}

func TestAdminOff(t *testing.T) {
	p := start(t, nil, "--tiers", "config/samples", "--admin-bind-address", "0")
	if got := status("http://" + p.Admin + "/admin/v1/openapi.yaml"); got != 0 {
		t.Errorf("%d from a server that is off", got)
	}
}

// verbs are requests of each verb, and the role that allows each. A grant is made before it is taken back.
var verbs = []struct{ request, role string }{
	{"GET /admin/v1/quota?user=u", "get"},
	{"DELETE /admin/v1/quota?user=u", "reset"},
	{"GET /admin/v1/explain?user=u", "explain"},
	{"PUT /admin/v1/grant?user=u&requests=5&for=1m", "grant"},
	{"DELETE /admin/v1/grant?user=u", "grant"},
	{"GET /admin/v1/top", "top"},
	{"GET /admin/v1/decisions", "watch"},
	{"GET /admin/v1/simulate?tier=free&per-minute=30", "simulate"},
}

// TestClusterAdminRoles gives each role to an account and to a user with a client certificate, and has both try
// everything.
func TestClusterAdminRoles(t *testing.T) {
	server := redistest.Start(t)
	p := start(t, installed(t, server), "--redis-timeout", "20s")
	apply(t, fmt.Sprintf(tierManifest, "free", 5), "apply", "-f", "-")
	eventually(t, "the tier is in force", func() bool { return p.ask("user=probe").status != 503 })
	document := openapitest.Load(t)
	refused := func(c *adminClient, code int, says string) {
		t.Helper()
		for _, verb := range verbs {
			method, target, _ := strings.Cut(verb.request, " ")
			if got, body := c.ask(method, target); got != code || !strings.Contains(body, says) {
				t.Errorf("%s: %d %s, want %d with %q", verb.request, got, body, code, says)
			}
		}
		if got, body := c.ask("GET", adminapi.PathOpenAPI); got != code {
			t.Errorf("the document: %d %s, want %d", got, body, code)
		}
	}
	refused(adminOf(t, document, p, "", nil), 401, "does not know you")
	refused(adminOf(t, document, p, "x", nil), 401, "does not know you")
	refused(adminOf(t, document, p, "", selfSignedCertificate(t)), 401, "does not know you")
	for _, role := range []string{"get", "explain", "reset", "grant", "top", "watch", "simulate"} {
		t.Run(role, func(t *testing.T) {
			kubectl(t, "create", "serviceaccount", "quota-"+role, "-n", "default")
			kubectl(t, "create", "clusterrolebinding", "quota-"+role, "--clusterrole=tierlimit-quota-"+role, "--serviceaccount=default:quota-"+role, "--user=quota-"+role)
			t.Cleanup(func() {
				kubectl(t, "delete", "serviceaccount", "quota-"+role, "-n", "default")
				kubectl(t, "delete", "clusterrolebinding", "quota-"+role)
			})
			token := strings.TrimSpace(kubectl(t, "create", "token", "quota-"+role, "-n", "default"))
			for by, c := range map[string]*adminClient{
				"token":       adminOf(t, document, p, token, nil),
				"certificate": adminOf(t, document, p, "", certificateOf(t, "quota-"+role)),
			} {
				eventually(t, "the cluster's CA is known", func() bool {
					code, _ := c.ask("GET", adminapi.PathOpenAPI)
					return code == http.StatusOK
				})
				for _, verb := range verbs {
					method, target, _ := strings.Cut(verb.request, " ")
					want, says := 403, "tierlimit-quota-"+verb.role
					if role == verb.role {
						want, says = 200, ""
					}
					if got, body := c.ask(method, target); got != want || !strings.Contains(body, says) {
						t.Errorf("%s by %s: %d %s, want %d", verb.request, by, got, body, want)
					}
				}
				for _, detour := range []string{"/admin/v1/../v1/quota?user=u", "/admin/v1/quota/?user=u", "/admin/v1%2Fquota?user=u"} {
					if got, _ := c.ask("GET", detour); got == http.StatusOK {
						t.Errorf("%s by %s is answered", detour, by)
					}
				}
			}
		})
	}
	refused(adminOf(t, document, p, "", certificateOf(t, "somebody")), 403, `somebody\" may not`)
	for _, missing := range document.Missing(200, 400, 409, 503) {
		if !strings.Contains(missing, "?") {
			t.Errorf("the document has, and nothing is answered with: %s", missing)
		}
	}
	eventually(t, "an Event tells of each change", func() bool {
		notes := kubectl(t, "get", "events.events.k8s.io", "-n", "default", "-o", `jsonpath={range .items[*]}{.reason} {.regarding.kind}/{.regarding.name} {.note}{"\n"}{end}`)
		for _, reason := range []string{admin.ReasonReset, admin.ReasonGranted, admin.ReasonRevoked} {
			for _, who := range []string{"system:serviceaccount:default:quota-", "quota-"} {
				if strings.Count(notes, reason+" RateLimitTier/free "+who) == 0 {
					return false
				}
			}
		}
		return true
	})
}

// TestClusterAdminWithoutAuthority takes the right to read the cluster's CA away.
func TestClusterAdminWithoutAuthority(t *testing.T) {
	server := redistest.Start(t)
	env := installed(t, server)
	kubectl(t, "delete", "rolebinding", "tierlimit-authentication-reader", "-n", "kube-system")
	kubectl(t, "create", "serviceaccount", "quota-without", "-n", "default")
	kubectl(t, "create", "clusterrolebinding", "quota-without", "--clusterrole=tierlimit-quota-get", "--serviceaccount=default:quota-without", "--user=quota-without")
	t.Cleanup(func() {
		kubectl(t, "delete", "clusterrolebinding", "quota-without")
		kubectl(t, "delete", "serviceaccount", "quota-without", "-n", "default")
	})
	eventually(t, "the right is gone", func() bool {
		output, _ := cluster.Kubectl(t, adminKubeconfig(t), "", "auth", "can-i", "get", "configmaps/extension-apiserver-authentication", "-n", "kube-system", "--as="+serviceAccount)
		return strings.HasSuffix(strings.TrimSpace(output), "no")
	})
	p := start(t, env)
	const line = "the admin API takes tokens only, no client certificates"
	eventually(t, "the log says so", func() bool { return strings.Contains(p.log.String(), line) })
	document := openapitest.Load(t)
	if code, body := adminOf(t, document, p, "", certificateOf(t, "quota-without")).ask("GET", adminapi.PathOpenAPI); code != 401 {
		t.Errorf("with a certificate: %d %s", code, body)
	}
	token := strings.TrimSpace(kubectl(t, "create", "token", "quota-without", "-n", "default"))
	if code, body := adminOf(t, document, p, token, nil).ask("GET", adminapi.PathOpenAPI); code != 200 {
		t.Errorf("with a token: %d %s", code, body)
	}
	if got := strings.Count(p.log.String(), line); got != 1 || strings.Contains(p.log.String(), `"level":"ERROR"`) {
		t.Errorf("%d lines say so, and one is to; and nothing is an error:\n%s", got, p.log)
	}
}

// TestGuardWithoutAPIServer asks when the API server cannot be.
func TestGuardWithoutAPIServer(t *testing.T) {
	config := &rest.Config{Host: "http://127.0.0.1:1"}
	guard, _, err := newGuard(config, http.DefaultClient, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	guard.next = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was let through") })
	request := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/admin/v1/quota?user=u", nil)
	request.Header.Set("Authorization", "Bearer x")
	recorder := httptest.NewRecorder()
	guard.ServeHTTP(recorder, request)
	openapitest.Load(t).Check(t, request, recorder.Code, recorder.Header(), recorder.Body.Bytes())
	if recorder.Code != http.StatusServiceUnavailable || !strings.Contains(recorder.Body.String(), "cannot be asked who you are") || strings.Contains(recorder.Body.String(), "127.0.0.1") {
		t.Errorf("%d %s", recorder.Code, recorder.Body)
	}
}

// certificateOf returns a client certificate of the cluster's CA.
func certificateOf(t *testing.T, user string) *tls.Certificate {
	t.Helper()
	content, err := os.ReadFile(cluster.Kubeconfig(t, user, "system:authenticated"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(content)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	return &certificate
}

func selfSignedCertificate(t *testing.T) *tls.Certificate {
	t.Helper()
	certificate, err := ownCertificate()
	if err != nil {
		t.Fatal(err)
	}
	return &certificate
}
