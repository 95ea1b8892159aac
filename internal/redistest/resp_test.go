// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFramesEndWhereRequestsAndRepliesDo(t *testing.T) {
	cases := map[string]struct {
		reason string
		data   string
		want   []int // where they end
	}{
		"Pipeline":  {"Two requests.", "*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$2\r\n\r\n\r\n", []int{14, 36}},
		"Lines":     {"Replies without content.", "+OK\r\n-ERR 5\r\n:12\r\n_\r\n#t\r\n,1.5\r\n(99\r\n", []int{5, 13, 18, 21, 25, 31, 36}},
		"Nulls":     {"They have no content.", "$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n", []int{5, 10, 14, 20}},
		"Nested":    {"One reply.", "*2\r\n*2\r\n:1\r\n*0\r\n%1\r\n$1\r\na\r\n~1\r\n=5\r\ntxt:a\r\n", []int{42}},
		"Push":      {"A push message replies to nothing.", ">2\r\n$1\r\na\r\n:1\r\n:2\r\n", []int{19}},
		"NotEnded":  {"There is more to come.", "*2\r\n$1\r\na\r\n", nil},
		"LineFeeds": {"Content is not read.", "$6\r\n*9\r\n\r\n\r\n:1\r\n", []int{12, 16}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for piece := 1; piece <= len(tc.data); piece++ {
				var stream frames
				var got []int
				for at := 0; at < len(tc.data); {
					n, ended := stream.next([]byte(tc.data[at:min(at+piece, len(tc.data))]))
					if at += n; ended {
						got = append(got, at)
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Fatalf("%s In pieces of %d, -want +got:\n%s", tc.reason, piece, diff)
				}
				if want := name == "NotEnded"; stream.begun() != want {
					t.Errorf("%s In pieces of %d, in the middle of a frame: %v", tc.reason, piece, !want)
				}
			}
		})
	}
}
