// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// The commands that docs/redis.md names are enough, without any of them something is refused, and
// they are so only on Tierlimit's keys.
func TestUserOfRedisNeedsNoMoreThanDocumented(t *testing.T) {
	server := redistest.Start(t)
	rights := strings.Fields("+eval +evalsha +time +zcard +zrange +zscore +zcount +unlink +zremrangebyrank +zremrangebyscore +zadd +expire " +
		"+hmget +hlen +hset +hexists +pexpire")
	users := 0
	use := func(without string) error {
		users++
		name := fmt.Sprint("account", users)
		account := []any{"ACL", "SETUSER", name, "reset", "on", ">secret", "~*ratelimit:*"}
		for _, right := range rights {
			if right != without {
				account = append(account, right)
			}
		}
		must(server.Client.Do(context.Background(), account...).Result())(t)
		must(server.Client.ScriptFlush(context.Background()).Result())(t)
		return useEverything(t, newSlidingWindow(t, "redis://"+name+":secret@"+server.Addr(), newClock()), name)
	}
	if err := use(""); err != nil {
		t.Errorf("with all rights: %v", err)
	}
	for _, right := range rights {
		if err := use(right); err == nil {
			t.Errorf("%s is not needed", right)
		}
	}
	if err := must(NewClient("redis://account1:secret@"+server.Addr()))(t).Eval(context.Background(), "return redis.call('ZCARD', KEYS[1])", []string{"other"}).Err(); err == nil ||
		!strings.Contains(err.Error(), "ACL") && !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("the account of this test may do more than documented: %v", err)
	}
}

// useEverything makes Redis execute every command that a limiter may need.
func useEverything(t *testing.T, s *SlidingWindow, name string) error {
	t.Helper()
	c := newClock()
	s.now = c.now
	ctx, subject := context.Background(), Subject{User: name, Tenant: "acme", Route: "export"}
	limits := []Limit{{400, time.Minute}, {1000, day}}
	var failed error
	step := func(n int, allowed bool, what string) {
		t.Helper()
		for range n {
			d, err := s.CheckAll(ctx, subject, limits...)
			switch {
			case failed != nil:
			case err != nil:
				failed = fmt.Errorf("%s: %w", what, err)
			case d.Allowed != allowed:
				t.Fatalf("%s: %+v", what, d)
			}
		}
	}
	step(200, true, "filling") // EVAL, EVALSHA, HEXISTS, ZCARD, ZCOUNT, ZADD, EXPIRE
	c.advance(30 * time.Second)
	step(200, true, "filling") // HMGET
	step(1, false, "full")     // ZRANGE
	c.advance(30 * time.Second)
	step(1, true, "half has left") // ZREMRANGEBYRANK
	c.advance(2 * time.Minute)
	step(1, true, "all have left") // UNLINK
	limits = []Limit{{1, time.Minute}}
	if _, _, err := s.Grant(ctx, subject, 2, time.Hour); err != nil && failed == nil { // HSET, PEXPIRE
		failed = err
	}
	step(1, true, "granted") // HLEN
	c.advance(time.Minute)
	step(1, true, "few have left") // ZREMRANGEBYSCORE
	undo := repeat(s)
	step(1, true, "again") // ZSCORE
	undo()
	s.now = func() string { return "" }
	if _, err := s.Inspect(ctx, subject, 5, limits...); err != nil && failed == nil { // TIME
		failed = err
	}
	return failed
}

func TestWrongPasswordIsAnErrorThatDoesNotRepeatIt(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "right")
	s := newSlidingWindow(t, "redis://:wr0ngsecret@"+server.Addr(), nil)
	_, err := s.Check(context.Background(), user, 5, time.Minute)
	if err == nil || strings.Contains(err.Error(), "wr0ngsecret") || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("got %v", err)
	}
	s = newSlidingWindow(t, "redis://:right@"+server.Addr(), nil)
	if d, err := s.Check(context.Background(), user, 5, time.Minute); err != nil || !d.Allowed {
		t.Errorf("right password: %+v, %v", d, err)
	}
}

// An operator clears a user with DEL.
func TestDeletedKeyIsAFreshStart(t *testing.T) {
	server, s, _ := start(t)
	limit := Limit{2, time.Minute}
	admit(t, s, 2, limit)
	if d := check(t, s, limit); d.Allowed {
		t.Fatalf("the log is full: %+v", d)
	}
	server.Client.Del(context.Background(), "ratelimit:user_8421:60")
	if got, want := check(t, s, limit), (verdict{Allowed: true, Limit: limit, Remaining: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
