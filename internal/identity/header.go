// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/http/httpguts"

	"github.com/tierlimit/tierlimit/pkg/limiter"
)

const authorizationHeader = "Authorization"

// userHeader takes the user from a header that the proxy sets.
type userHeader struct{ header string }

func (s userHeader) identify(_ context.Context, r *Request) (Caller, bool, error) {
	if r.Unvouched {
		return Caller{}, false, nil
	}
	user, found, err := single(r, s.header)
	return Caller{User: user}, found, err
}

// credential takes the hash of what the client authenticates with, so that each key has a budget
// and no key is stored.
type credential struct {
	header  string
	hashKey []byte
}

func (s credential) identify(_ context.Context, r *Request) (Caller, bool, error) {
	value, found, err := single(r, s.header)
	if err != nil || !found {
		return Caller{}, false, err
	}
	if s.header == authorizationHeader {
		if value, err = canonicalAuthorization(value); err != nil {
			return Caller{}, false, err
		}
	} else if !plain(value) {
		return Caller{}, false, malformed("the header %s is not a key: it contains spaces, commas, quotes or other than ASCII characters", s.header)
	}
	return Caller{Kind: limiter.KindKey, User: hashOf(s.hashKey, value)}, true, nil
}

// hashLength is how much of the hash is kept, in bytes. 16 bytes do not collide by chance in any
// number of keys, and are half as long in Redis.
const hashLength = 16

// hashOf returns the first half of HMAC-SHA-256 (RFC 2104), or of SHA-256 without a key, in hex.
func hashOf(key []byte, value string) string {
	if len(key) == 0 {
		sum := sha256.Sum256([]byte(value))
		return hex.EncodeToString(sum[:hashLength])
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(value))
	return hex.EncodeToString(mac.Sum(nil)[:hashLength])
}

// IsHash returns whether a caller's id can be that of limiter.KindKey.
func IsHash(id string) bool {
	hash, err := hex.DecodeString(id)
	return err == nil && len(hash) == hashLength && hex.EncodeToString(hash) == id
}

// splitAuthorization returns the scheme in lower case and the credentials (RFC 9110, section 11.4). White space of any number separates them, since applications take
// any. What else could be taken for white space or for a separator is an error: the same credentials
// could be written in more ways than one.
func splitAuthorization(value string) (scheme, credentials string, err error) {
	parts := strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == '\t' })
	switch len(parts) {
	case 1: // a scheme alone, or a key alone: who takes that may cut as much off it as a scheme would be long
	case 2:
		scheme, credentials = strings.ToLower(parts[0]), parts[1]
	}
	if !plain(credentials) || !httpguts.ValidHeaderFieldName(scheme) { // a token, as names of headers are
		return "", "", malformed("the header Authorization is not a scheme, a space and credentials")
	}
	return scheme, credentials, nil
}

// plain returns whether credentials are visible ASCII characters only, without those that separate
// parameters or quote them.
func plain(credentials string) bool {
	return credentials != "" && !strings.ContainsFunc(credentials, func(r rune) bool {
		return r <= ' ' || r > '~' || r == ',' || r == '"' || r == ';'
	})
}

// keySchemes are schemes whose credentials are a key, and all mean the same. Others are refused:
// where an application does not look at the scheme, each that a client invents would be a budget of
// its own, and so would each request of a scheme that signs it (Digest, AWS4-HMAC-SHA256).
var keySchemes = []string{"bearer", "token", "key", "apikey", "api-key"}

// canonicalAuthorization returns one text for all the ways in which the same credentials can be
// written. A key is returned without its scheme, so that it has the same budget in a header of its own.
func canonicalAuthorization(value string) (string, error) {
	scheme, credentials, err := splitAuthorization(value)
	switch {
	case err != nil:
		return "", err
	case slices.Contains(keySchemes, scheme):
		if strings.HasPrefix(strings.ToLower(credentials), "token=") { // another way to write it, for some
			return "", malformed("the header Authorization has a parameter in place of a key")
		}
		return credentials, nil
	case scheme == "basic":
		// RFC 7617. Not decoded leniently: there would be several ways to write the same password.
		// A control character ends the password for applications that are written in C.
		decoded, err := base64.StdEncoding.Strict().DecodeString(credentials)
		if err != nil || !strings.Contains(string(decoded), ":") || strings.ContainsFunc(string(decoded), unicode.IsControl) {
			return "", malformed("the header Authorization is not correct Basic authentication")
		}
		return "basic " + string(decoded), nil
	}
	return "", malformed("the scheme of the header Authorization is not one of Bearer, Basic, Token, Key, ApiKey, Api-Key")
}

// Anonymous is the user that all are whom no source has found.
const Anonymous = "all"

// anonymous is one caller for all who are left.
type anonymous struct{}

func (anonymous) identify(context.Context, *Request) (Caller, bool, error) {
	return Caller{Kind: limiter.KindAnonymous, User: Anonymous}, true, nil
}
