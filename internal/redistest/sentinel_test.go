// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestSentinelsReplaceThePrimary(t *testing.T) {
	cases := map[string]struct {
		reason             string
		password, sentinel string
		args               []string
		outage, recovery   func(s *Sentinel)
	}{
		"Killed": {
			reason:   "A crashed primary comes back as a replica.",
			outage:   (*Sentinel).KillPrimary,
			recovery: (*Sentinel).RestartKilled,
		},
		"FrozenWithPasswords": {
			reason:   "A primary that comes back to itself is told that it is one no more.",
			password: "secret",
			sentinel: "another",
			args:     []string{"--requirepass", "secret"},
			outage:   (*Sentinel).FreezePrimary,
			recovery: func(s *Sentinel) {
				s.WaitFailover()
				s.ThawPrimary()
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			s := StartSentinelWithPassword(t, tc.sentinel, tc.args...)
			client := redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: SentinelMaster, SentinelAddrs: s.Addrs(),
				Password: tc.password, SentinelPassword: tc.sentinel,
				DialTimeout: time.Second, ReadTimeout: time.Second,
			})
			defer client.Close()
			first := s.Primary()
			if err := s.PrimaryClient().Set(ctx, "a", "before", 0).Err(); err != nil {
				t.Fatal(err)
			}
			s.WaitReplicated()
			for _, server := range s.Servers {
				wantValue(t, server.Client, "a", "before")
			}
			w := startWriter(t, client, "n")

			tc.outage(s)
			s.WaitFailover()
			if got := s.Primary(); got == first {
				t.Errorf("%s The primary is still %s", tc.reason, got)
			}
			if info := s.PrimaryClient().Info(ctx, "replication").Val(); !strings.Contains(info, "connected_slaves:1\r\n") {
				t.Errorf("%s The other replica has not followed:\n%s", tc.reason, info)
			}
			w.goesOn(t)
			wantValue(t, s.PrimaryClient(), "a", "before")

			second := s.Primary()
			tc.recovery(s)
			s.WaitFailover() // the first one is a replica now
			if got := s.Primary(); got != second {
				t.Errorf("%s The primary is %s, want still %s", tc.reason, got, second)
			}
			w.end()
			s.WaitReplicated()
			n := s.PrimaryClient().Get(ctx, "n").Val()
			for _, server := range s.Servers {
				wantValue(t, server.Client, "n", n)
			}
		})
	}
}

func TestSentinelURL(t *testing.T) {
	s := &Sentinel{Sentinels: []*Server{{addr: "127.0.0.1:1"}, {addr: "127.0.0.1:2"}, {addr: "127.0.0.1:3"}}}
	if got, want := s.URL(), "redis+sentinel://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/?master=mymaster"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
