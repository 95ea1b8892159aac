// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package tierfile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/tierlimit/tierlimit/internal/tier"
)

// patience bounds what a test waits for. A change takes two looks, so well below a second.
const patience = 10 * time.Second

// followed is a directory that a Source follows.
type followed struct {
	dir    string
	table  tier.Table
	source *Source
	log    logLines
}

func newFollowed(t *testing.T, dir string) *followed {
	t.Helper()
	f := &followed{dir: dir}
	source, err := NewSource(dir, &f.table, funcr.New(f.log.add, funcr.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	f.source = source
	return f
}

// follow writes files, loads them and follows the directory until the test ends.
func follow(t *testing.T, files map[string]string) *followed {
	t.Helper()
	f := newFollowed(t, t.TempDir())
	for name, content := range files {
		f.write(t, name, content)
	}
	f.start(t)
	return f
}

func (f *followed) start(t *testing.T) {
	t.Helper()
	if err := f.source.Load(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.source.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (f *followed) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (f *followed) remove(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(f.dir, name)); err != nil {
		t.Fatal(err)
	}
}

// inForce waits until exactly these tiers are in force, as "free=5 pro=60", ordered by name.
func (f *followed) inForce(t *testing.T, want string) {
	t.Helper()
	eventually(t, func() error {
		var all []string
		for _, tier := range f.table.All() {
			all = append(all, fmt.Sprintf("%s=%d", tier.Name, tier.Limits[0].Requests))
		}
		if got := strings.Join(all, " "); got != want {
			return fmt.Errorf("tiers in force %q, want %q\nlog:\n%s", got, want, &f.log)
		}
		return nil
	})
}

// logged waits until a text has been logged so many times.
func (f *followed) logged(t *testing.T, text string, times int) {
	t.Helper()
	eventually(t, func() error {
		if got := strings.Count(f.log.String(), text); got != times {
			return fmt.Errorf("%q was logged %d times, want %d:\n%s", text, got, times, &f.log)
		}
		return nil
	})
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %v", patience, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) add(_, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, args)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

func TestLoad(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		files  map[string]string
		tiers  string
		errs   []string
	}{
		"Several":       {"both extensions", map[string]string{"a.yaml": plain("free", 5), "b.yml": plain("pro", 60)}, "free=5 pro=60", nil},
		"OneFile":       {"several in a file", map[string]string{"a.yaml": plain("free", 5) + "---\n" + plain("pro", 60)}, "free=5 pro=60", nil},
		"Kustomization": {"kustomize's own file is no tier", map[string]string{"a.yaml": plain("free", 5), "kustomization.yaml": "resources: [a.yaml]\n", "kustomization.yml": "x: y\n"}, "free=5", nil},
		"Others":        {"hidden files and other extensions", map[string]string{"a.yaml": plain("free", 5), ".b.yaml": "junk: [", "README.md": "# junk", "a.yaml~": "junk: [", "a.yaml.swp": "junk: ["}, "free=5", nil},
		"Empty":         {"most likely the wrong directory", nil, "", []string{"no *.yaml file with a RateLimitTier in this directory"}},
		"EmptyFile":     {"a file without a tier", map[string]string{"a.yaml": ""}, "", []string{"a.yaml:1: no RateLimitTier in this file"}},
		"Several wrong": {"all that is wrong at once, and nothing in force", map[string]string{"a.yaml": plain("free", -1), "b.yaml": "kind: [", "c.yaml": plain("pro", 60)}, "", []string{"a.yaml:7: spec.requests.perMinute", "b.yaml:1: "}},
		"Duplicate":     {"which one is meant", map[string]string{"a.yaml": plain("free", 5), "b.yaml": plain("free", 6)}, "", []string{`b.yaml:4: RateLimitTier "free" is declared in `, "a.yaml already: remove one of the two"}},
		"Oversized":     {"no file of tiers is that long", map[string]string{"a.yaml": plain("free", 5) + strings.Repeat("#", maxFileSize)}, "", []string{fmt.Sprintf("a file of tiers may have %d", maxFileSize)}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFollowed(t, t.TempDir())
			for file, content := range tc.files {
				f.write(t, file, content)
			}
			err := f.source.Load()
			if (err == nil) != (tc.errs == nil) || f.table.Ready() != (err == nil) {
				t.Fatalf("%s: error %v, table ready %v", tc.reason, err, f.table.Ready())
			}
			for _, want := range tc.errs {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s\ngot:  %v\nwant: %s", tc.reason, err, want)
				}
			}
			f.inForce(t, tc.tiers)
		})
	}
}

func TestLoadOfWhatIsNoDirectory(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "missing"), file} {
		if err := newFollowed(t, path).source.Load(); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("Load of %s: %v, want an error that names it", path, err)
		}
	}
}
