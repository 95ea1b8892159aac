// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Query parameters beside those of go-redis. The last is one of go-redis's.
const (
	paramMaster           = "master"
	paramSentinelUsername = "sentinel_username"
	paramSentinelPassword = "sentinel_password"
	paramCAFile           = "tls_ca_file"
	paramCertFile         = "tls_cert_file"
	paramKeyFile          = "tls_key_file"
	paramServerName       = "tls_server_name"
	paramSkipVerify       = "skip_verify"
)

const (
	// maxConnections is more than any Redis accepts.
	maxConnections = 100_000
	// maxBuffer is the largest buffer of a connection, in bytes.
	maxBuffer = 64 << 20
)

// masterName is what Sentinel takes for the name of a master.
var masterName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// parseQuery takes our own parameters out of the query and leaves the rest to go-redis.
func (t *target) parseQuery(u *url.URL) error {
	// A '+' is a '+', as in the rest of the URL, and not a blank: passwords contain it.
	query, err := url.ParseQuery(strings.ReplaceAll(u.RawQuery, "+", "%2B"))
	if err != nil {
		return t.expected("a query parameter has a ';', or a '%' without two digits: percent-encode them")
	}
	skipVerify := query.Has(paramSkipVerify)
	var settings tlsSettings
	if err := t.take(query, &settings); err != nil {
		return err
	}
	u.RawQuery = query.Encode()
	if t.options, err = redis.ParseURL(u.String()); err != nil {
		return withoutValue(err)
	}
	t.options.Addr = t.addresses[0]
	if t.options.DB < 0 {
		return t.expected("the database number is negative")
	}
	if t.form.tls {
		settings.skipVerify = skipVerify && t.options.TLSConfig.InsecureSkipVerify
		t.tls = &settings
		if err := settings.validate(); err != nil {
			return err
		}
	}
	if err := t.validateSentinel(); err != nil {
		return err
	}
	return validatePool(t.options)
}

// take removes our own parameters from the query, and refuses those that the form does not have.
func (t *target) take(query url.Values, settings *tlsSettings) error {
	for _, p := range []struct {
		name    string
		belongs bool
		needs   string
		value   *string // nil leaves it to go-redis
	}{
		{paramMaster, t.topology == sentinel, "redis+sentinel:// or rediss+sentinel://", &t.master},
		{paramSentinelUsername, t.topology == sentinel, "redis+sentinel:// or rediss+sentinel://", &t.sentinelUsername},
		{paramSentinelPassword, t.topology == sentinel, "redis+sentinel:// or rediss+sentinel://", &t.sentinelPassword},
		{paramCAFile, t.form.tls, "rediss", &settings.caFile},
		{paramCertFile, t.form.tls, "rediss", &settings.certFile},
		{paramKeyFile, t.form.tls, "rediss", &settings.keyFile},
		{paramServerName, t.form.tls, "rediss", &settings.serverName},
		{paramSkipVerify, t.form.tls, "rediss", nil},
		{"db", t.topology != cluster, "something else than redis+cluster, since Redis Cluster has database 0 only", nil},
	} {
		values := query[p.name]
		switch {
		case len(values) == 0:
			continue
		case !p.belongs:
			return fmt.Errorf("the query parameter %s needs a URL that begins with %s", p.name, p.needs)
		case p.value == nil:
			continue
		case len(values) > 1:
			return fmt.Errorf("the query parameter %s is given more than once", p.name)
		case values[0] == "":
			return fmt.Errorf("the query parameter %s is empty: give it a value or leave it out", p.name)
		}
		*p.value = values[0]
		query.Del(p.name)
	}
	return nil
}

func (t *target) validateSentinel() error {
	switch {
	case t.topology != sentinel:
		return nil
	case t.master == "":
		return t.expected("the query parameter " + paramMaster + " is missing: give the name by which the Sentinels know the master, often mymaster")
	case !masterName.MatchString(t.master):
		return t.expected("the query parameter " + paramMaster + " is not a name that Sentinel takes: letters, digits, '.', '_' and '-'")
	case t.sentinelUsername != "" && t.sentinelPassword == "":
		return fmt.Errorf("the query parameter %s has no effect without %s", paramSentinelUsername, paramSentinelPassword)
	}
	return nil
}

func (s tlsSettings) validate() error {
	switch {
	case s.certFile != "" && s.keyFile == "":
		return fmt.Errorf("%s without %s: give both, the certificate and its key", paramCertFile, paramKeyFile)
	case s.certFile == "" && s.keyFile != "":
		return fmt.Errorf("%s without %s: give both, the certificate and its key", paramKeyFile, paramCertFile)
	case s.skipVerify && (s.caFile != "" || s.serverName != ""):
		return fmt.Errorf("%s and %s have no effect with %s: leave it or them out", paramCAFile, paramServerName, paramSkipVerify)
	}
	return nil
}

// withoutValue shortens an error about the query parameters, such as "redis: invalid pool_size
// number: strconv.Atoi: ...", to what repeats neither a value nor an unknown name: either may be
// the rest of a password.
func withoutValue(err error) error {
	words := strings.SplitN(err.Error(), ": ", 3)
	if len(words) < 3 || words[1] == "unexpected option" {
		return errors.New("unknown query parameters; known are those of go-redis, such as pool_size, " +
			"those of TLS (tls_ca_file, tls_cert_file, tls_key_file, tls_server_name) and of Sentinel (master, sentinel_username, sentinel_password)")
	}
	return errors.New(words[0] + ": " + words[1])
}

// maxRetries is more than fit into any timeout.
const maxRetries = 100

// validatePool refuses what makes a new client or connection panic, or send nothing.
func validatePool(o *redis.Options) error {
	for _, p := range []struct {
		name           string
		n, least, most int
	}{
		{"max_retries", o.MaxRetries, -1, maxRetries}, // -1 switches them off
		{"pool_size", o.PoolSize, 0, maxConnections},
		{"min_idle_conns", o.MinIdleConns, 0, maxConnections},
		{"max_idle_conns", o.MaxIdleConns, 0, maxConnections},
		{"max_active_conns", o.MaxActiveConns, 0, maxConnections},
		{"max_concurrent_dials", o.MaxConcurrentDials, 0, maxConnections},
		{"pipeline_pool_size", o.PipelinePoolSize, -1, maxConnections}, // -1 switches it off
		{"pipeline_read_buffer_size", o.PipelineReadBufferSize, 0, maxBuffer},
		{"pipeline_write_buffer_size", o.PipelineWriteBufferSize, 0, maxBuffer},
	} {
		if p.n < p.least || p.n > p.most {
			return fmt.Errorf("%s is outside %d to %d", p.name, p.least, p.most)
		}
	}
	return nil
}
