// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/tierlimit/tierlimit/internal/ingressnginx"
	"github.com/tierlimit/tierlimit/internal/proxytest"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
)

// recipes are the ways in which ingress-nginx learns to pass the check's answers on. Each adds to a
// configuration what Tierlimit ships.
var recipes = map[string]func(*testing.T, proxytest.Nginx) proxytest.Nginx{
	"ConfigMap": func(t *testing.T, n proxytest.Nginx) proxytest.Nginx {
		var configMap struct{ Data map[string]string }
		unmarshal(t, ingressnginx.ConfigMap(webhookserver.ClientHeaders), &configMap)
		n.HTTPSnippet = configMap.Data["http-snippet"]
		n.LocationSnippet = configMap.Data["location-snippet"]
		n.ServerSnippet = configMap.Data["server-snippet"]
		return n
	},
	"annotations": func(t *testing.T, n proxytest.Nginx) proxytest.Nginx {
		var ingress struct {
			Metadata struct{ Annotations map[string]string }
		}
		unmarshal(t, ingressnginx.Annotations(webhookserver.ClientHeaders), &ingress)
		annotation := func(name string) string { return ingress.Metadata.Annotations["nginx.ingress.kubernetes.io/"+name] }
		routes := n.Routes
		n.Routes = nil
		for _, route := range routes {
			if route.AuthURL != "" {
				n.HostSnippet = annotation("server-snippet")
				route.AuthSnippet, route.Snippet = annotation("auth-snippet"), annotation("configuration-snippet")
			}
			n.Routes = append(n.Routes, route)
		}
		return n
	},
}

// both has the ConfigMap come to a cluster with annotations.
func both(t *testing.T, n proxytest.Nginx) proxytest.Nginx {
	return recipes["annotations"](t, recipes["ConfigMap"](t, n))
}

func unmarshal(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// authURL is the annotation of a route that asks this check.
func authURL(address, parameters string) string {
	return "http://" + address + "/check/nginx?" + parameters
}

// answer is what a client has got.
type answer struct {
	status int
	header http.Header
	body   string
	took   time.Duration
}

// client has an address of its own, and so a budget of its own.
type client struct {
	http.Client
	address string
}

var clients atomic.Int64

// newClient returns a client with an address that no other has.
func newClient(t *testing.T) *client {
	n := clients.Add(1)
	ip := net.IPv4(127, 1, byte(n/250), byte(1+n%250))
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}, Timeout: 10 * time.Second}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableCompression: true, ExpectContinueTimeout: 5 * time.Second}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{address: ip.String(), Client: http.Client{
		Transport: transport, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// do sends one request.
func (c *client) do(t *testing.T, r *http.Request) answer {
	t.Helper()
	start := time.Now()
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{status: response.StatusCode, header: response.Header, body: string(body), took: time.Since(start)}
}

// get sends a GET with these headers.
func (c *client) get(t *testing.T, url string, headers ...string) answer {
	t.Helper()
	return c.do(t, request(t, http.MethodGet, url, nil, headers...))
}

// request returns a request with these headers, each "Name: value".
func request(t *testing.T, method, url string, body io.Reader, headers ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// noTrace reports headers that must not reach clients, and headers without a value.
func (a answer) noTrace(t *testing.T) {
	t.Helper()
	for name, values := range a.header {
		switch {
		case name == "X-Tierlimit-Status" || name == "X-Tierlimit-Problem":
			t.Errorf("the client sees %s: %q", name, values)
		case len(values) != 1 || values[0] == "":
			t.Errorf("the client sees %s: %q, want one value", name, values)
		}
	}
}
