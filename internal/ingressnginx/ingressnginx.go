// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ingressnginx writes what ingress-nginx needs to pass the answers of /check/nginx on to
// clients: nginx's auth_request, with which ingress-nginx asks, passes on nothing but 401 and 403.
package ingressnginx

import (
	"bytes"
	"embed"
	"fmt"
	"strings"
	"text/template"
	"time"
)

// checkTimeout is how long nginx waits for an answer of the check: longer than the check waits for
// another auth service and for Redis (1 s each by default), or the 503 of what fails would reach the
// client as a 500.
const checkTimeout = 3 * time.Second

// statuses are the true statuses that /check/nginx answers with 403.
var statuses = []int{400, 401, 403, 429, 503}

// challenge says who may ask. It belongs to each 401 (RFC 9110, section 11.6.1).
const challenge = "WWW-Authenticate"

//go:embed *.tmpl
var files embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{"variable": variable, "own": own}).ParseFS(files, "*.tmpl"))

// recipe is what the templates are filled in with.
type recipe struct {
	Timeout  string   // of a call of the check: "3s"
	Statuses []int    // the true statuses of what is not admitted
	Admitted []string // the headers of an admission, with the case in which clients see them
	Rejected []string // those that only other answers have
	Location string   // the named location that answers in place of a 403: "@tierlimit"
	Prefix   string   // a header's value for the client is in the variable of this name and the header's

	AllIngresses bool // not only the one that is annotated
}

func newRecipe(headers []string) recipe {
	r := recipe{Timeout: fmt.Sprintf("%ds", int(checkTimeout.Seconds())), Statuses: statuses}
	for _, header := range headers {
		// An admission says nothing about when to retry. What the application says of it stays.
		if strings.HasPrefix(strings.ToLower(header), "retry-after") {
			r.Rejected = append(r.Rejected, header)
		} else {
			r.Admitted = append(r.Admitted, header)
		}
	}
	r.Rejected = append(r.Rejected, challenge)
	return r
}

// ConfigMap returns the ConfigMap of ingress-nginx by which every Ingress with an auth-url of
// Tierlimit's tells its clients what the check has decided (recipe A). The headers are those of the
// check's answers that are meant for clients.
func ConfigMap(headers []string) []byte {
	r := newRecipe(headers)
	r.Location, r.Prefix = "@tierlimit", "tierlimit_"
	r.AllIngresses = true
	return execute("configmap.yaml.tmpl", r)
}

// Annotations returns the annotations by which one Ingress does the same, where the ConfigMap
// cannot be changed (recipe C). The named location is not the ConfigMap's, so that both may be there.
func Annotations(headers []string) []byte {
	r := newRecipe(headers)
	r.Location, r.Prefix = "@tierlimit_ingress", "tierlimit_check_"
	return execute("annotations.yaml.tmpl", r)
}

// Snippet returns a part of nginx's configuration, every line that is not empty moved to the right.
func (r recipe) Snippet(name string, indent int) string {
	var b strings.Builder
	for line := range bytes.Lines(execute(name, r)) {
		if len(line) > 1 {
			b.WriteString(strings.Repeat(" ", indent))
		}
		b.Write(line)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func execute(name string, r recipe) []byte {
	var output bytes.Buffer
	if err := templates.ExecuteTemplate(&output, name, r); err != nil {
		panic(err) // the templates and what they are filled in with are part of the program
	}
	return output.Bytes()
}

// variable returns how a header is called in the names of variables: "x_ratelimit_limit".
func variable(header string) string {
	return strings.ReplaceAll(strings.ToLower(header), "-", "_")
}

// own returns whether no application has a header of this name.
func own(header string) bool { return strings.HasPrefix(header, "X-Tierlimit-") }
