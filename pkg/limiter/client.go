// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// dialTimeout bounds one attempt to connect. A check gives up at its own deadline, which may be
// sooner; the attempt then goes on for the next one.
const dialTimeout = time.Second

// askTimeout bounds one question to a Sentinel or a node of a Cluster.
const askTimeout = time.Second

// maxIdle is after what time an idle connection is not used any more. Firewalls and load balancers
// forget one after some minutes, common ones after four, and tell nobody.
const maxIdle = 3 * time.Minute

// stateInterval is how old the client's picture of a Cluster may become. A primary that is away is
// noticed sooner.
const stateInterval = 5 * time.Second

// NewClient returns a client for the Redis at a URL of one of the forms
//
//	redis://[user:password@]host[:port][/database]
//	unix://[user:password@]/path
//	redis+sentinel://[user:password@]host[:port][,host[:port]...][/database]?master=NAME
//	redis+cluster://[user:password@]host[:port][,host[:port]...]
//
// with the settings that a check wants: deadlines are obeyed, and a lost connection is found by
// the next call, which tries again. It is a *redis.Client, or a *redis.ClusterClient for a Cluster.
// It does not connect yet.
//
// The hosts are those of the server, of the Sentinels, or of some nodes of the Cluster; the port is
// 6379 unless given, that of a Sentinel 26379. The account is that of the server; one for the
// Sentinels is in the query parameters sentinel_username and sentinel_password.
//
// With rediss://, rediss+sentinel:// and rediss+cluster:// every connection is TLS 1.2 or later, that
// to a Sentinel too. The query parameters tls_ca_file, tls_cert_file and tls_key_file name files in
// PEM: the authorities to believe instead of the system's, and the certificate and key to show. They
// are read now and again for each new connection, so that renewed ones hold without a restart; a file
// that cannot be used by then leaves the last good one in force. A certificate has to be for the host
// that is connected to, or for tls_server_name if given.
//
// The query parameters of go-redis's ParseURL, such as pool_size, are understood in every form. The
// error says what to write, and never repeats any part of the URL that could belong to a password,
// also when the password was not percent-encoded as it has to be. It may repeat the path of a file.
func NewClient(redisURL string) (redis.UniversalClient, error) {
	t, err := parseURL(redisURL)
	if err != nil {
		return nil, err
	}
	if err := t.prepare(); err != nil {
		return nil, err
	}
	switch t.topology {
	case sentinel:
		client := redis.NewFailoverClient(t.failoverOptions())
		client.AddHook(unknownMaster{})
		return client, nil
	case cluster:
		return redis.NewClusterClient(t.clusterOptions()), nil
	default:
		return redis.NewClient(t.options), nil
	}
}

// Addresses returns what may be shown of a URL that NewClient takes: its hosts with their ports,
// separated by commas, or the path of the socket. It is empty for any other URL.
func Addresses(redisURL string) string {
	t, err := parseURL(redisURL)
	if err != nil {
		return ""
	}
	return strings.Join(t.addresses, ",")
}

// ignoresDeadlines reports whether it is known of a client that a context does not end its calls.
func ignoresDeadlines(client redis.Scripter) bool {
	switch c := client.(type) {
	case *redis.Client:
		return !c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return !c.Options().ContextTimeoutEnabled
	}
	return false
}

// prepare completes the options that all forms have.
func (t *target) prepare() error {
	o := t.options
	o.ContextTimeoutEnabled = true
	if o.DialTimeout <= 0 { // not given in the URL
		o.DialTimeout = dialTimeout
	}
	// The deadline of the check decides, not the client's own timeouts, but for what the client asks
	// by itself: where the primaries are. A server that has stopped must not keep it from asking another.
	most := MaxTimeout
	if t.topology != single {
		most = askTimeout
	}
	for _, timeout := range []*time.Duration{&o.ReadTimeout, &o.WriteTimeout} {
		if *timeout == 0 { // not given in the URL
			*timeout = most
		}
	}
	if o.PoolTimeout == 0 {
		o.PoolTimeout = MaxTimeout
	}
	if o.ConnMaxIdleTime == 0 {
		o.ConnMaxIdleTime = maxIdle
	}
	if o.MaxRetries == 0 && t.topology != cluster {
		o.MaxRetries = -1 // the limiter repeats a call, and says so
	}
	o.DialerRetries = 1 // the call itself is repeated, within its deadline
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if t.tls == nil {
		return nil
	}
	source, err := newTLSSource(*t.tls)
	if err != nil {
		return err
	}
	o.TLSConfig = source.config() // for whoever looks; the dialer goes first and makes its own
	o.Dialer = source.dialer(o.DialTimeout)
	return nil
}

// failoverOptions is the target as the options of a client that asks Sentinels for the master. Only
// the master is asked: a replica lags behind, and cannot be charged.
func (t *target) failoverOptions() *redis.FailoverOptions {
	o := t.options
	return &redis.FailoverOptions{
		MasterName:              t.master,
		SentinelAddrs:           t.addresses,
		SentinelUsername:        t.sentinelUsername,
		SentinelPassword:        t.sentinelPassword,
		Username:                o.Username,
		Password:                o.Password,
		DB:                      o.DB,
		ClientName:              o.ClientName,
		Protocol:                o.Protocol,
		Dialer:                  o.Dialer,
		TLSConfig:               o.TLSConfig,
		MaxRetries:              o.MaxRetries,
		MinRetryBackoff:         o.MinRetryBackoff,
		MaxRetryBackoff:         o.MaxRetryBackoff,
		DialTimeout:             o.DialTimeout,
		DialerRetries:           o.DialerRetries,
		ReadTimeout:             o.ReadTimeout,
		WriteTimeout:            o.WriteTimeout,
		ContextTimeoutEnabled:   o.ContextTimeoutEnabled,
		PoolFIFO:                o.PoolFIFO,
		PoolSize:                o.PoolSize,
		PoolTimeout:             o.PoolTimeout,
		MaxConcurrentDials:      o.MaxConcurrentDials,
		MinIdleConns:            o.MinIdleConns,
		MaxIdleConns:            o.MaxIdleConns,
		MaxActiveConns:          o.MaxActiveConns,
		ConnMaxIdleTime:         o.ConnMaxIdleTime,
		ConnMaxLifetime:         o.ConnMaxLifetime,
		ConnMaxLifetimeJitter:   o.ConnMaxLifetimeJitter,
		PipelinePoolSize:        o.PipelinePoolSize,
		PipelineReadBufferSize:  o.PipelineReadBufferSize,
		PipelineWriteBufferSize: o.PipelineWriteBufferSize,
		DisableIdentity:         o.DisableIdentity,
	}
}

// clusterOptions is the target as the options of a client of a Cluster. Only primaries are asked:
// ReadOnly, RouteByLatency and RouteRandomly stay false. max_retries counts redirections too, since
// this client repeats a call by following them.
func (t *target) clusterOptions() *redis.ClusterOptions {
	o := t.options
	return &redis.ClusterOptions{
		Addrs:                      t.addresses,
		Username:                   o.Username,
		Password:                   o.Password,
		ClientName:                 o.ClientName,
		Protocol:                   o.Protocol,
		Dialer:                     o.Dialer,
		TLSConfig:                  o.TLSConfig,
		MaxRedirects:               o.MaxRetries,
		MinRetryBackoff:            o.MinRetryBackoff,
		MaxRetryBackoff:            o.MaxRetryBackoff,
		DialTimeout:                o.DialTimeout,
		DialerRetries:              o.DialerRetries,
		ReadTimeout:                o.ReadTimeout,
		WriteTimeout:               o.WriteTimeout,
		ContextTimeoutEnabled:      o.ContextTimeoutEnabled,
		PoolFIFO:                   o.PoolFIFO,
		PoolSize:                   o.PoolSize,
		PoolTimeout:                o.PoolTimeout,
		MaxConcurrentDials:         o.MaxConcurrentDials,
		MinIdleConns:               o.MinIdleConns,
		MaxIdleConns:               o.MaxIdleConns,
		MaxActiveConns:             o.MaxActiveConns,
		ConnMaxIdleTime:            o.ConnMaxIdleTime,
		ConnMaxLifetime:            o.ConnMaxLifetime,
		ConnMaxLifetimeJitter:      o.ConnMaxLifetimeJitter,
		PipelinePoolSize:           o.PipelinePoolSize,
		PipelineReadBufferSize:     o.PipelineReadBufferSize,
		PipelineWriteBufferSize:    o.PipelineWriteBufferSize,
		DisableIdentity:            o.DisableIdentity,
		ClusterStateReloadInterval: stateInterval,
		DisableRoutingPolicies:     true, // scripts go by their keys; no need to ask for a list of commands
		MaintNotificationsConfig:   o.MaintNotificationsConfig,
	}
}
