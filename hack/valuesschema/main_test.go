// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValuesSchema(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, values, want string
	}{
		"Types": {
			reason: "the type is that of the default, and an object has no other keys",
			values: "a: x\nb: 1\nc: 1.5\nd: true\ne: {f: ''}\n",
			want: `{"type":"object","additionalProperties":false,"required":["a","b","c","d","e"],"properties":{
				"a":{"type":"string"},"b":{"type":"integer"},"c":{"type":"number"},"d":{"type":"boolean"},
				"e":{"type":"object","additionalProperties":false,"required":["f"],"properties":{"f":{"type":"string"}}}}}`,
		},
		"Description": {
			reason: "it may have several lines; what stands before it is for others, and a hint for helm-docs is no text",
			values: "# Not this.\n# -- (int) How\n# many.\na: 1\n",
			want:   `{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":{"type":"integer","description":"How many."}}}`,
		},
		"Block": {
			reason: "it goes before what the default says",
			values: "# @schema\n# type: [integer, \"null\"]\n# minimum: 1\n# @schema\n# -- How many.\na:\n",
			want:   `{"type":"object","additionalProperties":false,"properties":{"a":{"type":["integer","null"],"minimum":1,"description":"How many."}}}`,
		},
		"Required": {
			reason: "what is set to null is taken out by Helm; it is missed unless null is a type of it",
			values: "# @schema\n# type: [integer, \"null\"]\n# @schema\na: 1\nb: 1\nc:\n  # @schema\n  # type: [string, \"null\"]\n  # @schema\n  d: x\n",
			want: `{"type":"object","additionalProperties":false,"required":["b","c"],"properties":{
				"a":{"type":["integer","null"]},"b":{"type":"integer"},
				"c":{"type":"object","additionalProperties":false,"properties":{"d":{"type":["string","null"]}}}}}`,
		},
		"OwnKeys": {
			reason: "an object whose block says which keys it has is not looked into",
			values: "# @schema\n# additionalProperties: {type: string}\n# @schema\na: {b: 1}\n",
			want:   `{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":{"type":"object","additionalProperties":{"type":"string"}}}}`,
		},
		"List": {
			reason: "of what the block says",
			values: "# @schema\n# items: {enum: [a, b]}\n# @schema\na: [a]\n",
			want:   `{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":{"type":"array","items":{"enum":["a","b"]}}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := valuesSchema([]byte(tc.values))
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(normal(t, []byte(tc.want)), normal(t, marshal(t, got))); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestValuesSchemaRefuses looks at values that nobody has described: they would be refused or let pass unseen.
func TestValuesSchemaRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, values, says string
	}{
		"Null":        {"it has no type", "a: 1\nb:\n", "line 2: the default has no type"},
		"List":        {"of what", "a: []\n", "line 1: a list whose items nobody describes"},
		"EmptyObject": {"with which keys", "a: {}\n", "line 1: an object without keys"},
		"OpenBlock":   {"the rest of the comment would be lost", "# @schema\n# minimum: 1\na: 1\n", "does not end with it"},
		"WrongBlock":  {"not YAML", "# @schema\n# {\n# @schema\na: 1\n", "the block between two lines"},
		"NoMapping":   {"not values", "[1]\n", "not a mapping"},
		"NoYAML":      {"nor YAML", "a: [\n", "line 1"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := valuesSchema([]byte(tc.values)); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.says)
			}
		})
	}
}

func TestSpecSchema(t *testing.T) {
	const crd = `
spec:
  versions:
  - schema: {openAPIV3Schema: {properties: {spec: {type: object}}}}
  - schema:
      openAPIV3Schema:
        properties:
          spec:
            type: object
            required: [mode]
            description: |-
              two
              lines
            x-kubernetes-validations: [{rule: "true"}]
            properties:
              mode: {type: string, enum: [Enforce], default: Enforce}
              limits: {type: array, items: {type: object, minProperties: 1, properties: {n: {type: integer, format: int32, maximum: 5}}}}
`
	const want = `{"type":"object","required":["mode"],"description":"two lines","additionalProperties":false,"properties":{
		"mode":{"type":"string","enum":["Enforce"]},
		"limits":{"type":"array","items":{"type":"object","additionalProperties":false,"properties":{"n":{"type":"integer","maximum":5}}}}}}`
	got, err := specSchema([]byte(crd))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(normal(t, []byte(want)), normal(t, marshal(t, got))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, wrong := range []string{"kind: Other", "spec: {versions: [{name: v1}]}", "["} {
		if _, err := specSchema([]byte(wrong)); err == nil {
			t.Errorf("%q is not refused", wrong)
		}
	}
}

func marshal(t *testing.T, value any) []byte {
	t.Helper()
	content, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func normal(t *testing.T, content []byte) (value any) {
	t.Helper()
	if err := json.Unmarshal(content, &value); err != nil {
		t.Fatalf("%v in %s", err, content)
	}
	return value
}
