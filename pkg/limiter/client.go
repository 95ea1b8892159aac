// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// dialTimeout bounds one attempt to connect. A check gives up at its own deadline, which may be
// sooner; the attempt then goes on for the next one.
const dialTimeout = time.Second

// maxConnections is more than any Redis accepts.
const maxConnections = 100_000

// NewClient returns a client for the Redis at a URL of the form
//
//	redis://[user:password@]host[:port][/database]     (rediss:// for TLS, unix:// for a socket)
//
// with the settings that a check wants: deadlines are obeyed, and a lost connection is found by
// the next call, which tries again. It does not connect yet. The query parameters of go-redis's
// ParseURL, such as pool_size, are understood. The error never repeats any part of the URL that
// could belong to a password, also when the password was not percent-encoded as it has to be.
func NewClient(redisURL string) (*redis.Client, error) {
	options, err := parseURL(redisURL)
	if err != nil {
		return nil, err
	}
	options.ContextTimeoutEnabled = true
	if options.DialTimeout <= 0 { // not given in the URL
		options.DialTimeout = dialTimeout
	}
	// The deadline of the check decides, not the client's own timeouts.
	for _, timeout := range []*time.Duration{&options.ReadTimeout, &options.WriteTimeout, &options.PoolTimeout} {
		if *timeout == 0 { // not given in the URL
			*timeout = MaxTimeout
		}
	}
	options.DialerRetries = 1 // the call itself is repeated, within its deadline
	options.DisableIdentity = true
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(options), nil
}

func parseURL(redisURL string) (*redis.Options, error) {
	const (
		form   = "redis://[user:password@]host[:port][/database]"
		encode = "; in a password, percent-encode '/', '?', '#', '@', ':' and '%'"
	)
	u, err := url.Parse(redisURL)
	if err != nil || u.Opaque != "" {
		return nil, errors.New("not a URL of the form " + form + encode)
	}
	if !slices.Contains([]string{"redis", "rediss", "unix"}, u.Scheme) {
		return nil, errors.New("the URL does not begin with redis://, rediss:// or unix://; expected " + form)
	}
	// An unencoded '/', '?' or '#' ends the host part early, and the rest of the password is then
	// in what follows.
	switch database := strings.Trim(u.Path, "/"); {
	case u.Fragment != "" || strings.Contains(u.RawQuery, "@"):
		return nil, errors.New("a '#' or '@' where none can be; expected " + form + encode)
	case u.Scheme != "unix" && u.Hostname() == "":
		return nil, errors.New("no host; expected " + form + encode)
	case strings.Contains(u.Hostname(), ":") && !strings.HasPrefix(u.Host, "["):
		return nil, errors.New("more than one ':' in the host, or the '@' before it is missing; expected " + form + encode)
	case u.Port() != "" && !validPort(u.Port()):
		return nil, errors.New("the port is not a number up to 65535; expected " + form + encode)
	case u.Scheme == "unix" && u.Host != "":
		return nil, errors.New("the URL of a socket names a host; expected unix://[user:password@]/path" + encode)
	case u.Scheme != "unix" && database != "":
		if _, err := strconv.ParseUint(database, 10, 31); err != nil {
			return nil, errors.New("what follows the host is not a database number; expected " + form + encode)
		}
	}
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		return nil, withoutValue(err)
	}
	return options, validatePool(options)
}

func validPort(port string) bool {
	_, err := strconv.ParseUint(port, 10, 16)
	return err == nil
}

// withoutValue shortens an error about the query parameters, such as "redis: invalid pool_size
// number: strconv.Atoi: ...", to what repeats neither a value nor an unknown name: either may be
// the rest of a password.
func withoutValue(err error) error {
	words := strings.SplitN(err.Error(), ": ", 3)
	if len(words) < 3 {
		return errors.New("unknown query parameters; known are those of go-redis, such as pool_size")
	}
	return errors.New(words[0] + ": " + words[1])
}

// validatePool refuses what makes redis.NewClient panic.
func validatePool(o *redis.Options) error {
	for name, n := range map[string]int{
		"pool_size":            o.PoolSize,
		"min_idle_conns":       o.MinIdleConns,
		"max_idle_conns":       o.MaxIdleConns,
		"max_active_conns":     o.MaxActiveConns,
		"max_concurrent_dials": o.MaxConcurrentDials,
	} {
		if n < 0 || n > maxConnections {
			return fmt.Errorf("%s is %d, outside 0 to %d", name, n, maxConnections)
		}
	}
	return nil
}
