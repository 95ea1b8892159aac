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

const (
	// pollInterval is how long after a look at the files the next one comes. A change is taken when
	// two looks in a row have found the same, so within two intervals, and a file that is being
	// written is waited for without holding up the others. Looking finds what notifications miss: a
	// directory replaced as a whole, as a mounted ConfigMap is, and network file systems.
	pollInterval = 200 * time.Millisecond

	// removalDelay is how long a tier that no file declares any more stays in force. It may be on its
	// way from one file to another, or its file be replaced by deleting and writing it.
	removalDelay = 300 * time.Millisecond
)

// Source keeps a tier table equal to the YAML files of a directory.
type Source struct {
	dir      string
	table    *tier.Table
	log      logr.Logger
	validate *validator
	files    map[string]*file     // by path
	merged   map[string]placed    // what is in force, by the name of the tier
	missing  map[string]time.Time // tiers in force that no file declares, since when
	expiry   time.Time            // when the next kill switch in force expires; zero if none does
	problem  error                // what is wrong with the files
	reported map[string]bool      // the problems that there were the last time
}

// NewSource returns a source for the files *.yaml and *.yml directly in a directory.
// kustomization.yaml is passed over.
func NewSource(dir string, table *tier.Table, log logr.Logger) (*Source, error) {
	validate, err := newValidator()
	if err != nil {
		return nil, err
	}
	return &Source{dir: dir, table: table, log: log, validate: validate, files: map[string]*file{}, missing: map[string]time.Time{}}, nil
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
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pollInterval): // after a slow look too: two looks must be apart
		}
		changed, err := s.poll()
		if err != nil { // the directory itself cannot be read: everything stays as it is
			s.report(err)
			continue
		}
		if changed || len(s.missing) > 0 {
			var declared map[string]placed
			declared, s.problem = s.merge()
			s.publish(s.withMissing(declared, time.Now()))
		} else if !s.expiry.IsZero() && !time.Now().Before(s.expiry) {
			s.publish(s.merged) // to say so in the log; checks have noticed by themselves
		}
		s.report(s.problem)
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
		if _, found := slices.BinarySearch(paths, path); !found {
			if f.gone {
				delete(s.files, path)
				changed = true
			}
			f.gone = true
		}
	}
	for _, path := range paths {
		now := look(path)
		f, known := s.files[path]
		if !known {
			s.files[path] = &file{path: path, seen: now}
			continue
		}
		if now == f.seen && (!f.read || now != f.taken) {
			f.take(now, s.validate)
			changed = true
		}
		f.seen, f.gone = now, false
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

// withMissing adds to what the files declare the tiers in force that they have ceased to declare
// only just now.
func (s *Source) withMissing(declared map[string]placed, now time.Time) map[string]placed {
	for name, p := range s.merged {
		if _, ok := declared[name]; ok {
			delete(s.missing, name)
			continue
		}
		since, known := s.missing[name]
		if !known {
			since = now
			s.missing[name] = now
		}
		if now.Sub(since) < removalDelay {
			declared[name] = p
		} else {
			delete(s.missing, name)
		}
	}
	return declared
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
		if at := t.KillSwitch.NextExpiry(now); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// report logs the problems that were not there the last time, one line each, and when there are
// none any more.
func (s *Source) report(err error) {
	problems := map[string]bool{}
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			line = strings.TrimSpace(line)
			problems[line] = true
			if !s.reported[line] {
				s.log.Error(errors.New(line), "tier file not usable; the last good tiers stay in force")
			}
		}
	}
	if len(problems) == 0 && len(s.reported) > 0 {
		s.log.Info("all tier files are usable again")
	}
	s.reported = problems
}
