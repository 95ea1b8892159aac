// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"golang.org/x/net/http/httpguts"

	"github.com/tierlimit/tierlimit/internal/identity"
)

// identityOptions say who is believed about who is calling.
type identityOptions struct {
	sources string
	hashKey string // IDENTITY_HASH_KEY
	jwt     identity.JWTConfig
	auth    identity.ServiceConfig
}

func (o *identityOptions) flags(fs *pflag.FlagSet) {
	fs.StringVar(&o.sources, "identity", identity.Default, "who is calling when no parameter says it: a `list` of address[:HEADER], forwarded-for:N, header:NAME, authorization, api-key:NAME, jwt[:NAME], anonymous; the first that is present decides, and after the last the caller is refused")
	fs.StringVar(&o.jwt.JWKSURL, "jwt-jwks-url", "", "`URL` of the keys (JWK Set) that tokens are signed with, for --identity jwt")
	fs.StringVar(&o.jwt.Issuer, "jwt-issuer", "", "`issuer` that the claim iss of a token must be, to the last slash")
	fs.StringVar(&o.jwt.Audience, "jwt-audience", "", "`audience` that the claim aud of a token must contain")
	fs.StringVar(&o.jwt.UserClaim, "jwt-user-claim", "sub", "`name` of the claim with the user")
	fs.StringVar(&o.jwt.TenantClaim, "jwt-tenant-claim", "", "`name` of the claim with the tenant, if there is one")
	fs.StringVar(&o.jwt.TierClaim, "jwt-tier-claim", "", "`name` of the claim with the tier, if there is one; it goes before the parameter tier")
	fs.StringVar(&o.auth.URL, "auth-url", "", "`URL` of another auth service, such as oauth2-proxy's, to ask before each check; what it answers, if not 2xx, is the answer")
	fs.DurationVar(&o.auth.Timeout, "auth-timeout", identity.DefaultTimeout, "longest `time` that a check waits for --auth-url")
	fs.StringVar(&o.auth.UserHeader, "auth-user-header", "X-Auth-Request-User", "`header` of a 2xx answer of --auth-url that names the user")
	fs.StringVar(&o.auth.TenantHeader, "auth-tenant-header", "", "`header` of it that names the tenant, if there is one")
	fs.StringVar(&o.auth.TierHeader, "auth-tier-header", "", "`header` of it that names the tier, if there is one; it goes before the parameter tier")
}

func (o *identityOptions) validate(fs *pflag.FlagSet) error {
	usesJWT := identity.UsesJWT(o.sources)
	if err := o.validateNotIgnored(fs, usesJWT); err != nil {
		return err
	}
	for _, required := range []struct{ flag, value string }{
		{"jwt-jwks-url", o.jwt.JWKSURL}, {"jwt-issuer", o.jwt.Issuer}, {"jwt-audience", o.jwt.Audience}, {"jwt-user-claim", o.jwt.UserClaim},
	} {
		if usesJWT && required.value == "" {
			return fmt.Errorf("--identity lists jwt: give --%s", required.flag)
		}
	}
	// The JWT itself is made later: it asks for keys.
	if _, err := identity.Parse(o.sources, identity.Config{JWT: new(identity.JWT)}); err != nil {
		return fmt.Errorf("--identity: %w", err)
	}
	if usesJWT {
		if err := validateURL(o.jwt.JWKSURL); err != nil {
			return fmt.Errorf("--jwt-jwks-url: %w", err)
		}
	}
	return o.validateAuth()
}

// validateNotIgnored refuses flags that would have no effect: whoever gives them believes that callers
// are authenticated.
func (o *identityOptions) validateNotIgnored(fs *pflag.FlagSet, usesJWT bool) error {
	var err error
	fs.Visit(func(flag *pflag.Flag) {
		switch {
		case strings.HasPrefix(flag.Name, "jwt-") && !usesJWT:
			err = fmt.Errorf("--%s has no effect: --identity does not list jwt", flag.Name)
		case flag.Name == "auth-url" && o.auth.URL == "":
			err = errors.New("--auth-url is empty: give the URL, or leave it out")
		case strings.HasPrefix(flag.Name, "auth-") && o.auth.URL == "":
			err = fmt.Errorf("--%s has no effect: give --auth-url", flag.Name)
		}
	})
	return err
}

func (o *identityOptions) validateAuth() error {
	if o.auth.URL == "" {
		return nil
	}
	if err := validateURL(o.auth.URL); err != nil {
		return fmt.Errorf("--auth-url: %w", err)
	}
	if o.auth.Timeout <= 0 || o.auth.Timeout > identity.MaxTimeout {
		return fmt.Errorf("--auth-timeout is %v: use a time above 0 and up to %v, such as 500ms", o.auth.Timeout, identity.MaxTimeout)
	}
	seen := map[string]bool{}
	for _, header := range []struct{ flag, value string }{
		{"auth-user-header", o.auth.UserHeader}, {"auth-tenant-header", o.auth.TenantHeader}, {"auth-tier-header", o.auth.TierHeader},
	} {
		if header.value != "" && !httpguts.ValidHeaderFieldName(header.value) {
			return fmt.Errorf("--%s is %q, which is not the name of a header", header.flag, header.value)
		}
		name := strings.ToLower(header.value)
		if name != "" && seen[name] {
			return fmt.Errorf("--%s is %q, which another of the --auth-*-header flags names already", header.flag, header.value)
		}
		seen[name] = true
	}
	return nil
}

// validateURL returns an error that does not repeat the URL, which may contain a password.
func validateURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return errors.New("use http://host[:port]/path or https://")
	case u.User != nil:
		return errors.New("a URL with a user or password is not supported: the header Authorization is the client's")
	case !validPort(u.Port()):
		return errors.New("the port is not a number up to 65535")
	case u.Fragment != "":
		return errors.New("a URL for a request has no fragment (#)")
	}
	return nil
}

func validPort(port string) bool {
	_, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil
}

// build returns the sources and the other auth service, which is nil if there is none. It asks for
// the keys of tokens, and goes on doing so until ctx ends.
func (o *identityOptions) build(ctx context.Context, log logr.Logger) (*identity.Sources, *identity.Service, error) {
	config := identity.Config{HashKey: []byte(o.hashKey)}
	if identity.UsesJWT(o.sources) {
		o.jwt.Log = log.WithName("jwt")
		var err error
		if config.JWT, err = identity.NewJWT(ctx, o.jwt); err != nil {
			return nil, nil, fmt.Errorf("--jwt-jwks-url: %w", err)
		}
	}
	sources, err := identity.Parse(o.sources, config)
	if err != nil || o.auth.URL == "" {
		return sources, nil, err
	}
	return sources, identity.NewService(o.auth), nil
}

// patience is the longest that a check waits for whoever identifies its caller.
func (o *identityOptions) patience() time.Duration {
	if o.auth.URL == "" {
		return 0
	}
	return o.auth.Timeout
}
