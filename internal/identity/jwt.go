// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/MicahParks/keyfunc/v3"
	"github.com/go-logr/logr"
	"github.com/golang-jwt/jwt/v5"
)

const (
	// jwksInterval is how often the keys are fetched again, and so for how long at the most a key
	// that the issuer has withdrawn is still believed.
	jwksInterval = 5 * time.Minute
	// jwksUnknownInterval is how often at the most a token with an unknown key has the keys fetched
	// at once, as after a rotation. A client can invent keys, and must not cause a request each time.
	jwksUnknownInterval = 10 * time.Second
	// jwksTimeout bounds a fetch.
	jwksTimeout = 5 * time.Second
	// jwksPatience is how long a check with an unknown key waits for a fetch.
	jwksPatience = time.Second
	// jwksSize bounds a set of keys, in bytes.
	jwksSize = 1 << 20
	// clockSkew is how far the clocks of issuer and check may differ.
	clockSkew = 30 * time.Second
)

// signatures are the algorithms (RFC 7518, RFC 8037) with which a token may be signed. All have a
// public and a private key: with a shared secret (HS256) a public key could be used as one, and
// "none" is no signature.
var signatures = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// JWTConfig configures JWT.
type JWTConfig struct {
	// JWKSURL is where the issuer publishes its keys (RFC 7517).
	JWKSURL string
	// Issuer is what the claim "iss" must be.
	Issuer string
	// Audience is what the claim "aud" must contain.
	Audience string
	// UserClaim, TenantClaim and TierClaim are the names of the claims that are used. The user must
	// be there; tenant and tier are optional, and "" does not look for them.
	UserClaim, TenantClaim, TierClaim string
	// Log is told when keys cannot be fetched.
	Log logr.Logger
}

// JWT verifies JSON Web Tokens (RFC 7519).
type JWT struct {
	config JWTConfig
	keys   *keySet
	find   keyfunc.Keyfunc
	parser *jwt.Parser
}

// NewJWT fetches the keys and keeps them fresh until ctx ends. If they cannot be fetched it goes on
// trying; the last that were fetched stay in force.
func NewJWT(ctx context.Context, config JWTConfig) (*JWT, error) {
	return newJWT(ctx, config, jwksUnknownInterval)
}

// newJWT is NewJWT with a jwksUnknownInterval.
func newJWT(ctx context.Context, config JWTConfig, unknownInterval time.Duration) (*JWT, error) {
	j := &JWT{config: config, keys: newKeySet(ctx, config, unknownInterval)}
	find, err := keyfunc.New(keyfunc.Options{Ctx: ctx, Storage: j.keys})
	if err != nil {
		return nil, err
	}
	j.find = find
	j.parser = jwt.NewParser(jwt.WithValidMethods(signatures), jwt.WithIssuer(config.Issuer), jwt.WithAudience(config.Audience),
		jwt.WithExpirationRequired(), jwt.WithLeeway(clockSkew), jwt.WithJSONNumber())
	return j, nil
}

// verify returns the caller that a token speaks of.
func (j *JWT) verify(ctx context.Context, token string) (Caller, error) {
	claims := jwt.MapClaims{}
	parsed, err := j.parser.ParseWithClaims(token, claims, j.find.KeyfuncCtx(ctx))
	if err == nil {
		if _, critical := parsed.Header["crit"]; critical { // RFC 7515, section 4.1.11: nothing of it is understood here
			err = jwt.ErrTokenUnverifiable
		}
	}
	switch {
	case errors.Is(err, jwt.ErrTokenUnverifiable) && j.keys.empty(ctx):
		return Caller{}, fmt.Errorf("%w: the keys of the token issuer have not been fetched yet", ErrUnavailable)
	case errors.Is(err, jwt.ErrTokenExpired):
		return Caller{}, invalidToken("the token has expired")
	case err != nil:
		return Caller{}, invalidToken(reasonOf(err))
	}
	user := text(claims, j.config.UserClaim)
	if user == "" {
		return Caller{}, invalidToken("the token has no claim " + j.config.UserClaim)
	}
	return Caller{User: user, Tenant: text(claims, j.config.TenantClaim), Tier: text(claims, j.config.TierClaim)}, nil
}

// reasonOf says what is wrong with a token without repeating any of it.
func reasonOf(err error) string {
	for _, known := range []struct {
		err    error
		reason string
	}{
		{jwt.ErrTokenMalformed, "the token is not a JSON Web Token"},
		{jwt.ErrTokenUnverifiable, "the token is signed with an unknown key or has a critical header"},
		{jwt.ErrTokenSignatureInvalid, "the signature of the token is not valid"},
		{jwt.ErrTokenInvalidIssuer, "the token is from another issuer"},
		{jwt.ErrTokenInvalidAudience, "the token is for another audience"},
		{jwt.ErrTokenNotValidYet, "the token is not valid yet"},
		{jwt.ErrTokenRequiredClaimMissing, "the token lacks exp, iss or aud"},
	} {
		if errors.Is(err, known.err) {
			return known.reason
		}
	}
	return "the token is not valid"
}

// text returns a claim that is a text or a number, or "".
func text(claims jwt.MapClaims, name string) string {
	switch value := claims[name].(type) {
	case string:
		return value
	case json.Number:
		return value.String()
	}
	return ""
}

// invalidToken is the refusal of RFC 6750, section 3.1.
func invalidToken(reason string) *Refusal {
	return &Refusal{
		Status:    http.StatusUnauthorized,
		Challenge: fmt.Sprintf("Bearer error=\"invalid_token\", error_description=\"%s\"", strings.ReplaceAll(reason, `"`, "'")),
		Detail:    strings.ToUpper(reason[:1]) + reason[1:] + ".",
	}
}

// jwtSource takes the token of a header, or the bearer token in Authorization if header is "".
type jwtSource struct {
	header   string
	verifier *JWT
}

func (s jwtSource) identify(ctx context.Context, r *Request) (Caller, bool, error) {
	token, found, err := s.token(r)
	if err != nil || !found {
		return Caller{}, false, err
	}
	caller, err := s.verifier.verify(ctx, token)
	return caller, err == nil, err
}

func (s jwtSource) token(r *Request) (token string, found bool, err error) {
	if s.header != "" {
		return single(r, s.header)
	}
	value, found, err := single(r, authorizationHeader)
	if err != nil || !found {
		return "", false, err
	}
	scheme, token, err := splitAuthorization(value)
	switch {
	case err == nil && scheme == "bearer":
		return token, true, nil
	case strings.HasPrefix(strings.ToLower(strings.TrimSpace(value)), "bearer"), containsToken(scheme, token, value):
		// An application may find a token in it all the same. Whoever sends it must not be another
		// caller for it.
		return "", false, invalidToken("the header Authorization is not 'Bearer', a space and a token")
	}
	return "", false, nil
}

// compactToken is how a signed token looks: the header of every one begins with "ey" (RFC 7515,
// section 7.1, in base64url).
var compactToken = regexp.MustCompile(`ey[A-Za-z0-9_-]*\.[A-Za-z0-9_-]+\.`)

// containsToken returns whether a token stands anywhere in an Authorization header, also as the user
// or password of Basic authentication, where some proxies look for one.
func containsToken(scheme, credentials, value string) bool {
	if scheme == "basic" {
		if decoded, err := base64.StdEncoding.DecodeString(credentials); err == nil && compactToken.Match(decoded) {
			return true
		}
	}
	return compactToken.MatchString(value)
}
