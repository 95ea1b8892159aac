// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

func TestNewClient(t *testing.T) {
	cases := map[string]struct {
		reason, url                   string
		network, addr, user, password string
		db                            int
		tls                           bool
	}{
		"Short":       {"The port has a default.", "redis://redis", "tcp", "redis:6379", "", "", 0, false},
		"Full":        {"Every part is used.", "redis://u:p@redis:7000/3", "tcp", "redis:7000", "u", "p", 3, false},
		"Password":    {"An account without a name.", "redis://:p@redis", "tcp", "redis:6379", "", "p", 0, false},
		"Encoded":     {"A percent-encoded password is decoded.", "redis://:a%2Fb%3Fc%23d%40e%3Af%25@redis", "tcp", "redis:6379", "", "a/b?c#d@e:f%", 0, false},
		"TLS":         {"rediss is TLS.", "rediss://redis:6380", "tcp", "redis:6380", "", "", 0, true},
		"Socket":      {"unix is a socket.", "unix:///run/redis.sock", "unix", "/run/redis.sock", "", "", 0, false},
		"SocketAuth":  {"Also with an account.", "unix://u:p@/run/redis.sock?db=2", "unix", "/run/redis.sock", "u", "p", 2, false},
		"IPv6":        {"An address in brackets.", "redis://[::1]:7000", "tcp", "[::1]:7000", "", "", 0, false},
		"TrailingBar": {"A slash without a database is the default.", "redis://redis/", "tcp", "redis:6379", "", "", 0, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client, err := NewClient(tc.url)
			if err != nil {
				t.Fatalf("%s %v", tc.reason, err)
			}
			defer client.Close()
			o := client.(*redis.Client).Options()
			if o.Network != tc.network || o.Addr != tc.addr || o.Username != tc.user || o.Password != tc.password || o.DB != tc.db || (o.TLSConfig != nil) != tc.tls {
				t.Errorf("%s got %s %s %q:%q db %d tls %v", tc.reason, o.Network, o.Addr, o.Username, o.Password, o.DB, o.TLSConfig != nil)
			}
			if !o.ContextTimeoutEnabled {
				t.Errorf("the client ignores deadlines")
			}
		})
	}
}

func TestNewClientUnderstandsQueryParameters(t *testing.T) {
	client := must(NewClient("redis://redis?pool_size=7&dial_timeout=3s&max_retries=1"))(t)
	defer client.Close()
	if o := client.(*redis.Client).Options(); o.PoolSize != 7 || o.DialTimeout != 3*time.Second || o.MaxRetries != 1 {
		t.Errorf("got pool size %d, dial timeout %v, retries %d", o.PoolSize, o.DialTimeout, o.MaxRetries)
	}
}

// secrets are the pieces of the passwords in URLs that are refused; nothing else in an error looks
// like them.
var secrets = []string{"hunter", "zwei", "123", "456"}

func TestNewClientRefusesAndKeepsThePasswordToItself(t *testing.T) {
	cases := map[string]struct{ reason, url string }{
		"Empty":              {"Nothing is not a URL.", ""},
		"NoScheme":           {"A host alone is not a URL.", "redis:6379"},
		"OtherScheme":        {"Another scheme is not Redis.", "http://:hunter@redis"},
		"NoSlashes":          {"A scheme without slashes has no host.", "redis:hunter@redis"},
		"BareHostAndPort":    {"A host and a port without a scheme.", "10.0.0.1:6379"},
		"Slash":              {"An unencoded slash ends the host.", "redis://:hunter/zwei@redis"},
		"SlashAfterNumber":   {"The number looks like a port.", "redis://:123/zwei@redis:6379/0"},
		"SlashBetween":       {"Numbers look like a port and a database.", "redis://:123/456@redis"},
		"Question":           {"An unencoded '?' ends the host.", "redis://:hunter?zwei@redis"},
		"QuestionAfterPort":  {"The number looks like a port, the rest like a parameter.", "redis://:123?zwei@redis"},
		"QuestionParameter":  {"The rest even looks like one with a value.", "redis://:123?pool_size=zwei@redis"},
		"QuestionAfterAt":    {"What precedes looks like an account.", "redis://:hunter@456?zwei@redis"},
		"Hash":               {"An unencoded '#' ends everything.", "redis://:hunter#zwei@redis"},
		"HashAfterPort":      {"The number looks like a port.", "redis://:123#zwei@redis"},
		"HashAfterAt":        {"What precedes looks like an account.", "redis://:hunter@456#zwei"},
		"Percent":            {"A '%' without two digits.", "redis://:hunter%zwei@redis"},
		"Blank":              {"A blank in the password.", "redis://:hunter zwei@redis"},
		"Bracket":            {"A bracket in the password.", "redis://:hunter[zwei@redis"},
		"ControlCharacter":   {"A line end, as from a file.", "redis://:hunter@redis\n"},
		"PortIsText":         {"Without '@' the password looks like a port.", "redis://redis:hunter"},
		"AtForgotten":        {"Without '@' the password looks like part of the host.", "redis://:hunter10.0.0.1:6379"},
		"AtForgottenUser":    {"The same with an account.", "redis://user:hunter:6379"},
		"NoHost":             {"Without a host the password may look like a port.", "redis://:123"},
		"UnknownNames":       {"The rest of a password looks like parameters.", "redis://user:12?hunter&zwei"},
		"SocketSlash":        {"An unencoded slash in the URL of a socket.", "unix://:123/zwei@/run/redis.sock"},
		"SocketSlashText":    {"An unencoded slash in the URL of a socket.", "unix://:hunter/zwei@/run/redis.sock"},
		"SocketHost":         {"A socket has no host.", "unix://redis/run/redis.sock"},
		"SocketNoPath":       {"A socket has a path.", "unix://:hunter@"},
		"DatabaseIsText":     {"A database is a number.", "redis://:hunter@redis/main"},
		"DatabaseNegative":   {"A database is not negative.", "redis://:hunter@redis/-1"},
		"TwoDatabases":       {"There is one database.", "redis://:hunter@redis/1/2"},
		"UnknownParameter":   {"A misspelt parameter is not ignored.", "redis://:hunter@redis?poolsize=7"},
		"NegativePool":       {"A pool cannot be negative.", "redis://:hunter@redis?pool_size=-1"},
		"NoAttempt":          {"With less than no repeat nothing is sent.", "redis://:hunter@redis?max_retries=-2"},
		"HugePool":           {"Nor larger than any server allows.", "redis://:hunter@redis?pool_size=9999999999"},
		"ParameterNotNumber": {"Nor is a bad value.", "redis://:hunter@redis?pool_size=many"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { refused(t, tc.reason, tc.url) })
		rest, tcp := strings.CutPrefix(tc.url, "redis://")
		if !tcp {
			continue
		}
		// What is wrong for a single server is wrong for several.
		for _, form := range []string{"rediss://", "redis+cluster://", "rediss+cluster://", "redis+sentinel://", "rediss+sentinel://"} {
			url := form + rest
			if strings.Contains(form, "sentinel") { // nothing but the mistake is to be wrong
				separator := "?"
				if strings.Contains(url, "?") {
					separator = "&"
				}
				url += separator + "master=m"
			}
			t.Run(form+name, func(t *testing.T) { refused(t, tc.reason, url) })
		}
	}
}

// refused expects an error that repeats none of the secrets.
func refused(t *testing.T, reason, url string) {
	t.Helper()
	client, err := NewClient(url)
	if err == nil {
		_ = client.Close()
		t.Fatalf("%s %q was taken: %s", reason, url, Addresses(url))
	}
	if shown := Addresses(url); shown != "" {
		t.Errorf("%s Addresses shows %q of a URL that is not taken", reason, shown)
	}
	for _, secret := range secrets {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s The error repeats %q: %v", reason, secret, err)
		}
	}
}

func TestNewSlidingWindowRefusesAClientThatIgnoresDeadlines(t *testing.T) {
	server := redistest.Start(t)
	options := &redis.Options{Addr: server.Addr()}
	deaf := redis.NewClient(options)
	defer deaf.Close()
	if _, err := NewSlidingWindow(deaf, Options{}); err == nil || !strings.Contains(err.Error(), "ContextTimeoutEnabled") {
		t.Errorf("got %v, want an error that names the option to set", err)
	}
	deafCluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}})
	defer deafCluster.Close()
	if _, err := NewSlidingWindow(deafCluster, Options{}); err == nil || !strings.Contains(err.Error(), "ContextTimeoutEnabled") {
		t.Errorf("of a Cluster: got %v, want an error that names the option to set", err)
	}
	options.ContextTimeoutEnabled = true
	own := redis.NewClient(options)
	defer own.Close()
	s := must(NewSlidingWindow(own, Options{Timeout: patience}))(t)
	if d, err := s.Check(context.Background(), user, 5, time.Minute); err != nil || !d.Allowed {
		t.Errorf("a client of one's own: %+v, %v", d, err)
	}
	if _, err := NewSlidingWindow(own, Options{Timeout: -1}); err == nil {
		t.Error("a negative timeout was taken")
	}
	if s := must(NewSlidingWindow(own, Options{}))(t); s.timeout != DefaultTimeout {
		t.Errorf("timeout %v, want %v", s.timeout, DefaultTimeout)
	}
}
