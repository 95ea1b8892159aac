// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// TestFirstSuccess is the README's first command and its six requests.
func TestFirstSuccess(t *testing.T) {
	p := start(t, nil, "--tiers", "config/samples")
	if got := p.statuses(5, "tier=free&user=alice"); !slices.Equal(got, []int{200, 200, 200, 200, 200}) {
		t.Fatalf("the first five: %v", got)
	}
	sixth := raw(t, p, "/check?tier=free&user=alice")
	for _, line := range []string{"HTTP/1.1 429 Too Many Requests", "Retry-After: 60", "X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Window: minute"} {
		if !strings.Contains(sixth, line+"\r\n") {
			t.Errorf("the sixth has no line %q:\n%s", line, sixth)
		}
	}
	if nginx := raw(t, p, "/check/nginx?tier=free&user=alice"); !strings.HasPrefix(nginx, "HTTP/1.1 403 ") || !strings.Contains(nginx, "X-Tierlimit-Status: 429\r\n") {
		t.Errorf("nginx form:\n%s", nginx)
	}
	if !strings.Contains(p.log.String(), "NO REDIS GIVEN") {
		t.Errorf("no warning of the embedded store:\n%s", p.log)
	}
	if metrics := p.get("http://" + p.metrics + "/metrics").body; !strings.Contains(metrics, `tierlimit_checks_total{outcome="admitted",tier="free",window="minute"} 5`) {
		t.Errorf("metrics:\n%s", metrics)
	}
	if err := p.stop(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

// raw returns an answer as it comes over the connection.
func raw(t *testing.T, p *process, target string) string {
	t.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(p.check, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", target)
	var answer strings.Builder
	if _, err := bufio.NewReader(connection).WriteTo(&answer); err != nil {
		t.Fatal(err)
	}
	return answer.String()
}

// TestLogInRedis looks at what checks leave in Redis.
func TestLogInRedis(t *testing.T) {
	server := redistest.Start(t)
	dir := t.TempDir()
	writeTier(t, dir, "free", "{perMinute: 2, perDay: 3}")
	p := start(t, []string{"REDIS_URL=" + server.URL()}, "--deny-memory=0", "--tiers", dir)
	ctx := t.Context()
	minute, day := "ratelimit:user_8421:60", "ratelimit:user_8421:86400"

	p.statuses(2, "tier=free&user=user_8421")
	if got := server.Client.ZCard(ctx, minute).Val(); got != 2 {
		t.Errorf("%d entries in %s", got, minute)
	}
	for key, window := range map[string]time.Duration{minute: time.Minute, day: 24 * time.Hour} {
		if ttl := server.Client.PTTL(ctx, key).Val(); ttl <= window || ttl > window+time.Second {
			t.Errorf("%s lives for %v more", key, ttl)
		}
	}
	entries := server.Client.ZRangeWithScores(ctx, minute, 0, -1).Val()
	if at := time.UnixMicro(int64(entries[1].Score)); time.Since(at).Abs() > time.Minute {
		t.Errorf("the newest entry is of %v", at)
	}

	// A rejection by the minute leaves the day alone, and no key lives longer.
	server.Client.Expire(ctx, minute, 50*time.Second)
	dumped, ttl := server.Client.Dump(ctx, day).Val(), server.Client.PTTL(ctx, day).Val()
	if got := p.ask("tier=free&user=user_8421"); got.status != 429 || got.header.Get("X-RateLimit-Window") != "minute" {
		t.Errorf("the third: %v", got)
	}
	if server.Client.Dump(ctx, day).Val() != dumped || server.Client.PTTL(ctx, day).Val() > ttl || server.Client.PTTL(ctx, minute).Val() > 50*time.Second {
		t.Error("a rejection has written something")
	}

	// A rejection by the day does not charge the minute.
	server.Client.Del(ctx, minute)
	p.statuses(1, "tier=free&user=user_8421")
	if got := p.ask("tier=free&user=user_8421"); got.status != 429 || got.header.Get("X-RateLimit-Window") != "day" {
		t.Errorf("with the day used up: %v", got)
	}
	if got := server.Client.ZCard(ctx, minute).Val(); got != 1 {
		t.Errorf("%d entries in the minute after a rejection by the day", got)
	}

	// DEL is how an operator lets somebody through.
	server.Client.Del(ctx, minute, day)
	if got := p.ask("tier=free&user=user_8421").status; got != 200 {
		t.Errorf("after DEL: %d", got)
	}
}

// TestRetryAfterIsHonest lowers a limit below the count, and waits exactly as told.
func TestRetryAfterIsHonest(t *testing.T) {
	server := redistest.Start(t)
	dir := t.TempDir()
	writeTier(t, dir, "free", "{perMinute: 5}")
	p := start(t, []string{"REDIS_URL=" + server.URL()}, "--tiers", dir)
	p.statuses(5, "user=u")
	// As if the five had come 58, 57, 20, 10 and 0 seconds ago.
	key := "ratelimit:u:60"
	for i, age := range []time.Duration{58, 57, 20, 10, 0} {
		member := server.Client.ZRange(t.Context(), key, int64(i), int64(i)).Val()[0]
		server.Client.ZAdd(t.Context(), key, redis.Z{Member: member, Score: float64(time.Now().Add(-age * time.Second).UnixMicro())})
	}
	if got := p.ask("user=u").header.Get("Retry-After"); got != "2" {
		t.Errorf("with the log exactly full: Retry-After %s", got)
	}
	writeTier(t, dir, "free", "{perMinute: 4}")
	eventually(t, "the lowered limit holds", func() bool { return p.ask("user=u").header.Get("X-RateLimit-Limit") == "4" })
	wait, err := strconv.Atoi(p.ask("user=u").header.Get("Retry-After"))
	if err != nil || wait < 1 || wait > 3 {
		t.Fatalf("after the limit was lowered to 4: Retry-After %d, %v", wait, err)
	}
	time.Sleep(time.Duration(wait) * time.Second)
	if got := p.ask("user=u"); got.status != 200 {
		t.Errorf("after waiting as told: %v", got)
	}
}

// TestTwoReplicasAdmitExactly has 2,000 checks of one user at once, over two replicas.
func TestTwoReplicasAdmitExactly(t *testing.T) {
	server := redistest.Start(t)
	dir := t.TempDir()
	writeTier(t, dir, "free", "{perMinute: 10}")
	env := []string{"REDIS_URL=" + server.URL()}
	a, b := start(t, env, "--tiers", dir, "--redis-timeout", "20s"), start(t, env, "--tiers", dir, "--redis-timeout", "20s")
	for user, n := range map[string]int{"few": 20, "many": 2000} {
		if got := askTogether(t, n, "user="+user, a, b); got[200] != 10 || got[429] != n-10 {
			t.Errorf("of %d: %v", n, got)
		}
	}
}

func TestSubjectsDoNotShareABudget(t *testing.T) {
	server := redistest.Start(t)
	dir := t.TempDir()
	writeTier(t, dir, "free", "{perMinute: 1}")
	p := start(t, []string{"REDIS_URL=" + server.URL()}, "--tiers", dir)
	for _, query := range []string{
		"user=a", "user=a%3Ab", "user=a%253Ab", "user=%7Ba%7D", "user=a%20b", "user=a++b", "user=%C3%A9", "user=e%CC%81", "user=%FF", "user=*",
		"tenant=a&user=b", "tenant=b&user=a", "route=a&user=b", "tenant=ratelimit&user=a", "route=ratelimit&user=a", "tenant=a&route=b&user=c",
		"tenant=a%3Aratelimit&user=c", "route=a%3Ab&user=c", "user=a%3Ab%3A60", "user=A", "user=" + strings.Repeat("a", 1000), "user=" + strings.Repeat("a", 1001),
		"user=127.0.0.1", "user=%25ip.127.0.0.1", "user=ip%3A127.0.0.1", "route=a", "tenant=a", "",
	} {
		if got := p.statuses(2, query); !slices.Equal(got, []int{200, 429}) {
			t.Errorf("%q: %v, want a budget of its own", query, got)
		}
	}
}

func TestHotReload(t *testing.T) {
	dir := t.TempDir()
	writeTier(t, dir, "free", "{perMinute: 5}")
	writeTier(t, dir, "pro", "{perMinute: 60}")
	p := start(t, nil, "--tiers", dir)
	limit := func(tier string) string { return p.ask("tier=" + tier).header.Get("X-RateLimit-Limit") }

	writeTier(t, dir, "free", "{perMinute: 7}")
	eventually(t, "a changed file holds", func() bool { return limit("free") == "7" })

	broken := filepath.Join(dir, "free.yaml")
	if err := os.WriteFile(broken, []byte("apiVersion: tierlimit.dev/v1alpha1\nkind: RateLimitTier\nmetadata: {name: free}\nspec:\n  requests:\n    perMinute: -1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	writeTier(t, dir, "pro", "{perMinute: 61}")
	eventually(t, "the other file's change holds", func() bool { return limit("pro") == "61" })
	if got := limit("free"); got != "7" {
		t.Errorf("the broken file's last good limit was 7, in force is %s", got)
	}
	if !strings.Contains(p.log.String(), broken+":6: spec.requests.perMinute") {
		t.Errorf("file and line are not named:\n%s", p.log)
	}
	if err := os.Remove(filepath.Join(dir, "pro.yaml")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a deleted tier falls back to the default tier", func() bool { return p.ask("tier=pro").header.Get("X-Tierlimit-Unknown-Tier") == "pro" })
}

// TestKillSwitchWithoutRedis needs no Redis at any time, not even at the start.
func TestKillSwitchWithoutRedis(t *testing.T) {
	server := redistest.Start(t)
	server.Stop()
	p := start(t, []string{"REDIS_URL=" + server.URL(), "RATE_LIMIT_DISABLED=true"}, "--tiers", "config/samples")
	for range 10 {
		got := p.ask("tier=free&user=u")
		if got.status != 200 || got.header.Get("X-RateLimit-Remaining") != "5" || got.header.Get("X-Tierlimit-Enforcement") != "disabled" || got.header.Get("Retry-After") != "" {
			t.Fatalf("%v", got)
		}
	}
	if metrics := p.get("http://" + p.metrics + "/metrics").body; !strings.Contains(metrics, `tierlimit_enforcement_disabled{scope="global",tier=""} 1`) {
		t.Error("the gauge does not show it")
	}
	if !strings.Contains(p.log.String(), "RATE_LIMIT_DISABLED is set") {
		t.Errorf("the log does not say so:\n%s", p.log)
	}
}

// writeTier writes a tier into its own file, as an editor does that replaces the file.
func writeTier(t *testing.T, dir, name, requests string) {
	t.Helper()
	content := "apiVersion: tierlimit.dev/v1alpha1\nkind: RateLimitTier\nmetadata:\n  name: " + name + "\nspec:\n  requests: " + requests + "\n"
	temporary := filepath.Join(dir, "."+name)
	if err := os.WriteFile(temporary, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(dir, name+".yaml")); err != nil {
		t.Fatal(err)
	}
}
