// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"context"
	"testing"
	"time"
)

func TestClockIsSetWhileTheServerRuns(t *testing.T) {
	server, clock := StartWithClock(t)
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour, 0} {
		clock.Set(ahead)
		before := time.Now()
		now, err := server.Client.Time(context.Background()).Result()
		if err != nil {
			t.Fatal(err)
		}
		if now = now.Add(-ahead); now.Before(before.Truncate(time.Microsecond)) || now.After(time.Now()) {
			t.Errorf("set %v ahead it shows %v too much", ahead, now.Sub(before))
		}
		inScript, err := server.Client.Eval(context.Background(), "return redis.call('TIME')[1]", nil).Int64()
		if err != nil {
			t.Fatal(err)
		}
		if off := time.Unix(inScript, 0).Sub(before) - ahead; off < -2*time.Second || off > time.Minute {
			t.Errorf("set %v ahead, scripts see %v too much", ahead, off)
		}
	}
}
