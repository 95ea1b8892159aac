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

// splitAuthorization returns the scheme in lower case and the credentials (RFC 9110, section 11.4).
// White space of any kind separates them, since some applications take any.
func splitAuthorization(value string) (scheme, credentials string) {
	value = strings.TrimSpace(value)
	end := strings.IndexAny(value, " \t")
	if end < 0 {
		return strings.ToLower(value), ""
	}
	return strings.ToLower(value[:end]), strings.TrimSpace(value[end:])
}

// changing are schemes whose credentials differ from request to request: each would be a budget of
// its own.
var changing = []string{"digest", "negotiate", "ntlm", "kerberos", "hawk", "oauth", "dpop", "signature", "hoba", "mutual", "vapid", "scram-", "aws4-"}

// canonicalAuthorization returns one text for all the ways in which the same credentials can be
// written, which would otherwise be as many budgets. A bearer token is returned without its scheme,
// so that the same key has the same budget in a header of its own.
func canonicalAuthorization(value string) (string, error) {
	scheme, credentials := splitAuthorization(value)
	switch {
	case credentials == "" && (scheme == "bearer" || scheme == "basic"):
		return "", malformed("the header Authorization has no credentials")
	case credentials == "": // a key without a scheme, as some applications take it
		return strings.TrimSpace(value), nil
	case scheme == "bearer":
		return credentials, nil
	case strings.HasPrefix(scheme, "bearer"):
		return "", malformed("the header Authorization is not 'Bearer', a space and a token")
	case scheme == "basic":
		// RFC 7617. Not decoded leniently: there would be several ways to write the same password.
		decoded, err := base64.StdEncoding.Strict().DecodeString(credentials)
		if err != nil || strings.ContainsAny(credentials, "\r\n") {
			return "", malformed("the header Authorization is not correct Basic authentication")
		}
		return "basic " + string(decoded), nil
	case slices.ContainsFunc(changing, func(name string) bool { return strings.HasPrefix(scheme, name) }):
		return "", malformed("the header Authorization has a scheme that does not say the same in every request: use Bearer or Basic")
	}
	return scheme + " " + credentials, nil
}

// anonymous is one caller for all who are left.
type anonymous struct{}

func (anonymous) identify(context.Context, *Request) (Caller, bool, error) {
	return Caller{Kind: limiter.KindAnonymous, User: "all"}, true, nil
}

func containsComma(value string) bool { return strings.Contains(value, ",") }
