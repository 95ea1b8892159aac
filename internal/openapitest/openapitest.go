// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package openapitest holds requests and answers of the admin API against docs/openapi.yaml. Nothing in it is
// compiled into Tierlimit.
package openapitest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/tierlimit/tierlimit/docs"
)

func init() {
	openapi3filter.RegisterBodyDecoder("application/problem+json", openapi3filter.JSONBodyDecoder)
}

// Document is the OpenAPI document, and what of it has been exercised.
type Document struct {
	*openapi3.T
	router routers.Router

	mu   sync.Mutex
	seen map[string]bool
}

// Load reads the document that the program serves.
func Load(t testing.TB) *Document {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData(docs.OpenAPI)
	if err != nil {
		t.Fatalf("docs/openapi.yaml: %v", err)
	}
	if err := document.Validate(context.Background()); err != nil {
		t.Fatalf("docs/openapi.yaml: %v", err)
	}
	router, err := legacy.NewRouter(document)
	if err != nil {
		t.Fatalf("docs/openapi.yaml: %v", err)
	}
	return &Document{T: document, router: router, seen: map[string]bool{}}
}

// Check fails the test unless the document describes an answer, and the request too if that was not refused
// with 400; and, the other way round, if it calls a request wrong that was taken.
func (d *Document) Check(t testing.TB, request *http.Request, status int, header http.Header, body []byte) {
	t.Helper()
	route, path, err := d.router.FindRoute(request)
	switch {
	case err != nil && status < http.StatusBadRequest:
		t.Errorf("%s %s got %d, and is not in the document: %v", request.Method, request.URL, status, err)
		return
	case err != nil, status == http.StatusNotFound, status == http.StatusMethodNotAllowed: // of no operation
		return
	}
	options := &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true, SkipSettingDefaults: true, RejectWhenRequestBodyNotSpecified: true}
	input := &openapi3filter.RequestValidationInput{Request: request, PathParams: path, Route: route, Options: options}
	if err := openapi3filter.ValidateRequest(request.Context(), input); err != nil && status < http.StatusBadRequest {
		t.Errorf("%s %s got %d, and the document calls it wrong: %v", request.Method, request.URL, status, err)
	}
	output := &openapi3filter.ResponseValidationInput{RequestValidationInput: input, Status: status, Header: header, Body: io.NopCloser(bytes.NewReader(body)), Options: options}
	if err := openapi3filter.ValidateResponse(request.Context(), output); err != nil {
		t.Errorf("%s %s: the document does not describe the answer %d %s: %v", request.Method, request.URL, status, body, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	operation := request.Method + " " + route.Path
	d.seen[operation+" "+strconv.Itoa(status)] = true
	if status >= http.StatusBadRequest {
		return // a parameter counts where it was taken
	}
	for name := range request.URL.Query() {
		d.seen[operation+" ?"+name] = true
	}
}

// Missing returns what of the document no request has exercised: "GET /path 503", "GET /path ?name". Statuses
// that are answered elsewhere are left out.
func (d *Document) Missing(elsewhere ...int) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var missing []string
	for path, item := range d.Paths.Map() {
		for method, operation := range item.Operations() {
			var all []string
			for status := range operation.Responses.Map() {
				if code, _ := strconv.Atoi(status); !slices.Contains(elsewhere, code) {
					all = append(all, status)
				}
			}
			for _, parameter := range operation.Parameters {
				all = append(all, "?"+parameter.Value.Name)
			}
			for _, what := range all {
				if key := fmt.Sprint(method, " ", path, " ", what); !d.seen[key] {
					missing = append(missing, key)
				}
			}
		}
	}
	slices.Sort(missing)
	return missing
}
