// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"net/http"
	"strconv"
	"strings"
)

// The paths of a check.
const (
	// pathCheck answers with the true status.
	pathCheck = "/check"
	// pathNginx answers 200 or 403, because nginx's auth_request turns every other status but 401
	// into a 500. The true status is in X-Tierlimit-Status.
	pathNginx = "/check/nginx"
	// pathExtAuthz begins the path of a check by Envoy's ext_authz over HTTP and by other proxies that
	// append the path of the request: /check/ext-authz;tier=free/v1/chat. A client's path begins with
	// a slash, so that it can add no parameter.
	pathExtAuthz = "/check/ext-authz"
)

// form is how one proxy asks and is answered.
type form int

const (
	plainForm form = iota
	nginxForm
	extAuthzForm
)

// method returns the method of the request that is checked, or "" if the proxy does not say. Each
// form has the header that its proxies overwrite.
func (f form) method(r *http.Request) string {
	name := "X-Forwarded-Method"
	switch f {
	case extAuthzForm:
		return r.Method
	case nginxForm:
		name = "X-Original-Method"
	case plainForm:
	}
	if values := r.Header[name]; len(values) == 1 {
		return values[0]
	}
	return ""
}

// headers returns the headers of the request that is checked, and what the proxy has added. What only
// proxies of another form set is the client's invention, and removed: another auth service might
// take it for a description of the request.
func (f form) headers(r *http.Request) http.Header {
	switch f {
	case extAuthzForm:
		describe(r.Header, r.Method, r.Host, originalURI(r))
	case nginxForm:
		for _, name := range forwarded {
			delete(r.Header, name)
		}
		delete(r.Header, "X-Original-Uri") // nginx sets X-Original-Url
	case plainForm:
		for _, name := range original {
			delete(r.Header, name)
		}
	}
	return r.Header
}

var (
	// forwarded describes the request to services that Traefik, Caddy, HAProxy or Envoy ask.
	forwarded = []string{"X-Forwarded-Method", "X-Forwarded-Host", "X-Forwarded-Uri", "X-Forwarded-Proto", "X-Forwarded-Port"}
	// original does so to those that ingress-nginx asks.
	original = []string{"X-Original-Method", "X-Original-Url", "X-Original-Uri", "X-Auth-Request-Redirect"}
)

// send adds the headers that only this form has and returns the status to send.
func (f form) send(header http.Header, a *answer) int {
	if f != nginxForm {
		return a.status
	}
	switch {
	case a.relay != nil && a.status == http.StatusUnauthorized:
		return http.StatusUnauthorized // nginx passes it on with its challenge, and knows where to sign in
	case a.relay != nil:
		return http.StatusForbidden
	}
	header[headerStatus] = []string{strconv.Itoa(a.status)}
	if a.status == http.StatusOK {
		return http.StatusOK
	}
	header[headerProblem] = []string{strings.TrimSuffix(string(a.body()), "\n")}
	return http.StatusForbidden
}

// describe adds to the headers which request is checked, as proxies do that ask with a request of
// their own. Another auth service may want to know.
func describe(header http.Header, method, host, uri string) {
	for _, name := range original {
		delete(header, name)
	}
	for _, name := range forwarded {
		delete(header, name)
	}
	header["X-Forwarded-Method"] = []string{method}
	header["X-Forwarded-Host"] = []string{host}
	header["X-Forwarded-Uri"] = []string{uri}
}

// originalURI returns the path and query of the request that a check over ext_authz is about.
func originalURI(r *http.Request) string {
	rest := strings.TrimPrefix(r.RequestURI, pathExtAuthz)
	if slash := strings.IndexAny(rest, "/?"); slash >= 0 {
		return rest[slash:]
	}
	return "/"
}

// parametersOf returns the form that a path asks for and the parameters of the check.
func parametersOf(r *http.Request) (f form, params parameters, found bool, err error) {
	path := r.URL.EscapedPath() // "/check%2Fnginx" is not "/check/nginx"
	switch path {
	case pathCheck:
		params, err = inQuery.parse(r.URL.RawQuery)
		return plainForm, params, true, err
	case pathNginx:
		params, err = inQuery.parse(r.URL.RawQuery)
		return nginxForm, params, true, err
	}
	rest, found := strings.CutPrefix(path, pathExtAuthz)
	if !found || rest != "" && rest[0] != ';' && rest[0] != '/' {
		return plainForm, parameters{}, false, nil
	}
	segment, _, _ := strings.Cut(rest, "/")
	params, err = inPath.parse(segment)
	return extAuthzForm, params, true, err
}
