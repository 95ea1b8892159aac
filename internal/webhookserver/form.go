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
type form struct {
	// method returns the method of the request that is checked, or "" if the proxy does not say.
	method func(*http.Request) string
	// headers returns the headers of the request that is checked, and what the proxy has added.
	headers func(*http.Request) http.Header
	// send adds the headers that only this form has and returns the status to send.
	send func(http.Header, answer) int
}

var (
	plainForm    = form{method: methodIn("X-Forwarded-Method"), headers: ownHeaders, send: sendStatus}
	nginxForm    = form{method: methodIn("X-Original-Method"), headers: ownHeaders, send: sendToNginx}
	extAuthzForm = form{method: ownMethod, headers: describedHeaders, send: sendStatus}
)

func ownMethod(r *http.Request) string { return r.Method }

func ownHeaders(r *http.Request) http.Header { return r.Header }

func describedHeaders(r *http.Request) http.Header {
	describe(r.Header, r.Method, r.Host, originalURI(r))
	return r.Header
}

// methodIn reads the method from a header that the proxy overwrites.
func methodIn(header string) func(*http.Request) string {
	return func(r *http.Request) string {
		if values := r.Header[header]; len(values) == 1 {
			return values[0]
		}
		return ""
	}
}

func sendStatus(_ http.Header, a answer) int { return a.status }

func sendToNginx(header http.Header, a answer) int {
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
		return form{}, parameters{}, false, nil
	}
	segment, _, _ := strings.Cut(rest, "/")
	params, err = inPath.parse(segment)
	return extAuthzForm, params, true, err
}
