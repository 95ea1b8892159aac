// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"time"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

// Summary is what a simulation comes to, in numbers for a sentence such as "43 of 812 users seen since
// 10:32 (5.3 %) would have been rejected at least once, 7 would be rejected now".
type Summary struct {
	// Users is how many users were seen, Rejected how many of them would have been rejected at least once, and
	// RejectedNow how many would be by their next request. Of a sample they are estimates.
	Users, Rejected, RejectedNow int64
	// Requests is how many requests were replayed, RejectedRequests how many of them would have been
	// rejected. Of a sample they are estimates.
	Requests, RejectedRequests int64
	// Share is Rejected of Users, 0 to 1; 0 without users.
	Share float64
	// LookedAt is how many users were looked at. Less than Users means that the numbers are estimates.
	LookedAt int64
	// TooLong is how many more users were left out because their logs are too long. They have more than
	// 250,000 requests.
	TooLong int64
	// Since is when the first of the users may have been seen.
	Since time.Time
	// LogsSince is when the oldest of the requests may have been made: a minute ago if the tier has no limit per day.
	LogsSince time.Time
}

// Summarize counts the rows of a simulation.
func Summarize(s adminapi.Simulation) Summary {
	each := max(s.SampledOneIn, 1)
	sum := Summary{LookedAt: int64(len(s.Users)), TooLong: s.TooLong, Since: s.Since, LogsSince: s.Now.Add(-time.Duration(s.KnownSeconds) * time.Second)}
	for _, u := range s.Users {
		sum.Users += each
		sum.Requests += u.Requests * each
		sum.RejectedRequests += u.Rejected * each
		if u.Rejected > 0 {
			sum.Rejected += each
		}
		if u.RejectedNow {
			sum.RejectedNow += each
		}
	}
	if sum.Users > 0 {
		sum.Share = float64(sum.Rejected) / float64(sum.Users)
	}
	return sum
}
