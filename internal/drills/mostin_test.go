// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package drills

import (
	"testing"
	"time"
)

// What counts the admissions in a window must not overlook one too many.
func TestMostInAWindow(t *testing.T) {
	begin := time.Now()
	at := func(sent, received time.Duration) answer {
		return answer{sent: begin.Add(sent), received: begin.Add(received)}
	}
	const s = time.Second
	cases := map[string]struct {
		reason string
		all    answers
		want   int
	}{
		"None":     {reason: "Nothing was admitted."},
		"Together": {reason: "All are in one window.", all: answers{at(0, s), at(s, 2*s), at(58*s, 59*s)}, want: 3},
		"Next":     {reason: "The third may have been decided when the first had left.", all: answers{at(0, s), at(s, 2*s), at(59*s, 60*s)}, want: 2},
		"Across":   {reason: "A window may begin with any.", all: answers{at(0, s), at(50*s, 51*s), at(70*s, 71*s), at(109*s, 109*s+1)}, want: 3},
		"Mixed":    {reason: "They need not be in order.", all: answers{at(70*s, 71*s), at(0, s), at(50*s, 51*s)}, want: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.all.mostIn(minute); got != tc.want {
				t.Errorf("%s Got %d, want %d", tc.reason, got, tc.want)
			}
		})
	}
}
