// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package tierfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/internal/clustertest"
)

// otherWords are the refusals that a file gets in other words than an object does, with the reason.
var otherWords = map[string]struct{ reason, want string }{
	"duplicate-key": {
		reason: "the API server reads YAML with another library and can not tell the line of the file",
		want:   `mapping key "perMinute" already defined at line 9`,
	},
}

// TestRulesOfTheAPI runs the table that api/v1alpha1 runs against a real API server: what that
// accepts is accepted here, and what it refuses is refused with the same message.
func TestRulesOfTheAPI(t *testing.T) {
	rules := rules(t)
	for _, kind := range []string{"valid", "invalid"} {
		files, err := filepath.Glob(filepath.Join(clustertest.Root(), "api", "v1alpha1", "testdata", kind, "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no manifests: %v", err)
		}
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".yaml")
			t.Run(kind+"/"+name, func(t *testing.T) {
				content, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				tiers, err := rules.parse(name+".yaml", content)
				if kind == "valid" {
					if err != nil || len(tiers) != 1 {
						t.Errorf("%d tiers, error %v; want it accepted, as the API server does\n%s", len(tiers), err, content)
					}
					return
				}
				if err == nil {
					t.Fatalf("accepted, want it refused, as the API server does\n%s", content)
				}
				for _, want := range wants(name, content) {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("another message than that of the API server\nwant: %s\ngot:  %v", want, err)
					}
				}
			})
		}
	}
}

// wants returns the messages to expect for a manifest: those of its `# want:` lines.
func wants(name string, content []byte) []string {
	if other, ok := otherWords[name]; ok {
		return []string{other.want}
	}
	var wants []string
	for line := range strings.Lines(string(content)) {
		if want, ok := strings.CutPrefix(line, "# want: "); ok {
			wants = append(wants, strings.TrimSpace(want))
		}
	}
	return wants
}
