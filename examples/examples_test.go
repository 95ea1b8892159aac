// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package examples_test gives the examples to a real API server, and what they ask for to the check.
package examples_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/tierlimit/tierlimit/internal/clustertest"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
)

var cluster *clustertest.Cluster

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, &cluster)) }

const (
	llmRoute = "examples/llm-route"
	service  = "tierlimit.tierlimit-system.svc.cluster.local"
	// listener is the way to the check through the proxy itself, which bounds the wait.
	listener = "127.0.0.1:8410"
)

// notInstalled are kinds that the API server of this test does not know. Of these objects it is only
// looked at apiVersion, kind and name here.
var notInstalled = []string{
	"gateway.envoyproxy.io/v1alpha1 SecurityPolicy",
	"gateway.networking.k8s.io/v1 Gateway",
	"gateway.networking.k8s.io/v1 HTTPRoute",
	"gateway.networking.k8s.io/v1beta1 ReferenceGrant",
	"traefik.io/v1alpha1 IngressRoute",
	"traefik.io/v1alpha1 Middleware",
}

// notObjects are YAML files of the LLM route that TestKustomization is about.
var notObjects = []string{"kustomization.yaml", "tierlimit-args.yaml"}

// TestLLMRouteIsAccepted applies the LLM route, file by file.
func TestLLMRouteIsAccepted(t *testing.T) {
	kubectl := admin(t)
	kubectl("", "apply", "-f", "config/manager/namespace.yaml")
	kubectl("", "apply", "-f", llmRoute+"/application.yaml") // has the other namespace
	files, err := filepath.Glob(filepath.Join(clustertest.Root(), llmRoute, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	met := map[string]bool{}
	for _, file := range files {
		if slices.Contains(notObjects, filepath.Base(file)) {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			kubectl := admin(t)
			for _, document := range documents(t, file) {
				kind, err := kindOf(document)
				if err != nil {
					t.Errorf("%v in\n%s", err, document)
					continue
				}
				if slices.Contains(notInstalled, kind) {
					met[kind] = true
					continue
				}
				// A warning is about a deprecated field or a Pod that the namespace will refuse.
				if output := kubectl(string(document), "apply", "--validate=strict", "-f", "-"); strings.Contains(output, "Warning") {
					t.Errorf("%s: %s", kind, output)
				}
			}
		})
	}
	for _, kind := range notInstalled {
		if !met[kind] {
			t.Errorf("no example has a %s: take it from the list", kind)
		}
	}
	t.Run("the tiers are those of the samples", func(t *testing.T) {
		const columns = "jsonpath={range .items[*]}{.metadata.name} {.spec.requests.perMinute} {.spec.requests.perDay}\n{end}"
		want := "enterprise 600 100000\nfree 5 100\npro 60 5000\n"
		if diff := cmp.Diff(want, kubectl("", "get", "rlt", "-o", columns)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		kubectl("", "diff", "-k", "config/samples") // fails on a difference, and shows it
	})
}

// TestKustomization builds Tierlimit as the LLM route configures it, applies it and lets the program
// itself read its arguments.
func TestKustomization(t *testing.T) {
	kubectl := admin(t)
	kubectl("", "apply", "-f", "config/manager/namespace.yaml")
	kubectl("", "apply", "-k", "config/crd") // the cluster has it already, but not by apply, which would be a warning
	manifests := kubectl("", "kustomize", llmRoute)
	if output := kubectl(manifests, "apply", "--validate=strict", "-f", "-"); strings.Contains(output, "Warning") {
		t.Error(output)
	}
	if got := kubectl("", "-n", "tierlimit-system", "get", "service", "tierlimit", "-o", "jsonpath={.spec.ports[*].port}"); got != "80 9001" {
		t.Errorf("the Service has the ports %q; the examples ask on 80, and on 9001 over gRPC", got)
	}
	var deployment appsv1.Deployment
	if err := json.Unmarshal([]byte(kubectl("", "-n", "tierlimit-system", "get", "deployment", "tierlimit", "-o", "json")), &deployment); err != nil {
		t.Fatal(err)
	}
	container := deployment.Spec.Template.Spec.Containers[0]
	if want := "registry.example/tierlimit:v0.1.0"; container.Image != want {
		t.Errorf("the image is %q, want %q", container.Image, want)
	}
	want := []string{
		"--ext-authz-bind-address=:9001", // of config/manager, still there
		"--service=tierlimit",
		"--identity=jwt",
		"--jwt-jwks-url=https://login.example.com/.well-known/jwks.json",
		"--jwt-issuer=https://login.example.com/",
		"--jwt-audience=https://api.example.com",
		"--jwt-tier-claim=tier",
		"--jwt-tenant-claim=tenant",
	}
	if diff := cmp.Diff(want, container.Args); diff != "" {
		t.Errorf("arguments: -want +got:\n%s", diff)
	}

	binary := filepath.Join(t.TempDir(), "tierlimit")
	build := exec.Command("go", "build", "-o", binary, "./cmd/tierlimit")
	build.Dir = clustertest.Root()
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, output)
	}
	for name, tc := range map[string]struct {
		reason string
		args   []string
		code   int
		says   string
	}{
		"Right": {"it gets as far as looking for a cluster", container.Args, 1, "no access to a cluster"},
		"Wrong": {"this test would notice", append([]string{"--jwt-realm-claim=realm"}, container.Args...), 2, "jwt-realm-claim"},
	} {
		t.Run(name, func(t *testing.T) {
			program := exec.CommandContext(t.Context(), binary, tc.args...)
			program.Env = []string{"HOME=" + t.TempDir(), "KUBECONFIG=" + filepath.Join(t.TempDir(), "none"), "REDIS_URL=redis://127.0.0.1:1"}
			output, err := program.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != tc.code || !strings.Contains(string(output), tc.says) {
				t.Errorf("%s: ends with %v and says %q, want exit code %d and %q", tc.reason, err, output, tc.code, tc.says)
			}
		})
	}
}

// TestChecks looks at every check that an example asks for.
func TestChecks(t *testing.T) {
	tiers := tierNames(t)
	found := map[string][]url.Values{} // by file
	root := filepath.Join(clustertest.Root(), "examples")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		for _, c := range checksIn(t, path) {
			query, err := c.validate(tiers)
			if err != nil {
				t.Errorf("%s: %v: %v", path, c, err)
			}
			file, _ := filepath.Rel(root, path)
			found[filepath.ToSlash(file)] = append(found[filepath.ToSlash(file)], query)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// The LLM route is the same behind each proxy.
	want := []url.Values{
		{"tier": {"free"}, "route": {"chat"}, "exempt": {"OPTIONS"}},
		{"tier": {"free"}, "route": {"embeddings"}, "exempt": {"OPTIONS"}},
	}
	for _, file := range []string{"ingress-nginx.yaml", "traefik.yaml", "envoy-gateway.yaml"} {
		if diff := cmp.Diff(want, found["llm-route/"+file]); diff != "" {
			t.Errorf("%s: -want +got:\n%s", file, diff)
		}
	}
}

// TestChecksAreRefused shows that TestChecks can fail.
func TestChecksAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		yaml, says string
	}{
		"misspelt parameter":      {`forwardAuth: {address: "http://` + service + `/check?teir=free"}`, "unknown parameter"},
		"parameter twice":         {`contextExtensions: [{name: tier, value: free}, {name: tier, value: pro}]`, "given twice"},
		"method in small letters": {`contextExtensions: [{name: tier, value: free}, {name: exempt, value: options}]`, "capital letters"},
		"unknown tier":            {`contextExtensions: [{name: tier, value: gold}]`, `tier "gold"`},
		"no tier":                 {`nginx.ingress.kubernetes.io/auth-url: http://` + service + `/check/nginx?route=chat`, `tier ""`},
		"form of another proxy":   {`nginx.ingress.kubernetes.io/auth-url: http://` + service + `/check?tier=free`, "/check/nginx"},
		"short name of a Service": {`forwardAuth: {address: "http://tierlimit/check?tier=free"}`, service},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "example.yaml")
			if err := os.WriteFile(file, []byte("spec:\n- "+tc.yaml), 0o600); err != nil {
				t.Fatal(err)
			}
			checks := checksIn(t, file)
			if len(checks) != 1 {
				t.Fatalf("found %d checks, want 1", len(checks))
			}
			if _, err := checks[0].validate([]string{"free", "pro"}); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got the error %v, want one with %q", err, tc.says)
			}
		})
	}
}

// TestKindOf shows what TestLLMRouteIsAccepted refuses of kinds that it cannot apply.
func TestKindOf(t *testing.T) {
	for name, document := range map[string]string{
		"no YAML":       "kind: [",
		"no apiVersion": "{kind: Middleware, metadata: {name: m}}",
		"no kind":       "{apiVersion: traefik.io/v1alpha1, metadata: {name: m}}",
		"no name":       "{apiVersion: traefik.io/v1alpha1, kind: Middleware}",
		"a key twice":   "{apiVersion: traefik.io/v1alpha1, kind: Middleware, metadata: {name: m}, spec: {}, spec: {}}",
	} {
		if kind, err := kindOf([]byte(document)); err == nil {
			t.Errorf("%s: got %q and no error", name, kind)
		}
	}
}

// check is what an example asks for.
type check struct {
	path  string // what the URL's path has to be; "" over gRPC and in files that are not YAML
	url   string
	query string // without a URL
}

// validate returns the parameters, and an error unless a check with them is answered by a tier.
func (c check) validate(tiers []string) (url.Values, error) {
	raw := c.query
	if c.path != "" {
		u, err := url.Parse(c.url)
		switch {
		case err != nil:
			return nil, err
		case u.Scheme != "http" || u.Host != service && u.Host != listener:
			return nil, fmt.Errorf("asks %s://%s, want http://%s", u.Scheme, u.Host, service)
		case u.Path != c.path:
			return nil, fmt.Errorf("asks for %s, want %s", u.Path, c.path)
		}
		raw = u.RawQuery
	}
	if err := webhookserver.ValidateParameters(raw); err != nil {
		return nil, err
	}
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, err
	}
	if tier := query.Get("tier"); !slices.Contains(tiers, tier) {
		return query, fmt.Errorf("tier %q is not one of %v", tier, tiers)
	}
	return query, nil
}

// quoted is the query of a check in a file that is not YAML, such as "tier=free&route=chat".
var quoted = regexp.MustCompile(`"(tier=[^"]*)"`)

// checksIn returns the checks that a file asks for, in their order.
func checksIn(t *testing.T, file string) []check {
	t.Helper()
	var checks []check
	switch filepath.Ext(file) {
	case ".yaml":
		for _, document := range documents(t, file) {
			var content any
			if err := yaml.Unmarshal(document, &content); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			checks = append(checks, checksBelow(content)...)
		}
	case ".go", ".md":
	default:
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(content) {
			if trimmed := bytes.TrimSpace(line); bytes.HasPrefix(trimmed, []byte("#")) || bytes.HasPrefix(trimmed, []byte("--")) {
				continue
			}
			for _, match := range quoted.FindAllSubmatch(line, -1) {
				checks = append(checks, check{query: string(match[1])})
			}
		}
	}
	return checks
}

func checksBelow(node any) []check {
	var checks []check
	switch node := node.(type) {
	case []any:
		for _, item := range node {
			checks = append(checks, checksBelow(item)...)
		}
	case map[string]any:
		for key, value := range node {
			switch key {
			case "nginx.ingress.kubernetes.io/auth-url":
				checks = append(checks, check{path: "/check/nginx", url: fmt.Sprint(value)})
			case "forwardAuth":
				middleware, _ := value.(map[string]any)
				checks = append(checks, check{path: "/check", url: fmt.Sprint(middleware["address"])})
			case "contextExtensions":
				checks = append(checks, check{query: extensions(value)})
			default:
				checks = append(checks, checksBelow(value)...)
			}
		}
	}
	return checks
}

// extensions writes context extensions as a query, one that is given twice as well.
func extensions(list any) string {
	query := url.Values{}
	items, _ := list.([]any)
	for _, item := range items {
		extension, _ := item.(map[string]any)
		query.Add(fmt.Sprint(extension["name"]), fmt.Sprint(extension["value"]))
	}
	return query.Encode()
}

// tierNames returns the tiers of the LLM route.
func tierNames(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, document := range documents(t, filepath.Join(clustertest.Root(), llmRoute, "tiers.yaml")) {
		var tier struct{ Metadata struct{ Name string } }
		if err := yaml.Unmarshal(document, &tier); err != nil {
			t.Fatal(err)
		}
		names = append(names, tier.Metadata.Name)
	}
	return names
}

// kindOf returns "apiVersion kind" of an object.
func kindOf(document []byte) (string, error) {
	var object map[string]any
	if err := yaml.UnmarshalStrict(document, &object); err != nil {
		return "", err
	}
	metadata, _ := object["metadata"].(map[string]any)
	for name, value := range map[string]any{"apiVersion": object["apiVersion"], "kind": object["kind"], "name": metadata["name"]} {
		if text, ok := value.(string); !ok || text == "" {
			return "", fmt.Errorf("no %s", name)
		}
	}
	return fmt.Sprintf("%s %s", object["apiVersion"], object["kind"]), nil
}

// documents returns the YAML documents of a file that are not comments only.
func documents(t *testing.T, file string) [][]byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var parsed any
		if err := yaml.Unmarshal(document, &parsed); err != nil || parsed != nil {
			all = append(all, document)
		}
	}
}

// admin returns kubectl with all rights. A command that fails ends the test.
func admin(t *testing.T) func(input string, args ...string) string {
	t.Helper()
	kubeconfig := cluster.Kubeconfig(t, "admin", "system:masters")
	return func(input string, args ...string) string {
		t.Helper()
		return cluster.MustKubectl(t, kubeconfig, input, args...)
	}
}
