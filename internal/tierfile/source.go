// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tierfile reads RateLimitTiers from YAML files instead of a cluster, by the same rules,
// and follows their changes.
package tierfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/tierlimit/tierlimit/internal/tier"
)

const (
	// pollInterval is how often the directory is looked at. A change is read when two looks in a
	// row have found the same, so within two intervals. Looking finds what notifications miss: a
	// directory replaced as a whole, as a mounted ConfigMap is, and network file systems.
	pollInterval = 200 * time.Millisecond

	// maxFileSize bounds what is read of one file, in bytes; a tier takes about 300.
	maxFileSize = 4 << 20
)

// Source keeps a tier table equal to the YAML files of a directory.
type Source struct {
	dir      string
	table    *tier.Table
	log      logr.Logger
	validate *validator
	files    map[string][]declared // the last good tiers of each file
	merged   map[string]placed     // what is in force, by name
	expiry   time.Time             // when the next kill switch in force expires; zero if none does
	loaded   string                // the fingerprint of what was read last
	reported string                // the problems logged last
}

// NewSource returns a source for the files *.yaml and *.yml directly in a directory.
// kustomization.yaml is passed over.
func NewSource(dir string, table *tier.Table, log logr.Logger) (*Source, error) {
	validate, err := newValidator()
	if err != nil {
		return nil, err
	}
	return &Source{dir: dir, table: table, log: log, validate: validate, files: map[string][]declared{}}, nil
}

// Load fills the table for the first time. Nothing is published if anything is wrong with any
// file, because there is no last good tier to keep yet.
func (s *Source) Load() error {
	s.loaded = s.fingerprint() // before reading, so that a change meanwhile is seen
	merged, err := s.read()
	if err != nil {
		return err
	}
	s.publish(merged)
	return nil
}

// Start follows the directory until ctx ends. A file that cannot be used is reported once, and its
// last good tiers stay in force; the other files are followed all the same.
func (s *Source) Start(ctx context.Context) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	seen := s.loaded
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if !s.expiry.IsZero() && !time.Now().Before(s.expiry) {
			s.publish(s.merged) // to say so; checks have noticed by themselves
		}
		previous := seen
		seen = s.fingerprint()
		if seen == s.loaded || seen != previous {
			continue
		}
		s.loaded = seen
		merged, err := s.read()
		s.report(err)
		if unread := (*fs.PathError)(nil); errors.As(err, &unread) {
			s.loaded = "" // a file that could not be read may be readable again without a change
		}
		if merged != nil {
			s.publish(merged)
		}
	}
}

// read reads every file and returns the tiers to be in force, by name, and what is wrong. The
// tiers are nil when the directory itself cannot be read.
func (s *Source) read() (map[string]placed, error) {
	names, err := s.list()
	if err != nil {
		return nil, err
	}
	var errs []error
	files := make(map[string][]declared, len(names))
	for _, name := range names {
		tiers, err := s.readFile(name)
		if err != nil {
			errs = append(errs, err)
			tiers = s.files[name]
		}
		files[name] = tiers
	}
	s.files = files
	merged, duplicates := merge(names, files, s.merged)
	return merged, errors.Join(append(errs, duplicates...)...)
}

func (s *Source) readFile(name string) ([]declared, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // a pipe would be waited for, for ever
		return nil, fmt.Errorf("%s:1: not a file", name)
	}
	if info.Size() > maxFileSize {
		return nil, fmt.Errorf("%s:1: %d bytes, but a file of tiers may have %d", name, info.Size(), maxFileSize)
	}
	content, err := os.ReadFile(name) //nolint:gosec // G304: the directory is the operator's choice
	if err != nil {
		return nil, err
	}
	return s.validate.parse(name, content)
}

// list returns the files to read, ordered by name.
func (s *Source) list() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		name := entry.Name()
		extension := filepath.Ext(name)
		if extension != ".yaml" && extension != ".yml" || strings.HasPrefix(name, ".") || strings.TrimSuffix(name, extension) == "kustomization" {
			continue
		}
		names = append(names, filepath.Join(s.dir, name))
	}
	if len(names) == 0 && s.merged == nil {
		return nil, fmt.Errorf("%s: no *.yaml file with a RateLimitTier in this directory", s.dir)
	}
	return names, nil
}

// placed is a tier and the file that declares it.
type placed struct {
	tier *tier.Tier
	file string
}

// merge puts the tiers of all files together. Of two files that declare the same tier, the one
// whose declaration is in force already stays, so that a mistake changes nothing.
func merge(names []string, files map[string][]declared, inForce map[string]placed) (map[string]placed, []error) {
	merged := map[string]placed{}
	var duplicates []error
	add := func(file string, d declared) {
		if first, taken := merged[d.tier.Name]; taken {
			duplicates = append(duplicates, fmt.Errorf("%s:%d: RateLimitTier %q is declared in %s already: remove one of the two", file, d.line, d.tier.Name, first.file))
			return
		}
		merged[d.tier.Name] = placed{tier: d.tier, file: file}
	}
	for _, first := range []bool{true, false} {
		for _, file := range names {
			for _, d := range files[file] {
				if (inForce[d.tier.Name].file == file) == first {
					add(file, d)
				}
			}
		}
	}
	return merged, duplicates
}

func (s *Source) publish(merged map[string]placed) {
	s.merged = merged
	tiers := make([]*tier.Tier, 0, len(merged))
	for _, p := range merged {
		tiers = append(tiers, p.tier)
	}
	s.expiry = nextExpiry(tiers, time.Now())
	for _, change := range s.table.Replace(tiers) {
		s.log.Info("tier changed", "tier", change.Name, "now", change.Now)
	}
}

// nextExpiry returns when the next kill switch expires, or the zero time if none will.
func nextExpiry(tiers []*tier.Tier, now time.Time) time.Time {
	var next time.Time
	for _, t := range tiers {
		if at := t.KillSwitch.ExpiresAt; t.KillSwitch.EngagedAt(now) && !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// report logs problems when they change, one line each.
func (s *Source) report(err error) {
	message := ""
	if err != nil {
		message = err.Error()
	}
	if message == s.reported {
		return
	}
	s.reported = message
	for line := range strings.Lines(message) {
		s.log.Error(errors.New(strings.TrimSpace(line)), "tier file not usable; the last good tiers stay in force")
	}
}

// fingerprint tells one state of the directory's files from another without reading them. Links
// are followed, so that the switch of a mounted ConfigMap shows.
func (s *Source) fingerprint() string {
	names, err := s.list()
	if err != nil {
		return err.Error()
	}
	var state strings.Builder
	for _, name := range names {
		var info fs.FileInfo
		if info, err = os.Stat(name); err != nil {
			fmt.Fprintln(&state, name, err)
			continue
		}
		fmt.Fprintln(&state, name, info.Size(), info.ModTime().UnixNano())
	}
	return state.String()
}
