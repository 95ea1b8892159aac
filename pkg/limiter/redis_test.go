// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// The commands that the package documentation names are enough, and only on Tierlimit's keys.
func TestUserOfRedisNeedsNoMoreThanDocumented(t *testing.T) {
	server, _, c := start(t)
	ctx := context.Background()
	err := server.Client.Do(ctx, "ACL", "SETUSER", "tierlimit", "on", ">secret", "~ratelimit:*", "~*:ratelimit:*",
		"+evalsha", "+eval", "+time", "+zcard", "+zrange", "+zscore", "+zcount",
		"+unlink", "+zremrangebyrank", "+zremrangebyscore", "+zadd", "+expire", "+hmget", "+hlen", "+hset", "+hexists", "+pexpire").Err()
	if err != nil {
		t.Fatal(err)
	}
	s := newSlidingWindow(t, "redis://tierlimit:secret@"+server.Addr(), c)
	limits := []Limit{{400, time.Minute}, {1000, day}}
	subject := Subject{User: user, Tenant: "acme", Route: "export"}
	step := func(n int, allowed bool, what string) {
		t.Helper()
		for range n {
			if d, err := s.CheckAll(ctx, subject, limits...); err != nil || d.Allowed != allowed {
				t.Fatalf("%s: %+v, %v", what, d, err)
			}
		}
	}
	step(200, true, "filling") // EVAL, EVALSHA, ZCARD, ZCOUNT, ZADD, EXPIRE
	c.advance(30 * time.Second)
	step(200, true, "filling")
	step(1, false, "full") // ZRANGE
	c.advance(30 * time.Second)
	step(1, true, "half has left") // ZREMRANGEBYRANK
	c.advance(2 * time.Minute)
	step(1, true, "all have left") // UNLINK
	s.now = func() string { return "" }
	step(1, true, "the server's time") // TIME

	if _, err := s.Check(ctx, user, 5, time.Minute); err != nil {
		t.Errorf("a user without a tenant: %v", err)
	}
	if err := must(NewClient("redis://tierlimit:secret@"+server.Addr()))(t).Eval(ctx, "return redis.call('GET', KEYS[1])", []string{"other"}).Err(); err == nil ||
		!strings.Contains(err.Error(), "ACL") && !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("the account of this test may do more than documented: %v", err)
	}
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
