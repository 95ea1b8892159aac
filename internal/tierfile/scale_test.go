// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package tierfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"github.com/tierlimit/tierlimit/internal/tier"
)

// manyFiles returns 10 files of 1,000 tiers each, by their names.
func manyFiles() map[string]string {
	files := map[string]string{}
	for i := range 10 {
		var content strings.Builder
		for j := range 1000 {
			content.WriteString(plain(fmt.Sprintf("tier-%05d", 1000*i+j), 5) + "---\n")
		}
		files[fmt.Sprintf("tiers-%d.yaml", i)] = content.String()
	}
	return files
}

// BenchmarkLoad10000 measures the start, and the reload after one of 1,000 tiers in one file has
// changed, without the time between looks.
func BenchmarkLoad10000(b *testing.B) {
	dir, files := b.TempDir(), manyFiles()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	var table tier.Table
	var source *Source
	b.Run("Start", func(b *testing.B) {
		for b.Loop() {
			var err error
			if source, err = NewSource(dir, &table, logr.Discard()); err != nil {
				b.Fatal(err)
			}
			if err := source.Load(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Reload", func(b *testing.B) {
		i := 0
		for b.Loop() {
			i++
			changed := strings.Replace(files["tiers-0.yaml"], "perMinute: 5", fmt.Sprintf("perMinute: %d", i), 1)
			if err := os.WriteFile(filepath.Join(dir, "tiers-0.yaml"), []byte(changed), 0o600); err != nil {
				b.Fatal(err)
			}
			for taken := false; !taken; {
				var err error
				if taken, err = source.poll(); err != nil {
					b.Fatal(err)
				}
			}
			declared, err := source.merge()
			if err != nil {
				b.Fatal(err)
			}
			source.publish(declared)
		}
	})
	b.Run("Look", func(b *testing.B) {
		for b.Loop() {
			if _, err := source.poll(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
