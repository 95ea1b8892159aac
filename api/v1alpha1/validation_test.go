// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
)

// The rules of the API are a table of manifests in testdata: those in valid are accepted, those in
// invalid are refused, with the messages of their `# want:` lines. internal/tierfile runs the same
// table, because the local mode promises the same rules.

func TestAccepted(t *testing.T) {
	for _, manifest := range manifests(t, "valid") {
		t.Run(manifest.name, func(t *testing.T) {
			if _, err := create(t, manifest.content); err != nil {
				t.Errorf("the API server refuses this tier, although %s: %v", manifest.comment("reason"), err)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	for _, manifest := range manifests(t, "invalid") {
		t.Run(manifest.name, func(t *testing.T) {
			_, err := create(t, manifest.content)
			if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
				t.Fatalf("the API server says %v, want a refusal because: %s", err, manifest.comment("reason"))
			}
			wants := manifest.comments("want")
			if len(wants) == 0 {
				t.Fatal("the manifest has no `# want:` line")
			}
			for _, want := range wants {
				if got := err.Error(); !strings.Contains(got, want) {
					t.Errorf("message does not tell what to write instead\nwant: %s\ngot:  %s", want, got)
				}
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	body, err := create(t, []byte("apiVersion: tierlimit.dev/v1alpha1\nkind: RateLimitTier\nmetadata: {name: defaults}\nspec: {requests: {perMinute: 5}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var created v1alpha1.RateLimitTier
	if err := json.Unmarshal(body, &created); err != nil {
		t.Fatal(err)
	}
	five := int32(5)
	want := v1alpha1.RateLimitTierSpec{
		Requests:      v1alpha1.RequestBudget{PerMinute: &five},
		Mode:          v1alpha1.ModeEnforce,
		FailurePolicy: v1alpha1.FailClosed,
	}
	if diff := cmp.Diff(want, created.Spec); diff != "" {
		t.Errorf("spec after defaulting (-want +got):\n%s", diff)
	}
}

// TestAcceptedCanBeDecoded creates what validation accepts and reads it with the types of this
// package. A value that passes the one and not the other would keep every replica from listing.
func TestAcceptedCanBeDecoded(t *testing.T) {
	for _, manifest := range manifests(t, "valid") {
		body, err := create(t, manifest.content)
		if err != nil {
			continue // TestAccepted says so
		}
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&v1alpha1.RateLimitTier{}); err != nil {
			t.Errorf("%s: what the API server has accepted cannot be decoded: %v", manifest.name, err)
		}
	}
}

type manifest struct {
	name    string
	content []byte
}

// comments returns what the lines `# key: ...` at the top say.
func (m manifest) comments(key string) []string {
	var values []string
	for line := range strings.Lines(string(m.content)) {
		if value, ok := strings.CutPrefix(line, "# "+key+": "); ok {
			values = append(values, strings.TrimSpace(value))
		}
	}
	return values
}

func (m manifest) comment(key string) string { return strings.Join(m.comments(key), "; ") }

func manifests(t *testing.T, kind string) []manifest {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", kind, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	var read []manifest
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, manifest{name: strings.TrimSuffix(filepath.Base(file), ".yaml"), content: content})
	}
	return read
}

// create asks the API server to create an object without storing it, as strictly as kubectl does.
// A refusal is an *apierrors.StatusError, whose message is what kubectl prints.
func create(t *testing.T, content []byte) ([]byte, error) {
	t.Helper()
	config := rest.CopyConfig(cluster.Config)
	config.GroupVersion = &v1alpha1.GroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	result := client.Post().AbsPath("/apis/tierlimit.dev/v1alpha1/ratelimittiers").
		Param("dryRun", "All").Param("fieldValidation", "Strict").
		SetHeader("Content-Type", "application/yaml").SetHeader("Accept", "application/json").Body(content).Do(t.Context())
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}
