// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tierfile reads RateLimitTiers from YAML files instead of a cluster, by the same rules,
// and follows their changes.
package tierfile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/tierlimit/tierlimit/internal/tier"
)

// pollInterval is how often the files are looked at. A change is taken when two looks in a row have
// found the same, so within two intervals, and a file that is being written is waited for without
// holding up the others. Looking finds what notifications miss: a directory replaced as a whole, as
// a mounted ConfigMap is, and network file systems.
const pollInterval = 200 * time.Millisecond

// Source keeps a tier table equal to the YAML files of a directory.
type Source struct {
	dir      string
	table    *tier.Table
	log      logr.Logger
	validate *validator
	files    map[string]*file  // by path
	merged   map[string]placed // what is in force, by the name of the tier
	expiry   time.Time         // when the next kill switch in force expires; zero if none does
	reported string            // the problems logged last
}

// NewSource returns a source for the files *.yaml and *.yml directly in a directory.
// kustomization.yaml is passed over.
func NewSource(dir string, table *tier.Table, log logr.Logger) (*Source, error) {
	validate, err := newValidator()
	if err != nil {
		return nil, err
	}
	return &Source{dir: dir, table: table, log: log, validate: validate, files: map[string]*file{}}, nil
}

// Load fills the table for the first time. Nothing is published if anything is wrong with any
// file, because there is no last good tier to keep yet.
func (s *Source) Load() error {
	paths, err := list(s.dir)
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("%s: no *.yaml file with a RateLimitTier in this directory", s.dir)
	}
	for _, path := range paths {
		s.files[path] = &file{path: path}
		s.files[path].take(look(path), s.validate)
	}
	merged, err := s.merge()
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
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		changed, err := s.poll()
		switch {
		case err != nil: // the directory itself cannot be read: everything stays as it is
			s.report(err)
		case changed:
			merged, err := s.merge()
			s.report(err)
			s.publish(merged)
		case !s.expiry.IsZero() && !time.Now().Before(s.expiry):
			s.publish(s.merged) // to say so in the log; checks have noticed by themselves
		}
	}
}

// poll looks at every file and takes what two looks in a row have found. It returns whether it has
// taken anything.
func (s *Source) poll() (changed bool, err error) {
	paths, err := list(s.dir)
	if err != nil {
		return false, err
	}
	for path, f := range s.files {
		if !slices.Contains(paths, path) {
			if f.gone {
				delete(s.files, path)
				changed = true
			}
			f.gone = true
		}
	}
	for _, path := range paths {
		f, known := s.files[path]
		if !known {
			f = &file{path: path}
			s.files[path] = f
		}
		f.gone = false
		now := look(path)
		if now == f.seen && now != f.taken {
			f.take(now, s.validate)
			changed = true
		}
		f.seen = now
	}
	return changed, nil
}

// placed is a tier and the file that declares it.
type placed struct {
	tier *tier.Tier
	file string
}

// merge puts the tiers of all files together, and returns what is wrong with any. Of two files
// that declare the same tier, the one whose declaration is in force already stays, so that a
// mistake changes nothing.
func (s *Source) merge() (map[string]placed, error) {
	paths := slices.Sorted(maps.Keys(s.files))
	var errs []error
	for _, path := range paths {
		errs = append(errs, s.files[path].err)
	}
	merged := map[string]placed{}
	for _, first := range []bool{true, false} {
		for _, path := range paths {
			for _, d := range s.files[path].good {
				if (s.merged[d.tier.Name].file == path) != first {
					continue
				}
				if other, taken := merged[d.tier.Name]; taken {
					errs = append(errs, fmt.Errorf("%s:%d: RateLimitTier %q is declared in %s already: remove one of the two", path, d.line, d.tier.Name, other.file))
					continue
				}
				merged[d.tier.Name] = placed{tier: d.tier, file: path}
			}
		}
	}
	return merged, errors.Join(errs...)
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
