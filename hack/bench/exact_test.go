// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"
)

func TestMostWithin(t *testing.T) {
	// at is an admission that was sent and answered at these milliseconds.
	at := func(sent, answered int) admission {
		return admission{time.Duration(sent) * time.Millisecond, time.Duration(answered) * time.Millisecond}
	}
	cases := map[string]struct {
		admissions []admission
		want       int
		reason     string
	}{
		"none":              {nil, 0, "nobody asked"},
		"a burst":           {[]admission{at(0, 5), at(0, 6), at(1, 7)}, 3, "all within a few milliseconds"},
		"around a boundary": {[]admission{at(900, 910), at(950, 960), at(1010, 1020), at(1050, 1060)}, 4, "a stretch need not begin at a whole second"},
		"a window apart":    {[]admission{at(0, 5), at(1000, 1005)}, 1, "the first has left when the second comes"},
		"just within":       {[]admission{at(0, 5), at(990, 999)}, 2, "the window is not over"},
		"perhaps after":     {[]admission{at(0, 5), at(990, 1001)}, 1, "it may have been admitted after the window"},
		"perhaps before":    {[]admission{at(0, 500), at(400, 1300)}, 1, "the first may have been admitted at 0, the second at 1300"},
		"sent out of order": {[]admission{at(2100, 2110), at(10, 20), at(2000, 2010), at(30, 40), at(2050, 2060)}, 3, "answers come in any order"},
		"later is worse":    {[]admission{at(0, 5), at(600, 605), at(1200, 1205), at(1300, 1305)}, 3, "the worst stretch need not be the first"},
	}
	for name, tc := range cases {
		if got := mostWithin(time.Second, tc.admissions); got != tc.want {
			t.Errorf("%s: got %d, want %d: %s", name, got, tc.want, tc.reason)
		}
	}
}
