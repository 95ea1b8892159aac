// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package tierfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
	"github.com/tierlimit/tierlimit/internal/controller"
	"github.com/tierlimit/tierlimit/internal/tier"
)

// declared is a tier and the line of the file where it is declared.
type declared struct {
	tier *tier.Tier
	line int
}

// parse reads every RateLimitTier of a YAML file, or returns all that is wrong with it, one error
// a fault, each with file and line.
func (v *validator) parse(file string, content []byte) ([]declared, error) {
	var (
		tiers []declared
		errs  []error
	)
	at := func(line int, message string) { errs = append(errs, fmt.Errorf("%s:%d: %s", file, line, message)) }
	if line := lineNotUTF8(content); line > 0 {
		at(line, "not UTF-8: save the file in that encoding")
		return nil, errors.Join(errs...)
	}
	for decoder := yaml.NewDecoder(bytes.NewReader(content)); ; {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			errs = append(errs, syntaxError(file, err))
			break
		}
		root := document.Content[0]
		if root.Tag == "!!null" { // nothing between two separators
			continue
		}
		compiled, problems := v.document(root)
		for _, p := range firstOf(problems, root) {
			at(p.line, p.message)
		}
		if len(problems) == 0 {
			tiers = append(tiers, declared{tier: compiled, line: lineOf(root, "metadata.name")})
		}
	}
	if len(tiers) == 0 && len(errs) == 0 {
		// Most likely a file that an editor has emptied and not yet written.
		at(1, "no "+v1alpha1.KindRateLimitTier+" in this file: declare one or delete the file")
	}
	return tiers, errors.Join(errs...)
}

// maxProblems is how many faults of one document are told at once.
const maxProblems = 20

// firstOf gives problems their lines and returns the first of them, by line.
func firstOf(problems []problem, root *yaml.Node) []problem {
	more := len(problems) - maxProblems
	if more > 0 { // an absurd file must not take absurdly long
		problems = problems[:maxProblems]
	}
	for i, p := range problems {
		problems[i].line = cmp.Or(p.line, lineOf(root, p.path))
	}
	slices.SortStableFunc(problems, func(a, b problem) int { return cmp.Compare(a.line, b.line) })
	if more > 0 {
		last := &problems[maxProblems-1]
		last.message = fmt.Sprintf("%s (and %d more problems)", last.message, more)
	}
	return problems
}

// lineNotUTF8 returns the first line that is not UTF-8, or 0.
func lineNotUTF8(content []byte) int {
	for i, line := range bytes.Split(content, []byte("\n")) {
		if !utf8.Valid(line) {
			return i + 1
		}
	}
	return 0
}

// document validates and compiles one YAML document.
func (v *validator) document(root *yaml.Node) (*tier.Tier, []problem) {
	object, problems := toObject(root)
	if len(problems) > 0 {
		return nil, problems
	}
	apiVersion, kind := object["apiVersion"], object["kind"]
	if want := v1alpha1.GroupVersion.String(); apiVersion != want || kind != v1alpha1.KindRateLimitTier {
		return nil, []problem{{path: "kind", message: fmt.Sprintf("apiVersion %v, kind %v: only apiVersion %s, kind %s can be read",
			orNone(apiVersion), orNone(kind), want, v1alpha1.KindRateLimitTier)}}
	}
	typed, problems := v.tier(object)
	if len(problems) > 0 {
		return nil, problems
	}
	compiled, err := controller.Compile(typed)
	if err != nil {
		return nil, []problem{{path: "spec", message: err.Error()}}
	}
	return compiled, nil
}

// toObject gives a YAML mapping the types that JSON has, as the API server sees it.
func toObject(root *yaml.Node) (map[string]any, []problem) {
	if root.Kind != yaml.MappingNode {
		return nil, []problem{{message: "expected a RateLimitTier object with apiVersion, kind, metadata and spec"}}
	}
	if size := maxExpanded; !fits(root, &size) {
		return nil, []problem{{message: fmt.Sprintf("its aliases expand it to more than %d bytes", maxExpanded)}}
	}
	asKubectlReads(root)
	var value any
	if err := root.Decode(&value); err != nil {
		return nil, decodeProblems(err)
	}
	encoded, err := json.Marshal(value)
	if err != nil { // a number that JSON has not, or a key that is not a string
		return nil, []problem{{message: "cannot be written as JSON: " + strings.TrimPrefix(err.Error(), "json: ")}}
	}
	var object map[string]any
	if err := utiljson.Unmarshal(encoded, &object); err != nil {
		return nil, []problem{{message: err.Error()}}
	}
	return object, nil
}

// maxExpanded bounds a document after its aliases have been replaced by what they refer to, in bytes.
const maxExpanded = 4 * maxFileSize

// fits returns whether a node takes less than size, and takes it from that.
func fits(node *yaml.Node, size *int) bool {
	*size -= 1 + len(node.Value)
	if *size < 0 {
		return false
	}
	if node.Alias != nil {
		return fits(node.Alias, size)
	}
	for _, child := range node.Content {
		if !fits(child, size) {
			return false
		}
	}
	return true
}

// asKubectlReads gives values the types that kubectl gives them, which reads YAML 1.1: yes and no
// are booleans, and a date is a string; whether it is a good one is for the schema to say.
func asKubectlReads(node *yaml.Node) {
	switch {
	case node.Tag == "!!timestamp":
		node.Tag = "!!str"
	case node.Kind == yaml.ScalarNode && node.Style == 0 && node.Tag == "!!str":
		switch node.Value {
		case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON":
			node.Tag, node.Value = "!!bool", "true"
		case "n", "N", "no", "No", "NO", "off", "Off", "OFF":
			node.Tag, node.Value = "!!bool", "false"
		}
	}
	for i, child := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 0 {
			if child.Kind == yaml.ScalarNode && child.Tag != "!!merge" {
				child.Tag = "!!str" // JSON has no other keys
			}
			continue
		}
		asKubectlReads(child)
	}
}

// decodeProblems returns what the YAML library says in lines like "line 3: mapping key ...".
func decodeProblems(err error) []problem {
	var typeErr *yaml.TypeError
	if !errors.As(err, &typeErr) {
		return []problem{{message: strings.TrimPrefix(err.Error(), "yaml: ")}}
	}
	problems := make([]problem, 0, len(typeErr.Errors))
	for _, message := range typeErr.Errors {
		line, message := cutLine(message)
		problems = append(problems, problem{line: line, message: message})
	}
	return problems
}

// lineOf returns the line of a field such as "spec.requests.perDay" or, if it is absent, of the
// field that should contain it.
func lineOf(root *yaml.Node, path string) int {
	line, node := root.Line, root
	for name := range strings.SplitSeq(path, ".") {
		if node.Kind != yaml.MappingNode {
			break
		}
		i := 0
		for i < len(node.Content) && node.Content[i].Value != name {
			i += 2
		}
		if i >= len(node.Content) {
			break
		}
		line, node = node.Content[i].Line, node.Content[i+1]
	}
	return line
}

// syntaxError puts the position that the YAML library gives ("yaml: line 3: ...") in front.
func syntaxError(file string, err error) error {
	line, message := cutLine(strings.TrimPrefix(err.Error(), "yaml: "))
	return fmt.Errorf("%s:%d: %s", file, max(line, 1), message)
}

// cutLine cuts a message "line 3: ..." in two. The line is 0 if there is none.
func cutLine(message string) (int, string) {
	var line int
	if _, err := fmt.Sscanf(message, "line %d:", &line); err != nil {
		return 0, message
	}
	_, message, _ = strings.Cut(message, ": ")
	return line, message
}

func orNone(value any) any {
	if value == nil || value == "" {
		return "(none)"
	}
	return value
}
