// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package drills

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
	"github.com/tierlimit/tierlimit/internal/processtest"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// TestClockOfANode runs replicas whose clocks are an hour ahead and an hour behind beside one that is right.
func TestClockOfANode(t *testing.T) {
	t.Parallel()
	skewed := buildSkewed(t)
	server := redistest.Start(t)
	api := shared.installed(t)
	issuer := newIssuer(t)
	api.apply(t, newTier("clock", "", 30, 0), switchedUntil("clock-half-past", 30*time.Minute), switchedUntil("clock-half-before", -30*time.Minute))
	launch := func(kubeconfig, ahead string) *processtest.Process {
		return processtest.Launch(t, skewed, []string{"REDIS_URL=" + server.URL(), "KUBECONFIG=" + kubeconfig, envClock + "=" + ahead}, append([]string{patient}, issuer.flags()...)...)
	}
	suspicious := launch(api.config, "-3600")
	unverified := unverifiedKubeconfig(t, api.config)
	right, ahead, behind := launch(api.config, "0"), launch(unverified, "3600"), launch(unverified, "-3600")
	replicas := []*processtest.Process{right, ahead, behind}
	for _, p := range replicas {
		p.AwaitReady()
	}
	inForce(t, replicas, "clock")
	eventually(t, "the log says that the API server's certificate is not valid yet", func() bool {
		return strings.Contains(suspicious.Log.String(), "not yet valid")
	})

	exactByRedis(t, replicas, 30)

	passes := func(p *processtest.Process, tier string) bool {
		return ask(t, p, "tier="+tier+"&user=probe").enforcement() == "disabled"
	}
	for tier, want := range map[string][]bool{"clock-half-past": {true, false, true}, "clock-half-before": {false, false, true}} {
		for i, p := range replicas {
			if got := passes(p, tier); got != want[i] {
				t.Errorf("%s: the kill switch passes requests: %v with replica %d of right, ahead and behind; want %v", tier, got, i, want[i])
			}
		}
	}
	for left, want := range map[time.Duration][]int{30 * time.Minute: {200, 401, 200}, -30 * time.Minute: {401, 401, 200}} {
		token := issuer.token(t, left)
		for i, p := range replicas {
			if got := ask(t, p, "tier=clock", "Authorization", "Bearer "+token).status; got != want[i] {
				t.Errorf("a token that expires in %v: %d from replica %d of right, ahead and behind; want %d", left, got, i, want[i])
			}
		}
	}
	note(t, "replicas an hour ahead, an hour behind and right, together: 30 of 30 a minute admitted, each tells the same moment to retry")
	note(t, "an hour ahead: kill switches and tokens end an hour early; behind: an hour late")
}

// exactByRedis spends a minute's budget at all replicas in turn and compares what each says of the rest of
// the minute.
func exactByRedis(t *testing.T, replicas []*processtest.Process, perMinute int) {
	t.Helper()
	var all answers
	for i := range 2 * perMinute {
		all = append(all, ask(t, replicas[i%len(replicas)], "tier=clock&user=u"))
	}
	all.allDecided(t)
	if n := all.admitted(); len(n) != perMinute && all[len(all)-1].received.Sub(all[0].sent) < minute {
		t.Errorf("%d admitted, want %d", len(n), perMinute)
	}
	first, rejected := all[0], all.all(func(a answer) bool { return a.status == 429 })
	for _, a := range rejected {
		milliseconds, err := strconv.Atoi(a.header.Get("retry-after-ms"))
		if err != nil {
			t.Fatalf("retry-after-ms: %v", err)
		}
		wait := time.Duration(milliseconds) * time.Millisecond
		// Redis counted a minute from a moment while the first was asked to one while this was, but for a
		// rejection that is remembered: then it was another's, and the client is told a little more.
		soonest, latest := first.sent.Add(minute), first.received.Add(minute+rejected.slowest()+2*time.Millisecond)
		if a.received.Add(wait).Before(soonest) || a.sent.Add(wait).After(latest) {
			t.Errorf("told to wait %v until %s, which is not from %s to %s", wait, a.sent.Add(wait), soonest, latest)
		}
	}
}

// switchedUntil returns a tier with a kill switch that expires in some time, or did.
func switchedUntil(name string, in time.Duration) *v1alpha1.RateLimitTier {
	object := newTier(name, "", 30, 0)
	object.Spec.KillSwitch = &v1alpha1.KillSwitch{Engaged: ptr.To(true), Reason: "drill", ExpiresAt: ptr.To(metav1.NewTime(time.Now().Add(in)))}
	return object
}

// unverifiedKubeconfig returns a kubeconfig that believes every API server: the certificate of the test's is
// minutes old, and for a clock that is an hour behind not valid yet.
func unverifiedKubeconfig(t *testing.T, file string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.CertificateAuthority, cluster.CertificateAuthorityData, cluster.InsecureSkipTLSVerify = "", nil, true
	}
	file = filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// issuer issues JSON Web Tokens.
type issuer struct {
	key  ed25519.PrivateKey
	keys *httptest.Server
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	set := fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","use":"sig","kid":"k","x":%q}]}`, base64.RawURLEncoding.EncodeToString(public))
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, set) }))
	t.Cleanup(keys.Close)
	return &issuer{private, keys}
}

func (i *issuer) flags() []string {
	return []string{"--identity", "jwt,address", "--jwt-jwks-url", i.keys.URL, "--jwt-issuer", "drill", "--jwt-audience", "api"}
}

// token returns one that expires in some time, or did.
func (i *issuer) token(t *testing.T, left time.Duration) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{"iss": "drill", "aud": "api", "sub": "token", "exp": time.Now().Add(left).Unix()})
	token.Header["kid"] = "k"
	signed, err := token.SignedString(i.key)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// TestClockOfRedis sets the clock of Redis an hour ahead and back again.
func TestClockOfRedis(t *testing.T) {
	t.Parallel()
	const perMinute = 20
	server, clock := redistest.StartWithClock(t)
	api := shared.installed(t)
	api.apply(t, newTier("clock-of-redis", "", perMinute, 1000))
	replicas := api.start(t, 2, server.URL(), patient)
	inForce(t, replicas, "clock-of-redis")
	// spend asks until a request is rejected, and returns how many were admitted and the rejection.
	spend := func(user string) (int, answer) {
		t.Helper()
		for admitted := range 10 * perMinute {
			a := ask(t, replicas[admitted%2], "tier=clock-of-redis&user="+user)
			if !a.decided() {
				t.Fatalf("%s: %d %v", user, a.status, a.header)
			}
			if a.status == http.StatusTooManyRequests {
				return admitted, a
			}
		}
		t.Fatalf("%s: more than %d admitted", user, 10*perMinute)
		return 0, answer{}
	}
	waitOf := func(a answer) time.Duration {
		seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(seconds) * time.Second
	}

	if n, _ := spend("u"); n != perMinute {
		t.Errorf("%d admitted, want %d", n, perMinute)
	}
	clock.Set(time.Hour)
	time.Sleep(500 * time.Millisecond) // the replicas' memory of rejections
	ahead, a := spend("u")
	if ahead != perMinute || waitOf(a) > minute {
		t.Errorf("an hour ahead %d admitted and then told to wait %v, want a whole budget anew and a minute at the most", ahead, waitOf(a))
	}
	if n := entries(t, server.Client, "u", day); n != 2*perMinute {
		t.Errorf("an hour ahead the day has %d entries, want %d", n, 2*perMinute)
	}
	clock.Set(0)
	time.Sleep(500 * time.Millisecond)
	back, a := spend("u")
	if back != 0 || waitOf(a) < 59*time.Minute || waitOf(a) > 61*time.Minute {
		t.Errorf("back again %d admitted and then told to wait %v, want none and an hour", back, waitOf(a))
	}
	if n, a := spend("new"); n != perMinute || waitOf(a) > minute {
		t.Errorf("another user has %d admitted and is told to wait %v", n, waitOf(a))
	}
	if err := server.Client.Unlink(context.Background(), limiter.Subject{User: "u"}.Key(minute)).Err(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	if n, _ := spend("u"); n != perMinute {
		t.Errorf("with the log unlinked %d admitted, want %d", n, perMinute)
	}
	note(t, "Redis an hour ahead: a user with a spent minute (%d) was admitted %d times more at once; the day went on counting", perMinute, ahead)
	note(t, "and back: that user was admitted %d times and told to wait %v; others were not affected; unlinking its key ended that", back, waitOf(a))
}
