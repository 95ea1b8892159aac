// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"
)

const (
	issuerName = "https://issuer.example"
	audience   = "llm"
)

// issuer is a token issuer that publishes its keys.
type issuer struct {
	*httptest.Server
	set     atomic.Pointer[[]byte] // nil: the issuer is away
	fetched atomic.Int64
}

func startIssuer(t testing.TB, keys map[string]crypto.PublicKey) *issuer {
	t.Helper()
	i := new(issuer)
	i.publish(t, keys)
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i.fetched.Add(1)
		if set := i.set.Load(); set != nil {
			_, _ = w.Write(*set)
			return
		}
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(i.Close)
	return i
}

// publish changes the keys; nil takes the issuer away.
func (i *issuer) publish(t testing.TB, keys map[string]crypto.PublicKey) {
	t.Helper()
	if keys == nil {
		i.set.Store(nil)
		return
	}
	set := jwkset.JWKSMarshal{Keys: []jwkset.JWKMarshal{}}
	for id, key := range keys {
		jwk, err := jwkset.NewJWKFromKey(key, jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{KID: id}})
		if err != nil {
			t.Fatal(err)
		}
		set.Keys = append(set.Keys, jwk.Marshal())
	}
	encoded, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	i.set.Store(&encoded)
}

// verifier returns a JWT that believes the issuer.
func (i *issuer) verifier(t testing.TB) *JWT {
	t.Helper()
	verifier, err := NewJWT(t.Context(), JWTConfig{JWKSURL: i.URL, Issuer: issuerName, Audience: audience,
		UserClaim: "sub", TenantClaim: "org", TierClaim: "https://tierlimit.dev/tier", Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	return verifier
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// claims are valid ones, changed by name, value; a nil value removes a claim.
func claims(changes ...any) jwt.MapClaims {
	c := jwt.MapClaims{"iss": issuerName, "aud": audience, "sub": "alice", "exp": time.Now().Add(time.Hour).Unix()}
	for i := 0; i+1 < len(changes); i += 2 {
		if changes[i+1] == nil {
			delete(c, changes[i].(string))
			continue
		}
		c[changes[i].(string)] = changes[i+1]
	}
	return c
}

func sign(t testing.TB, method jwt.SigningMethod, id string, key any, c jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, c)
	if id != "" {
		token.Header["kid"] = id
	}
	signed, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// signCritical returns a token with a header that must be understood.
func signCritical(t testing.TB, key *ecdsa.PrivateKey) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodES256, claims())
	token.Header["kid"], token.Header["crit"], token.Header["exotic"] = "1", []string{"exotic"}, true
	signed, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func TestJWT(t *testing.T) {
	key, other := newKey(t), newKey(t)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&rsaKey.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	i := startIssuer(t, map[string]crypto.PublicKey{"1": &key.PublicKey, "rsa": &rsaKey.PublicKey})
	s := sources(t, "jwt,address", Config{JWT: i.verifier(t)})
	es := func(c jwt.MapClaims) string { return "Bearer " + sign(t, jwt.SigningMethodES256, "1", key, c) }
	alice := Caller{User: "alice"}
	cases := map[string]struct {
		reason        string
		authorization string
		want          Caller
		invalid       string // what the challenge says is wrong
	}{
		"Valid":        {reason: "the subject is the user", authorization: es(claims()), want: alice},
		"Scheme":       {reason: "the scheme is not case-sensitive", authorization: "bearer" + strings.TrimPrefix(es(claims()), "Bearer"), want: alice},
		"AllClaims":    {reason: "tenant and tier are claims too", authorization: es(claims("org", "acme", "https://tierlimit.dev/tier", "pro")), want: Caller{User: "alice", Tenant: "acme", Tier: "pro"}},
		"Number":       {reason: "some issuers number their users", authorization: es(claims("sub", 1234567890123456789)), want: Caller{User: "1234567890123456789"}},
		"Audiences":    {reason: "one of several audiences is enough (RFC 7519, section 4.1.3)", authorization: es(claims("aud", []string{"other", audience})), want: alice},
		"RSA":          {reason: "another algorithm with a public key", authorization: "Bearer " + sign(t, jwt.SigningMethodRS256, "rsa", rsaKey, claims()), want: alice},
		"Skew":         {reason: "clocks differ a little", authorization: es(claims("exp", time.Now().Add(-5*time.Second).Unix())), want: alice},
		"NoBearer":     {reason: "other credentials are not a token: the next source is asked", authorization: "Basic YTpi", want: at("192.0.2.1")},
		"Expired":      {reason: "a token ends", authorization: es(claims("exp", time.Now().Add(-time.Hour).Unix())), invalid: "has expired"},
		"NoExpiry":     {reason: "and must say when", authorization: es(claims("exp", nil)), invalid: "lacks exp"},
		"NotYet":       {reason: "or begins later", authorization: es(claims("nbf", time.Now().Add(time.Hour).Unix())), invalid: "not valid yet"},
		"Issuer":       {reason: "another issuer's token", authorization: es(claims("iss", "https://other.example")), invalid: "another issuer"},
		"NoIssuer":     {reason: "nobody's token", authorization: es(claims("iss", nil)), invalid: "lacks"},
		"Audience":     {reason: "a token for another service", authorization: es(claims("aud", "mail")), invalid: "another audience"},
		"NoAudience":   {reason: "a token for nobody in particular", authorization: es(claims("aud", nil)), invalid: "lacks"},
		"NoUser":       {reason: "not a laxer identity either", authorization: es(claims("sub", nil)), invalid: "no claim sub"},
		"EmptyUser":    {reason: "an empty one is none", authorization: es(claims("sub", "")), invalid: "no claim sub"},
		"ListOfUsers":  {reason: "which of them?", authorization: es(claims("sub", []string{"alice", "bob"})), invalid: "no claim sub"},
		"Forged":       {reason: "signed with another key", authorization: "Bearer " + sign(t, jwt.SigningMethodES256, "1", other, claims()), invalid: "signature"},
		"UnknownKey":   {reason: "a key that the issuer does not publish", authorization: "Bearer " + sign(t, jwt.SigningMethodES256, "2", other, claims()), invalid: "unknown key"},
		"None":         {reason: "the algorithm none is no signature", authorization: "Bearer " + sign(t, jwt.SigningMethodNone, "1", jwt.UnsafeAllowNoneSignatureType, claims()), invalid: "signature"},
		"Confusion":    {reason: "a public key is not a shared secret", authorization: "Bearer " + sign(t, jwt.SigningMethodHS256, "rsa", public, claims()), invalid: "signature"},
		"NotAToken":    {reason: "an opaque key is not a token", authorization: "Bearer sk-secret", invalid: "not a JSON Web Token"},
		"Empty":        {reason: "nothing is not a token", authorization: "Bearer", invalid: "'Bearer', a space and a token"},
		"NoKeyID":      {reason: "a token that names no key may be signed with any of them", authorization: "Bearer " + sign(t, jwt.SigningMethodES256, "", key, claims()), want: alice},
		"NoKeyIDBad":   {reason: "but with one of them", authorization: "Bearer " + sign(t, jwt.SigningMethodES256, "", other, claims()), invalid: "signature"},
		"Tab":          {reason: "an application may split at any white space", authorization: "Bearer\t" + strings.TrimPrefix(es(claims()), "Bearer "), want: alice},
		"Colon":        {reason: "or read this as a token: it is not the caller at the address", authorization: "Bearer: x", invalid: "'Bearer', a space and a token"},
		"NoBreakSpace": {reason: "or this", authorization: "Bearer\u00a0x", invalid: "'Bearer', a space and a token"},
		"OtherScheme":  {reason: "or take any scheme", authorization: "JWT " + strings.TrimPrefix(es(claims()), "Bearer "), invalid: "'Bearer', a space and a token"},
		"NoScheme":     {reason: "or none", authorization: strings.TrimPrefix(es(claims()), "Bearer "), invalid: "'Bearer', a space and a token"},
		"Latin1Space":  {reason: "or what is white space in Latin-1", authorization: "\xa0" + es(claims()), invalid: "'Bearer', a space and a token"},
		"InBasic":      {reason: "some proxies look for a token in the password", authorization: basic("x:" + strings.TrimPrefix(es(claims()), "Bearer ")), invalid: "'Bearer', a space and a token"},
		"AsBasic":      {reason: "or do not look at the scheme", authorization: "Basic " + strings.TrimPrefix(es(claims()), "Bearer "), invalid: "'Bearer', a space and a token"},
		"Grafana":      {reason: "a key that begins like a token is not one", authorization: "ApiKey eyJrIjoiT0tT", want: at("192.0.2.1")},
		"Digest":       {reason: "other authentication is the next source's", authorization: `Digest username="a", nonce="b"`, want: at("192.0.2.1")},
		"OtherKey":     {reason: "other credentials are the next source's", authorization: "ApiKey x", want: at("192.0.2.1")},
		"Critical":     {reason: "what must be understood is not (RFC 7515, section 4.1.11)", authorization: "Bearer " + signCritical(t, key), invalid: "critical header"},
		"NoUnderscore": {reason: "the claim's value is not executed or escaped", authorization: es(claims("sub", "a:b%{c}")), want: Caller{User: "a:b%{c}"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := s.Identify(context.Background(), &Request{Header: headers("Authorization", tc.authorization), Peer: "192.0.2.1:1234"})
			var refusal *Refusal
			errors.As(err, &refusal)
			if tc.invalid != "" {
				if refusal == nil || refusal.Status != 401 || !strings.HasPrefix(refusal.Challenge, `Bearer error="invalid_token", error_description="`) || !strings.Contains(refusal.Challenge, tc.invalid) {
					t.Fatalf("%s: %+v, want an invalid token: %s", tc.reason, err, tc.invalid)
				}
				if _, token, _ := strings.Cut(tc.authorization, " "); token != "" && strings.Contains(refusal.Detail+refusal.Challenge, token) {
					t.Errorf("the refusal repeats the token: %+v", refusal)
				}
			} else if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestJWTInAHeaderOfItsOwn(t *testing.T) {
	key := newKey(t)
	i := startIssuer(t, map[string]crypto.PublicKey{"1": &key.PublicKey})
	s := sources(t, "jwt:Cf-Access-Jwt-Assertion", Config{JWT: i.verifier(t)})
	token := sign(t, jwt.SigningMethodES256, "1", key, claims())
	expect(t, s, &Request{Header: headers("Cf-Access-Jwt-Assertion", token)}, "the header is the token", Caller{User: "alice"}, 0, "")
	expect(t, s, &Request{Header: headers("Authorization", "Bearer "+token)}, "another header is not looked at", Caller{}, 403, "send them in the header Cf-Access-Jwt-Assertion")
	expect(t, s, &Request{Header: headers("Cf-Access-Jwt-Assertion", token, "Cf-Access-Jwt-Assertion", token)}, "which one?", Caller{}, 400, "twice")
}

// bearerOf returns the caller of a token signed with a key.
func bearerOf(t *testing.T, s *Sources, id string, key *ecdsa.PrivateKey) (Caller, error) {
	t.Helper()
	token := sign(t, jwt.SigningMethodES256, id, key, claims())
	return s.Identify(context.Background(), &Request{Header: headers("Authorization", "Bearer "+token)})
}

func TestJWTKeysAreRotated(t *testing.T) {
	first, second := newKey(t), newKey(t)
	i := startIssuer(t, map[string]crypto.PublicKey{"1": &first.PublicKey})
	s := sources(t, "jwt", Config{JWT: i.verifier(t)})
	if _, err := bearerOf(t, s, "1", first); err != nil {
		t.Fatal(err)
	}
	i.publish(t, map[string]crypto.PublicKey{"2": &second.PublicKey})
	if c, err := bearerOf(t, s, "2", second); err != nil || c.User != "alice" {
		t.Errorf("a token with the new key: %+v, %v", c, err)
	}
	if _, err := bearerOf(t, s, "1", first); err == nil {
		t.Error("a token with the key that was withdrawn is believed")
	}
}

// One key that cannot be used does not take the others away (RFC 7517, section 5).
func TestJWTSetWithABadKey(t *testing.T) {
	key := newKey(t)
	i := startIssuer(t, map[string]crypto.PublicKey{"1": &key.PublicKey})
	good := *i.set.Load()
	bad := []byte(strings.Replace(string(good), `{"keys":[`, `{"keys":[{"kty":"RSA","kid":"broken","n":"!!","e":"AQAB"},null,7,{"kty":"new"},`, 1))
	i.set.Store(&bad)
	s := sources(t, "jwt", Config{JWT: i.verifier(t)})
	if c, err := bearerOf(t, s, "1", key); err != nil || c.User != "alice" {
		t.Errorf("%+v, %v", c, err)
	}
}

// The log does not show what a URL may hold.
func TestJWTErrorsDoNotShowTheURL(t *testing.T) {
	var logged strings.Builder
	log := funcr.New(func(_, args string) { logged.WriteString(args) }, funcr.Options{})
	if _, err := NewJWT(t.Context(), JWTConfig{JWKSURL: "http://127.0.0.1:1/keys?key=secret", Log: log}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(logged.String(), "refused") || strings.Contains(logged.String(), "secret") {
		t.Errorf("logged %s", logged.String())
	}
}

func TestInventedKeysDoNotFloodTheIssuer(t *testing.T) {
	key, invented := newKey(t), newKey(t)
	i := startIssuer(t, map[string]crypto.PublicKey{"1": &key.PublicKey})
	s := sources(t, "jwt", Config{JWT: i.verifier(t)})
	before := i.fetched.Load()
	for n := range 200 {
		if _, err := bearerOf(t, s, strings.Repeat("x", n+1), invented); err == nil || !strings.Contains(err.Error(), "unknown key") {
			t.Fatalf("an invented key: %v", err)
		}
	}
	if fetched := i.fetched.Load() - before; fetched > 2 {
		t.Errorf("200 invented keys had the keys fetched %d times", fetched)
	}
	if _, err := bearerOf(t, s, "1", key); err != nil {
		t.Errorf("a good token meanwhile: %v", err)
	}
}

func TestJWTOutageKeepsTheKeys(t *testing.T) {
	key, other := newKey(t), newKey(t)
	cases := map[string]func(*testing.T, *issuer){
		"Away":  func(t *testing.T, i *issuer) { i.publish(t, nil) },
		"Empty": func(t *testing.T, i *issuer) { i.publish(t, map[string]crypto.PublicKey{}) },
		"Secrets": func(_ *testing.T, i *issuer) {
			set := []byte(`{"keys":[{"kty":"oct","kid":"x","k":"AAAA"},{"kty":"RSA","kid":"y","n":"AQ","e":"AQAB"}]}`)
			i.set.Store(&set)
		},
		"Garbage": func(_ *testing.T, i *issuer) { i.set.Store(&[]byte{'<'}) },
		"Endless": func(_ *testing.T, i *issuer) {
			huge := []byte(`{"keys":[` + strings.Repeat(" ", 2*jwksSize) + `]}`)
			i.set.Store(&huge)
		},
	}
	for name, fail := range cases {
		t.Run(name, func(t *testing.T) {
			i := startIssuer(t, map[string]crypto.PublicKey{"1": &key.PublicKey})
			s := sources(t, "jwt", Config{JWT: i.verifier(t)})
			fail(t, i)
			before := i.fetched.Load()
			var refusal *Refusal
			if _, err := bearerOf(t, s, "2", other); !errors.As(err, &refusal) || refusal.Status != 401 {
				t.Errorf("a token with an unknown key: %v, want 401", err)
			}
			if i.fetched.Load() == before {
				t.Fatal("the keys were not fetched again, so that this test proves nothing")
			}
			if _, err := bearerOf(t, s, "1", key); err != nil {
				t.Errorf("a token with the key known last: %v", err)
			}
		})
	}
}

func TestJWTWithoutAnyKeysIsUnavailable(t *testing.T) {
	key := newKey(t)
	i := startIssuer(t, nil)
	s := sources(t, "jwt", Config{JWT: i.verifier(t)})
	for n := range 3 { // also while the keys are not asked for again so soon
		if _, err := bearerOf(t, s, "1", key); !errors.Is(err, ErrUnavailable) {
			t.Errorf("token %d: %v, want ErrUnavailable: the token may be a good one", n+1, err)
		}
	}
}

// An issuer that was away at the start is asked again, also if its tokens do not name their key.
func TestJWTKeysAreFetchedOnceThereAreSome(t *testing.T) {
	key := newKey(t)
	i := startIssuer(t, nil)
	verifier, err := newJWT(t.Context(), JWTConfig{JWKSURL: i.URL, Issuer: issuerName, Audience: audience, UserClaim: "sub", Log: logr.Discard()}, 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	s := sources(t, "jwt", Config{JWT: verifier})
	if _, err := bearerOf(t, s, "", key); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("without keys: %v", err)
	}
	i.publish(t, map[string]crypto.PublicKey{"": &key.PublicKey})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := bearerOf(t, s, "", key); err == nil {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("once there are keys: %v", err)
		}
	}
}

// A flood of tokens with invented keys, whose senders do not wait, holds up no rotation.
func TestInventedKeysDoNotHoldUpARotation(t *testing.T) {
	first, second := newKey(t), newKey(t)
	i := startIssuer(t, map[string]crypto.PublicKey{"1": &first.PublicKey})
	verifier, err := newJWT(t.Context(), JWTConfig{JWKSURL: i.URL, Issuer: issuerName, Audience: audience, UserClaim: "sub", Log: logr.Discard()}, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	s := sources(t, "jwt", Config{JWT: verifier})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for n := 0; ctx.Err() == nil; n++ {
			short, leave := context.WithTimeout(ctx, time.Millisecond)
			token := sign(t, jwt.SigningMethodES256, strings.Repeat("x", 1+n%100), second, claims())
			_, _ = s.Identify(short, &Request{Header: headers("Authorization", "Bearer "+token)})
			leave()
		}
	}()
	i.publish(t, map[string]crypto.PublicKey{"2": &second.PublicKey})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := bearerOf(t, s, "2", second); err == nil {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("after the rotation: %v", err)
		}
	}
}

// Issuers write the digests of certificates in more ways than one, and list keys for other uses.
func TestParseKey(t *testing.T) {
	const ec = `"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"`
	const okp = `"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"`
	for name, tc := range map[string]struct {
		reason, key string
		want        bool
	}{
		"EC":          {"RFC 7515, appendix A.3", `{` + ec + `}`, true},
		"Certificate": {"certificates are not looked at", `{` + ec + `,"x5c":["!!"],"x5t":"Mzc0","x5u":"http://h/"}`, true},
		"Ed25519":     {"RFC 8037, appendix A.2", `{` + okp + `,"alg":"EdDSA"}`, true},
		"Ed25519Name": {"RFC 9864", `{` + okp + `,"alg":"Ed25519"}`, true},
		"Verify":      {"for this", `{` + ec + `,"key_ops":["other","verify"],"use":"sig"}`, true},
		"Encryption":  {"not for signatures", `{` + ec + `,"use":"enc"}`, false},
		"Wrapping":    {"nor this", `{` + ec + `,"key_ops":["wrapKey"]}`, false},
		"Secret":      {"a shared secret is not a public key", `{"kty":"oct","k":"AAAA"}`, false},
		"SmallRSA":    {"RFC 7518, section 3.3", `{"kty":"RSA","n":"AQ","e":"AQAB"}`, false},
		"OffCurve":    {"not a point", `{"kty":"EC","crv":"P-256","x":"AQ","y":"AQ"}`, false},
		"NotAnObject": {"nothing", `7`, false},
		"Null":        {"nothing", `null`, false},
	} {
		if _, got := parseKey([]byte(tc.key)); got != tc.want {
			t.Errorf("%s: %s: %v, want %v", name, tc.reason, got, tc.want)
		}
	}
}
