// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/docs"
	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/openapitest"
)

// TestOpenAPIDescribesEverything makes a request for each operation, parameter and status of the document. 401
// is answered before a request gets here, and 403: cmd/tierlimit holds those against the document.
func TestOpenAPIDescribesEverything(t *testing.T) {
	document := openapitest.Load(t)
	d := newDesk(t, document, nil, budget("free", 5, 100), budget("zero", 0, 5))
	d.usage.seen = []adminapi.Seen{{Subject: adminapi.Subject{User: "u", Kind: "ip"}, Tier: "free"}}
	all := "user=746b4ad1ca9129e1caf080bf9406d435&kind=key&tenant=t&route=r&tier=free"
	ok := []string{
		"GET /admin/v1/quota?" + all + "&last=3", "DELETE /admin/v1/quota?" + all + "&window=day", "PUT /admin/v1/grant?" + all + "&requests=5&for=1h",
		"GET /admin/v1/quota?" + all, "DELETE /admin/v1/grant?" + all,
		"GET /admin/v1/explain?" + all + "&upstream=free&upstream-per=tenant&methods=POST&exempt=GET&auth=none&peer=203.0.113.7&header=X-Forwarded-Method:%20POST&header=A:%20b",
		"GET /admin/v1/top?by=rejected&tier=free&limit=3", "GET /admin/v1/decisions", "GET /admin/v1/simulate?tier=free&per-minute=3&per-day=4", "GET /admin/v1/openapi.yaml",
	}
	wrong := []string{
		"GET /admin/v1/quota?user=", "DELETE /admin/v1/quota?user=u&user=v", "GET /admin/v1/explain?user=u&x=y", "PUT /admin/v1/grant?user=u&requests=0&for=1h",
		"DELETE /admin/v1/grant", "GET /admin/v1/top?by=name", "GET /admin/v1/decisions?x=y", "GET /admin/v1/simulate", "GET /admin/v1/openapi.yaml?x=y",
	}
	expect := func(status int, d *desk, requests []string) {
		t.Helper()
		for _, request := range requests {
			method, target, _ := strings.Cut(request, " ")
			if r := d.ask(method, target); r.Code != status {
				t.Errorf("%s: %d, want %d: %s", request, r.Code, status, r.Body)
			}
		}
	}
	expect(http.StatusOK, d, ok)
	expect(http.StatusBadRequest, d, wrong)
	expect(http.StatusConflict, d, []string{"PUT /admin/v1/grant?user=u&tier=zero&requests=5&for=1h"})
	empty := newDesk(t, document, nil)
	expect(http.StatusServiceUnavailable, empty, []string{"GET /admin/v1/quota?user=u", "DELETE /admin/v1/quota?user=u", "PUT /admin/v1/grant?user=u&requests=1&for=1s",
		"DELETE /admin/v1/grant?user=u", "GET /admin/v1/top?tier=free", "GET /admin/v1/simulate?per-minute=1"})
	d.spend(5, "user=v")
	answered[adminapi.GrantResult](d, http.MethodPut, "/admin/v1/grant?user=v&requests=5&for=1h")
	if e := answered[adminapi.Explanation](d, http.MethodGet, "/admin/v1/explain?user=v"); e.Grant == nil {
		t.Errorf("explain does not show the grant: %+v", e)
	}
	d.Limiter = broken{errAway}
	expect(http.StatusServiceUnavailable, d, []string{"GET /admin/v1/explain?user=v"})
	if missing := document.Missing(http.StatusUnauthorized, http.StatusForbidden); len(missing) > 0 {
		t.Errorf("the document has, and no request does:\n%s", strings.Join(missing, "\n"))
	}
	if r := d.ask(http.MethodGet, adminapi.PathOpenAPI); r.Body.String() != string(docs.OpenAPI) {
		t.Error("the document that is served is another")
	}
}

// TestOpenAPISchemas compares the schemas with the types, field by field.
func TestOpenAPISchemas(t *testing.T) {
	document := openapitest.Load(t)
	described := map[string]bool{}
	for name, value := range map[string]any{
		"Tier": adminapi.Tier{}, "Limit": adminapi.Limit{}, "KillSwitch": adminapi.KillSwitch{}, "Grant": adminapi.Grant{}, "Window": adminapi.Window{},
		"Quota": adminapi.Quota{}, "Seen": adminapi.Seen{}, "Explanation": adminapi.Explanation{}, "Identity": adminapi.Identity{}, "ResetResult": adminapi.ResetResult{},
		"Cleared": adminapi.Cleared{}, "GrantResult": adminapi.GrantResult{}, "Top": adminapi.Top{}, "TopUser": adminapi.TopUser{}, "Decisions": adminapi.Decisions{},
		"TierDecisions": adminapi.TierDecisions{}, "Simulation": adminapi.Simulation{}, "SimulatedUser": adminapi.SimulatedUser{}, "Problem": adminapi.Problem{},
	} {
		described[name] = true
		schema := document.Components.Schemas[name]
		if schema == nil {
			t.Errorf("%s is not in the document", name)
			continue
		}
		want, required := map[string]string{}, []string(nil)
		fields(reflect.TypeOf(value), func(json, kind string, optional bool) {
			want[json] = kind
			if !optional {
				required = append(required, json)
			}
		})
		got := map[string]string{}
		for json, property := range schema.Value.Properties {
			got[json] = kindOf(property)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -type +document:\n%s", name, diff)
		}
		slices.Sort(required)
		inDocument := slices.Sorted(slices.Values(schema.Value.Required))
		if diff := cmp.Diff(required, inDocument); diff != "" {
			t.Errorf("%s, always there: -type +document:\n%s", name, diff)
		}
		if schema.Value.AdditionalProperties.Has == nil || *schema.Value.AdditionalProperties.Has {
			t.Errorf("%s takes fields that the document does not name", name)
		}
	}
	for name := range document.Components.Schemas {
		if !described[name] {
			t.Errorf("the document has %s, which no type is compared with", name)
		}
	}
}

// fields calls f for each field of a struct as encoding/json writes it.
func fields(of reflect.Type, f func(json, kind string, optional bool)) {
	for i := range of.NumField() {
		field := of.Field(i)
		if field.Anonymous {
			fields(field.Type, f)
			continue
		}
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		f(name, kindOfType(field.Type), strings.Contains(options, "omitempty"))
	}
}

func kindOfType(of reflect.Type) string {
	switch {
	case of == reflect.TypeFor[time.Time]():
		return "string date-time"
	case of.Kind() == reflect.Pointer:
		return kindOfType(of.Elem())
	case of.Kind() == reflect.Slice:
		return "array of " + kindOfType(of.Elem())
	case of.Kind() == reflect.Map:
		return "map of " + kindOfType(of.Elem())
	case of.Kind() == reflect.Struct:
		return of.Name()
	case of.Kind() == reflect.Int64:
		return "integer int64"
	case of.Kind() == reflect.Int:
		return "integer"
	case of.Kind() == reflect.Bool:
		return "boolean"
	}
	return of.Kind().String()
}

func kindOf(schema *openapi3.SchemaRef) string {
	switch {
	case schema.Ref != "":
		return schema.Ref[strings.LastIndexByte(schema.Ref, '/')+1:]
	case schema.Value.Type.Is("array"):
		return "array of " + kindOf(schema.Value.Items)
	case schema.Value.AdditionalProperties.Schema != nil:
		return "map of " + kindOf(schema.Value.AdditionalProperties.Schema)
	}
	return strings.TrimSpace(strings.Join(schema.Value.Type.Slice(), " ") + " " + schema.Value.Format)
}
