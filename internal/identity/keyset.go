// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/MicahParks/jwkset"
	"golang.org/x/time/rate"
)

// keySet is the keys of a token issuer (RFC 7517), fetched in the background: a client cannot end a
// fetch by leaving, and any number of unknown keys in tokens cause one at a time.
type keySet struct {
	jwkset.Storage // those that were fetched last
	config         JWTConfig
	client         *http.Client
	ctx            context.Context
	limit          *rate.Limiter // of fetches because of an unknown key

	mu       sync.Mutex
	fetching chan struct{} // closed when the fetch that is going on has ended; nil if none is
}

// newKeySet returns a set that has been fetched once, and is fetched again until ctx ends.
func newKeySet(ctx context.Context, config JWTConfig, unknownInterval time.Duration) *keySet {
	k := &keySet{
		Storage: jwkset.NewMemoryStorage(),
		config:  config,
		client:  &http.Client{Transport: newTransport(), CheckRedirect: doNotFollow, Timeout: jwksTimeout},
		ctx:     ctx,
		limit:   rate.NewLimiter(rate.Every(unknownInterval), 1),
	}
	<-k.fetch()
	go k.keepFresh(unknownInterval)
	return k
}

// keepFresh fetches the keys again now and then; more often while there are none, since a token need
// not name its key.
func (k *keySet) keepFresh(unknownInterval time.Duration) {
	for {
		interval := jwksInterval
		if k.empty(k.ctx) {
			interval = unknownInterval
		}
		select {
		case <-k.ctx.Done():
			return
		case <-time.After(interval):
			<-k.fetch()
		}
	}
}

// KeyRead returns a key. If it is not known the keys are fetched again, unless they have just been.
func (k *keySet) KeyRead(ctx context.Context, id string) (jwkset.JWK, error) {
	key, err := k.Storage.KeyRead(ctx, id)
	if err == nil {
		return key, nil
	}
	fetched := k.fetchUnknown()
	if fetched == nil {
		return key, err
	}
	select {
	case <-fetched:
	case <-time.After(jwksPatience):
	case <-ctx.Done():
	}
	return k.Storage.KeyRead(ctx, id)
}

func (k *keySet) empty(ctx context.Context) bool {
	keys, err := k.KeyReadAll(ctx)
	return err != nil || len(keys) == 0
}

// fetchUnknown returns a channel that is closed when the keys have been fetched, or nil if they are
// not fetched so soon again.
func (k *keySet) fetchUnknown() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fetching == nil && !k.limit.Allow() {
		return nil
	}
	return k.start()
}

// fetch returns a channel that is closed when the keys have been fetched.
func (k *keySet) fetch() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.start()
}

// start begins a fetch unless one is going on. The mutex is held.
func (k *keySet) start() <-chan struct{} {
	if k.fetching != nil {
		return k.fetching
	}
	done := make(chan struct{})
	k.fetching = done
	go func() {
		if err := k.replace(); err != nil && k.ctx.Err() == nil {
			message := "the keys of the token issuer cannot be fetched; those fetched last stay in force"
			if k.empty(k.ctx) {
				message = "the keys of the token issuer cannot be fetched; until they are, tokens are answered with 503"
			}
			k.config.Log.Error(presentable(err), message)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.fetching = nil
		close(done)
	}()
	return done
}

// replace fetches the keys. A set without a usable key does not take the place of one with keys.
func (k *keySet) replace() error {
	request, err := http.NewRequestWithContext(k.ctx, http.MethodGet, k.config.JWKSURL, nil)
	if err != nil {
		return err
	}
	response, err := k.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return ownError(fmt.Sprintf("the status of the answer is %d", response.StatusCode))
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, response.Body, jwksSize)).Decode(&set); err != nil {
		return ownError("the answer is not a JWK Set of at most 1 MiB")
	}
	usable := make([]jwkset.JWK, 0, len(set.Keys))
	for _, raw := range set.Keys {
		if key, ok := parseKey(raw); ok { // RFC 7517, section 5: others are ignored
			usable = append(usable, key)
		}
	}
	if len(usable) == 0 {
		return ownError("the set contains no key that can be used: RSA of at least 2048 bits, EC or Ed25519, for signatures")
	}
	return k.KeyReplaceAll(k.ctx, usable)
}

// leastRSA is the smallest RSA key that is believed, in bits (RFC 7518, section 3.3).
const leastRSA = 2048

// publicKey is what it takes to verify a signature (RFC 7517, section 4; RFC 7518, section 6; RFC
// 8037). Certificates beside it are not looked at: issuers write their digests in more ways than one.
type publicKey struct {
	KTY string `json:"kty"`
	KID string `json:"kid,omitempty"`
	ALG string `json:"alg,omitempty"`
	USE string `json:"use,omitempty"`
	CRV string `json:"crv,omitempty"`
	N   string `json:"n,omitempty"`
	E   string `json:"e,omitempty"`
	X   string `json:"x,omitempty"`
	Y   string `json:"y,omitempty"`
}

// parseKey returns a key of a set, and whether it can verify one of the signatures that are accepted.
func parseKey(raw json.RawMessage) (jwkset.JWK, bool) {
	var public publicKey
	var intended struct {
		Operations []string `json:"key_ops"`
	}
	if json.Unmarshal(raw, &public) != nil || json.Unmarshal(raw, &intended) != nil ||
		public.USE == "enc" || len(intended.Operations) > 0 && !slices.Contains(intended.Operations, "verify") {
		return jwkset.JWK{}, false
	}
	if public.KTY == "OKP" {
		public.ALG = "" // "EdDSA" or "Ed25519" (RFC 9864): the curve says which
	}
	minimal, err := json.Marshal(public)
	if err != nil {
		return jwkset.JWK{}, false
	}
	key, err := jwkset.NewJWKFromRawJSON(minimal, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
	if err != nil {
		return jwkset.JWK{}, false
	}
	switch public := key.Key().(type) {
	case *rsa.PublicKey:
		return key, public.N.BitLen() >= leastRSA
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return key, true
	}
	return jwkset.JWK{}, false
}
