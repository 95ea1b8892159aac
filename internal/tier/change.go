// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package tier

import (
	"cmp"
	"slices"
)

// Change is what one replacement of the table did to one tier.
type Change struct {
	// Name is the tier's name.
	Name string
	// Now describes the tier as it is in force now; "removed" if it is not any more.
	Now string
}

// changes returns what differs between two descriptions of a table, ordered by name.
func changes(before, after map[string]string) []Change {
	var changed []Change
	for name, now := range after {
		if was, ok := before[name]; !ok || was != now {
			changed = append(changed, Change{Name: name, Now: now})
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			changed = append(changed, Change{Name: name, Now: "removed"})
		}
	}
	slices.SortFunc(changed, func(a, b Change) int { return cmp.Compare(a.Name, b.Name) })
	return changed
}
