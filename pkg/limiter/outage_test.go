// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

func TestNextCheckWorksAfterRedisLostSomething(t *testing.T) {
	cases := map[string]struct {
		reason string
		lose   func(*redistest.Server)
		want   int64 // remaining of 10, after 3 requests before
	}{
		"ScriptFlush": {"The script is sent again; the log is untouched.",
			func(server *redistest.Server) { server.Client.ScriptFlush(context.Background()) }, 6},
		"FlushAll": {"The log begins anew.",
			func(server *redistest.Server) { server.Client.FlushAll(context.Background()) }, 9},
		"Restart": {"Script, data and connections are gone; the call finds that out by itself.",
			func(server *redistest.Server) { server.Stop(); server.Restart() }, 9},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server, s, _ := start(t)
			limit := Limit{10, time.Minute}
			admit(t, s, 3, limit)
			// As many connections as the pool keeps, so that the call does not meet the only bad one.
			admitTogether(t, 200, []*SlidingWindow{s}, Limit{MaxRequests, time.Hour})

			tc.lose(server)
			want := verdict{Allowed: true, Limit: limit, Remaining: tc.want}
			if got := check(t, s, limit); got != want {
				t.Errorf("%s got %+v, want %+v", tc.reason, got, want)
			}
		})
	}
}

func TestRedisDownIsAnErrorAtOnceAndPassesByItself(t *testing.T) {
	t.Parallel()
	server, s, _ := start(t)
	limit := Limit{10, time.Minute}
	admit(t, s, 1, limit)
	server.Stop()
	for i := range 30 {
		d, err := s.CheckAll(context.Background(), Subject{User: user}, limit)
		// Refused, not timed out: the call did not use up the minute that it had. Then not even tried.
		if refused := errors.Is(err, syscall.ECONNREFUSED); !refused && (i < tripAfter || !errors.Is(err, ErrCircuitOpen)) {
			t.Errorf("check %d while Redis is down: got %+v, %v, want that the connection is refused or, from the sixth on, the circuit open", i+1, d, err)
		}
		if i == tripAfter && !s.CircuitOpen() {
			t.Error("the circuit is not open")
		}
		if errors.Is(err, ErrReply) || errors.Is(err, ErrInvalid) || verdictOf(d) != (verdict{}) {
			t.Errorf("Redis is down: got %+v, %v", d, err)
		}
	}
	server.Restart()
	eventually(t, "a check is answered again", func() bool {
		d, err := s.CheckAll(context.Background(), Subject{User: user}, limit)
		return err == nil && d.Allowed
	})
}

// Nothing refuses the connection here: only the timeout ends the wait.
func TestFrozenRedisIsAnErrorWithinTheTimeout(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		options  Options
		deadline time.Duration // of the caller
		warm     bool          // connections exist before the freeze
	}{
		"DefaultTimeout":   {"A limiter has a timeout without being told.", Options{}, 0, true},
		"NewConnection":    {"Connecting is part of the timeout.", Options{}, 0, false},
		"OwnTimeout":       {"The timeout can be chosen.", Options{Timeout: 50 * time.Millisecond}, 0, true},
		"CallersDeadline":  {"The caller's deadline counts if it is sooner.", Options{Timeout: patience}, 50 * time.Millisecond, true},
		"CallerConnecting": {"The caller's deadline also ends connecting.", Options{Timeout: patience}, 50 * time.Millisecond, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			// Nothing but the timeout under test ends a call early.
			client := must(NewClient(server.URL() + "?read_timeout=2m&write_timeout=2m&dial_timeout=2m&pool_timeout=2m"))(t)
			t.Cleanup(func() { _ = client.Close() })
			s := must(NewSlidingWindow(client, tc.options))(t)
			limit := Limit{1000, time.Minute}
			if tc.warm {
				admit(t, s, 1, limit)
			}
			server.Freeze()
			var callers sync.WaitGroup
			for range 50 { // more than there are connections: waiting for one is part of the timeout
				callers.Go(func() {
					ctx := context.Background()
					if tc.deadline != 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, tc.deadline)
						defer cancel()
					}
					d, err := s.CheckAll(ctx, Subject{User: user}, limit)
					if err == nil || errors.Is(err, ErrReply) || verdictOf(d) != (verdict{}) {
						t.Errorf("%s got %+v, %v", tc.reason, d, err)
					}
					if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("%s got %v, want that a deadline was exceeded", tc.reason, err)
					}
				})
			}
			answered := make(chan struct{})
			go func() { callers.Wait(); close(answered) }()
			select {
			case <-answered: // while Redis is still frozen
			case <-time.After(patience / 2):
				t.Errorf("%s The callers wait for a frozen Redis for longer than %v", tc.reason, patience/2)
			}
			server.Thaw()
			<-answered
			eventually(t, "a check is answered again", func() bool {
				d, err := s.CheckAll(context.Background(), Subject{User: user}, limit)
				return err == nil && d.Allowed
			})
		})
	}
}

func TestEndedContextChargesNothing(t *testing.T) {
	server, s, _ := start(t)
	admit(t, s, 1, Limit{10, time.Minute})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	executed := commands(t, server, func() {
		for range 3 * tripAfter {
			d, err := s.Check(ctx, user, 10, time.Minute)
			if !errors.Is(err, context.Canceled) || errors.Is(err, ErrReply) || verdictOf(d) != (verdict{}) {
				t.Errorf("got %+v, %v", d, err)
			}
		}
	})
	if diff := cmp.Diff(map[string]int64{}, executed); diff != "" {
		t.Errorf("commands that Redis executed: -want +got:\n%s", diff)
	}
	if got, want := check(t, s, Limit{10, time.Minute}).Remaining, int64(8); got != want {
		t.Errorf("%d remaining, want %d", got, want)
	}
}

func TestErrorsOfRedisChargeNothing(t *testing.T) {
	cases := map[string]struct {
		reason string
		do     func(*redistest.Server)
		undo   func(*redistest.Server)
		want   string
	}{
		"WrongTypeInTheMinute": {
			reason: "Somebody else's key is not overwritten.",
			do: func(server *redistest.Server) {
				server.Client.Rename(context.Background(), key(time.Minute), "aside")
				server.Client.Set(context.Background(), key(time.Minute), "x", 0)
			},
			undo: func(server *redistest.Server) {
				server.Client.Rename(context.Background(), "aside", key(time.Minute))
			},
			want: "WRONGTYPE",
		},
		"WrongTypeInTheDay": {
			reason: "The minute was looked at, but not charged yet.",
			do: func(server *redistest.Server) {
				server.Client.Rename(context.Background(), key(day), "aside")
				server.Client.Set(context.Background(), key(day), "x", 0)
			},
			undo: func(server *redistest.Server) {
				server.Client.Rename(context.Background(), "aside", key(day))
			},
			want: "WRONGTYPE",
		},
		"OutOfMemory": {
			reason: "A Redis that is full can only be asked, not charged.",
			do:     func(server *redistest.Server) { server.Client.ConfigSet(context.Background(), "maxmemory", "1") },
			undo:   func(server *redistest.Server) { server.Client.ConfigSet(context.Background(), "maxmemory", "0") },
			want:   "OOM",
		},
		"NotEnoughReplicas": {
			reason: "A primary that has lost its replicas may be told to refuse writes.",
			do: func(server *redistest.Server) {
				server.Client.ConfigSet(context.Background(), "min-replicas-to-write", "1")
			},
			undo: func(server *redistest.Server) {
				server.Client.ConfigSet(context.Background(), "min-replicas-to-write", "0")
			},
			want: "NOREPLICAS",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server, s, _ := start(t)
			limits := []Limit{{10, time.Minute}, {10, day}}
			admit(t, s, 3, limits...)
			tc.do(server)
			d, err := s.CheckAll(context.Background(), Subject{User: user}, limits...)
			if err == nil || !strings.Contains(err.Error(), tc.want) || errors.Is(err, ErrReply) || verdictOf(d) != (verdict{}) {
				t.Errorf("%s got %+v, %v, want an error that says %s", tc.reason, d, err, tc.want)
			}
			tc.undo(server)
			for _, l := range limits {
				if got := card(t, server, key(l.Window)); got != 3 {
					t.Errorf("%s %d entries for %v, want 3", tc.reason, got, l.Window)
				}
			}
			admit(t, s, 1, limits...)
		})
	}
}
