// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Valuesschema prints the JSON Schema of a chart's values, by which Helm refuses wrong ones:
//
//	valuesschema VALUES.YAML CRD.YAML >values.schema.json
//
// The type of a value is that of its default. YAML between two lines `# @schema` above a value is
// merged into its schema, in the notation of the usual generators of such schemas. A text that begins
// with `# --` is the description, as it is for helm-docs. No object has other keys than those in
// the file unless its block says so, and all that have no type "null" are required. The spec of the
// CustomResourceDefinition is `#/$defs/tier`.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: valuesschema VALUES.YAML CRD.YAML")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "valuesschema:", err)
		os.Exit(1)
	}
}

func run(valuesFile, crdFile string, out io.Writer) error {
	values, err := os.ReadFile(valuesFile) //nolint:gosec // whoever runs it names the files
	if err != nil {
		return err
	}
	crd, err := os.ReadFile(crdFile) //nolint:gosec // the same
	if err != nil {
		return err
	}
	root, err := valuesSchema(values)
	if err != nil {
		return fmt.Errorf("%s: %w", valuesFile, err)
	}
	spec, err := specSchema(crd)
	if err != nil {
		return fmt.Errorf("%s: %w", crdFile, err)
	}
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["$defs"] = schema{"tier": spec}
	// Helm gives it to every chart that is a part of another one.
	root["properties"].(schema)["global"] = schema{"type": "object"}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(root)
}

type schema = map[string]any

// valuesSchema returns the schema of a whole values.yaml.
func valuesSchema(values []byte) (schema, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(values, &document); err != nil {
		return nil, err
	}
	if document.Kind != yaml.DocumentNode || document.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("not a mapping of values")
	}
	return nodeSchema(document.Content[0], "")
}

// nodeSchema returns the schema of a default and the comment above it.
func nodeSchema(node *yaml.Node, comment string) (schema, error) {
	block, description, err := parseComment(comment)
	if err != nil {
		return nil, fmt.Errorf("line %d: %w", node.Line, err)
	}
	result := schema{}
	if description != "" {
		result["description"] = description
	}
	switch kind := typeOf(node); {
	case kind == "null" && block["type"] == nil:
		return nil, fmt.Errorf("line %d: the default has no type: name one between two lines '# @schema'", node.Line)
	case kind == "array" && block["items"] == nil && block["const"] == nil && block["type"] == nil:
		return nil, fmt.Errorf("line %d: a list whose items nobody describes: say what they are between two lines '# @schema'", node.Line)
	case kind == "object":
		result["type"] = kind
		if block["properties"] == nil && block["additionalProperties"] == nil {
			fields, err := properties(node)
			if err != nil {
				return nil, err
			}
			result["properties"] = fields
			if names := required(fields); len(names) > 0 {
				result["required"] = names
			}
		}
		result["additionalProperties"] = false
	case kind != "null":
		result["type"] = kind
	}
	for key, value := range block {
		result[key] = value
	}
	return result, nil
}

// properties returns the schemas of the values of an object.
func properties(node *yaml.Node) (schema, error) {
	if len(node.Content) == 0 {
		return nil, fmt.Errorf("line %d: an object without keys: say which it may have between two lines '# @schema'", node.Line)
	}
	result := schema{}
	for i := 0; i < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		var err error
		if result[name.Value], err = nodeSchema(value, name.HeadComment); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// required returns the names of the values that cannot be null, in order. Helm takes a value out that somebody sets to
// null, and what is not there would not be looked at.
func required(fields schema) []string {
	var names []string
	for name, field := range fields {
		types, _ := field.(schema)["type"].([]any)
		if !slices.Contains(types, any("null")) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// typeHint is what helm-docs is told of a default without a type, as in `# -- (int) Number of replicas`.
var typeHint = regexp.MustCompile(`^\([a-z]+\) `)

// parseComment returns what the blocks of a comment say, and its description.
func parseComment(comment string) (block schema, description string, err error) {
	var source, words []string
	inBlock := false
	for line := range strings.Lines(comment) {
		text := strings.TrimPrefix(strings.TrimPrefix(strings.TrimRight(line, "\r\n"), "#"), " ")
		switch first, rest, _ := strings.Cut(text, " "); {
		case text == "@schema":
			inBlock = !inBlock
		case inBlock:
			source = append(source, text)
		case first == "--":
			words = []string{typeHint.ReplaceAllString(rest, "")}
		case len(words) > 0 && text != "":
			words = append(words, text)
		}
	}
	if inBlock {
		return nil, "", errors.New("a block that begins with '# @schema' does not end with it")
	}
	if err := yaml.Unmarshal([]byte(strings.Join(source, "\n")), &block); err != nil {
		return nil, "", fmt.Errorf("the block between two lines '# @schema': %w", err)
	}
	return block, strings.Join(words, " "), nil
}

// typeOf returns the JSON type of a default.
func typeOf(node *yaml.Node) string {
	switch node.ShortTag() {
	case "!!map":
		return "object"
	case "!!seq":
		return "array"
	case "!!bool":
		return "boolean"
	case "!!int":
		return "integer"
	case "!!float":
		return "number"
	case "!!null":
		return "null"
	}
	return "string"
}

// specSchema returns the schema of the spec in a CustomResourceDefinition's newest version.
func specSchema(crd []byte) (schema, error) {
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema struct {
						Properties map[string]schema `yaml:"properties"`
					} `yaml:"openAPIV3Schema"`
				} `yaml:"schema"`
			} `yaml:"versions"`
		} `yaml:"spec"`
	}
	if err := yaml.Unmarshal(crd, &definition); err != nil {
		return nil, err
	}
	if len(definition.Spec.Versions) == 0 {
		return nil, errors.New("not a CustomResourceDefinition with a version")
	}
	versions := definition.Spec.Versions
	spec := versions[len(versions)-1].Schema.OpenAPIV3Schema.Properties["spec"]
	if spec == nil {
		return nil, errors.New("its newest version has no spec")
	}
	return plain(spec), nil
}

// plain leaves out of an OpenAPI schema what JSON Schema does not know, and forbids other keys.
func plain(openAPI schema) schema {
	result := schema{}
	for key, value := range openAPI {
		switch {
		case key == "properties":
			fields := schema{}
			for name, field := range value.(schema) {
				fields[name] = plain(field.(schema))
			}
			result[key] = fields
			result["additionalProperties"] = false
		case key == "items":
			result[key] = plain(value.(schema))
		case key == "description":
			result[key] = strings.Join(strings.Fields(value.(string)), " ")
		case key == "minProperties": // templates/_validate.tpl says what is missing
		case key != "default" && key != "format" && !strings.HasPrefix(key, "x-kubernetes-"):
			result[key] = value
		}
	}
	return result
}
