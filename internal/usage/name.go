// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

const (
	// maxPart is the longest part of a subject that is kept, in bytes: those that appear in a Redis key as
	// they are.
	maxPart = 128
	// maxName is the longest name, in bytes, so that no client decides how much memory it takes.
	maxName = 256
	// nameHead is how many bytes the lengths of the parts take.
	nameHead = 4
)

// appendName appends a subject in one piece: the lengths of its parts, then the parts. It returns false
// for one that is too long to be kept.
func appendName(b []byte, s limiter.Subject) ([]byte, bool) {
	if len(s.User) > maxPart || len(s.Tenant) > maxPart || len(s.Route) > maxPart || len(s.Kind) > maxPart ||
		nameHead+len(s.User)+len(s.Tenant)+len(s.Route)+len(s.Kind) > maxName {
		return nil, false
	}
	b = append(b, byte(len(s.User)), byte(len(s.Tenant)), byte(len(s.Route)), byte(len(s.Kind))) //nolint:gosec // G115: at most maxPart
	b = append(b, s.User...)
	b = append(b, s.Tenant...)
	b = append(b, s.Route...)
	return append(b, s.Kind...), true
}

// subjectOf is the subject of a name.
func subjectOf(name string) limiter.Subject {
	rest := name[nameHead:]
	next := func(i int) string {
		part := rest[:name[i]]
		rest = rest[name[i]:]
		return part
	}
	return limiter.Subject{User: next(0), Tenant: next(1), Route: next(2), Kind: limiter.Kind(next(3))}
}

// shown is a subject as the admin API shows it.
func shown(s limiter.Subject) adminapi.Subject {
	return adminapi.Subject{User: s.User, Kind: string(s.Kind), Tenant: s.Tenant, Route: s.Route}
}
