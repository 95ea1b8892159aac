// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"fmt"
	"net"
	"net/http"
	"sort"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// envoy asks for checks over gRPC, as Envoy's ext_authz filter does.
type envoy struct {
	client authv3.AuthorizationClient
}

func startEnvoy(t testing.TB, e *endpoint) envoy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := e.NewGRPCServer()
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	connection, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return envoy{authv3.NewAuthorizationClient(connection)}
}

// request is what Envoy sends for a GET from an address; the headers are those of the client and in
// lower case, as in HTTP/2.
func request(address string, extensions map[string]string, headers ...string) *authv3.CheckRequest {
	all := map[string]string{":authority": "api.example", ":path": "/v1/chat?tier=enterprise", ":method": "GET", "x-forwarded-for": "198.51.100.66"}
	for i := 0; i+1 < len(headers); i += 2 {
		all[headers[i]] = headers[i+1]
	}
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 4711}}}}},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Id: "1", Method: all[":method"], Path: all[":path"], Host: all[":authority"], Scheme: "https", Protocol: "HTTP/2", Headers: all}},
		ContextExtensions: extensions,
	}}
}

// raw sends the headers one by one, as Envoy does with encode_raw_headers.
func raw(r *authv3.CheckRequest, headers ...string) *authv3.CheckRequest {
	http := r.GetAttributes().GetRequest().GetHttp()
	http.Headers, http.HeaderMap = nil, new(corev3.HeaderMap)
	for i := 0; i+1 < len(headers); i += 2 {
		http.HeaderMap.Headers = append(http.HeaderMap.Headers, &corev3.HeaderValue{Key: headers[i], RawValue: []byte(headers[i+1])})
	}
	return r
}

// verdictOf is a response as Envoy acts on it.
type verdict struct {
	Code                    codes.Code
	Status                  int32
	ToApplication, ToClient []string // "name: value", "+name: value" if appended
	Removed                 []string
	Body                    string
}

func (v envoy) check(t testing.TB, r *authv3.CheckRequest) verdict {
	t.Helper()
	response, err := v.client.Check(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	lines := func(options []*corev3.HeaderValueOption) []string {
		var all []string
		for _, o := range options {
			line := o.GetHeader().GetKey() + ": " + o.GetHeader().GetValue()
			switch o.GetAppendAction() {
			case corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD:
			case corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD:
				line = "+" + line
			default:
				t.Errorf("%s: %v", line, o.GetAppendAction())
			}
			all = append(all, line)
		}
		sort.Strings(all)
		return all
	}
	d, ok := response.GetDeniedResponse(), response.GetOkResponse()
	return verdict{Code: codes.Code(response.GetStatus().GetCode()), Status: int32(d.GetStatus().GetCode()), ToApplication: lines(ok.GetHeaders()),
		ToClient: append(lines(ok.GetResponseHeadersToAdd()), lines(d.GetHeaders())...), Removed: ok.GetHeadersToRemove(), Body: strings.TrimSpace(d.GetBody())}
}

func TestExtAuthzGRPC(t *testing.T) {
	e := newEndpoint(realLimiter(t, redistest.Start(t)), nil, budget("free", 5, 100), budget("one", 1, 100), budget("zero", 0, 100))
	v := startEnvoy(t, e)
	one := map[string]string{"tier": "one", "route": "chat"}
	const policy = `"minute";q=1;w=60, "day";q=100;w=86400`
	admitted := verdict{Code: codes.OK, ToClient: []string{`RateLimit-Policy: ` + policy, `RateLimit: "minute";r=0, "day";r=99`,
		"X-RateLimit-Limit: 1", "X-RateLimit-Remaining: 0", "X-RateLimit-Window: minute", "X-Tierlimit-Tier: one"}}
	if diff := cmp.Diff(admitted, v.check(t, request("203.0.113.7", one))); diff != "" {
		t.Errorf("admitted: -want +got:\n%s", diff)
	}
	got := v.check(t, request("203.0.113.7", one))
	var kept []string
	for _, line := range got.ToClient {
		if strings.HasPrefix(strings.ToLower(line), "retry-after") {
			kept = append(kept, strings.SplitN(line, ":", 2)[0])
		}
	}
	if got.Code != codes.PermissionDenied || got.Status != 429 || len(kept) != 2 || !strings.Contains(got.Body, "quota-exceeded") ||
		!strings.Contains(strings.Join(got.ToClient, "\n"), "Content-Type: application/problem+json") {
		t.Errorf("rejected: %+v", got)
	}
	for name, tc := range map[string]struct {
		reason  string
		request *authv3.CheckRequest
		status  int32
		body    string
	}{
		"SameNetwork":  {"another address is another caller", request("203.0.113.8", one), 0, ""},
		"ForgedRealIP": {"the client's X-Real-IP is not believed", request("203.0.113.7", one, "x-real-ip", "203.0.113.99"), 429, "quota-exceeded"},
		"RealIPTwice":  {"however often", raw(request("203.0.113.7", one), "x-real-ip", "1.1.1.1", "x-real-ip", "2.2.2.2"), 429, "quota-exceeded"},
		"Zero":         {"a budget of 0", request("203.0.113.7", map[string]string{"tier": "zero"}), 429, "admits no requests"},
		"Unknown":      {"a typing error in the route", request("203.0.113.7", map[string]string{"teir": "one"}), 400, `unknown parameter \"teir\"`},
		"BadTier":      {"a name that cannot be", request("203.0.113.7", map[string]string{"tier": "One"}), 400, "cannot be the name"},
		"Exempt":       {"the method is that of the request", request("203.0.113.7", map[string]string{"tier": "one", "route": "chat", "exempt": "OPTIONS"}, ":method", "OPTIONS"), 0, ""},
		"NoAddress":    {"a Unix socket has no address", request("", map[string]string{"tier": "one"}), 400, `give the parameter`},
		"Nothing":      {"an empty request is refused, not a panic", &authv3.CheckRequest{}, 400, "give the parameter"},
		"User":         {"the route's owner may name a user", request("", map[string]string{"tier": "one", "user": "alice"}), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := v.check(t, tc.request)
			if got.Status != tc.status || (got.Code == codes.OK) != (tc.status == 0) || !strings.Contains(got.Body, tc.body) {
				t.Errorf("%s: %+v, want status %d and %q", tc.reason, got, tc.status, tc.body)
			}
		})
	}
}

func TestExtAuthzGRPCIdentity(t *testing.T) {
	cases := map[string]struct {
		reason  string
		options func(*Options)
		request *authv3.CheckRequest
		want    limiter.Subject
		refused int32
	}{
		"Header":       {reason: "a header that Envoy sets", options: identifiedBy(t, "header:X-User"), request: request("203.0.113.7", nil, "x-user", "alice"), want: limiter.Subject{User: "alice"}},
		"HeaderJoined": {reason: "Envoy joins two with a comma", options: identifiedBy(t, "header:X-User"), request: request("203.0.113.7", nil, "x-user", "alice,bob"), refused: 400},
		"HeaderRaw":    {reason: "or sends them one by one", options: identifiedBy(t, "header:X-User"), request: raw(request("203.0.113.7", nil), "x-user", "cn=alice,dc=x"), want: limiter.Subject{User: "cn=alice,dc=x"}},
		"HeaderTwice":  {reason: "of which one is the client's", options: identifiedBy(t, "header:X-User"), request: raw(request("203.0.113.7", nil), "x-user", "alice", "x-user", "bob"), refused: 400},
		"Forwarded":    {reason: "X-Forwarded-For where configured", options: identifiedBy(t, "forwarded-for:1"), request: request("10.0.0.1", nil, "x-forwarded-for", "198.51.100.1,203.0.113.7"), want: limiter.Subject{User: "203.0.113.7", Kind: "ip"}},
		"IPv6":         {reason: "a /64 is one caller", request: request("2001:db8:1:2::9", nil), want: limiter.Subject{User: "2001:db8:1:2::/64", Kind: "ip"}},
		"NoIdentity":   {reason: "nobody is calling", options: identifiedBy(t, "header:X-User"), request: request("203.0.113.7", nil), refused: 403},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			asked := new(recorder)
			got := startEnvoy(t, newEndpoint(asked, tc.options, budget("free", 5, 100))).check(t, tc.request)
			if got.Status != tc.refused {
				t.Fatalf("%s: %+v, want status %d", tc.reason, got, tc.refused)
			}
			if tc.refused == 0 {
				if diff := cmp.Diff([]limiter.Subject{tc.want}, asked.subjects); diff != "" {
					t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
				}
			}
		})
	}
}

func TestExtAuthzGRPCBehindAnotherAuthService(t *testing.T) {
	var asked http.Header
	admits := guardedBy(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header
		w.Header().Set("X-Auth-Request-User", "alice")
		w.Header().Set("Authorization", "Bearer upstream")
		w.Header().Add("Set-Cookie", "a=1")
		w.Header().Add("Set-Cookie", "b=2")
		w.Header().Set("Etag", "x")
	})
	got := startEnvoy(t, newEndpoint(new(recorder), admits, budget("free", 5, 100))).check(t, request("203.0.113.7", nil, "x-auth-request-tier", "pro", "x-original-url", "http://api.example/public", "x-control", "a\x01b"))
	want := verdict{Code: codes.OK, ToApplication: []string{"Authorization: Bearer upstream", "X-Auth-Request-User: alice"},
		Removed: []string{"X-Auth-Request-Org", "X-Auth-Request-Tier"}}
	got.ToClient = slicesWithout(got.ToClient, "X-RateLimit", "RateLimit", "X-Tierlimit")
	want.ToClient = []string{"+Set-Cookie: a=1", "+Set-Cookie: b=2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("admitted: -want +got:\n%s", diff)
	}
	if forged := asked["X-Original-Url"]; forged != nil {
		t.Errorf("the other service is told of a URL that the client has chosen: %v", forged)
	}
	for name, want := range map[string]string{"X-Forwarded-Proto": "https", "X-Forwarded-Method": "GET", "X-Forwarded-Host": "api.example", "X-Forwarded-Uri": "/v1/chat?tier=enterprise", "X-Real-Ip": "203.0.113.7"} {
		if diff := cmp.Diff([]string{want}, asked[name]); diff != "" {
			t.Errorf("the other service is told %s: -want +got:\n%s", name, diff)
		}
	}
	refuses := func(status int) func(*Options) {
		return guardedBy(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/sign-in")
			w.WriteHeader(status)
			fmt.Fprint(w, "sign in")
		})
	}
	// A message of the protocol is UTF-8; what another service answers need not be.
	latin1 := guardedBy(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Page", "J\xfcrgen")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte("J\xfcrgen"))
	})
	if got := startEnvoy(t, newEndpoint(new(recorder), latin1, budget("free", 5, 100))).check(t, request("203.0.113.7", nil)); got.Status != 401 || got.Body != "J\ufffdrgen" {
		t.Errorf("an answer in Latin-1: %+v", got)
	}
	for status, want := range map[int]verdict{
		401: {Code: codes.Unauthenticated, Status: 401, ToClient: []string{"Location: /sign-in"}, Body: "sign in"},
		302: {Code: codes.PermissionDenied, Status: 302, ToClient: []string{"Location: /sign-in"}, Body: "sign in"},
		418: {Code: codes.PermissionDenied, Status: 403, ToClient: []string{"Location: /sign-in"}, Body: "sign in"}, // the protocol has no 418
	} {
		got := startEnvoy(t, newEndpoint(new(recorder), refuses(status), budget("free", 5, 100))).check(t, request("203.0.113.7", nil))
		got.ToClient = slicesWithout(got.ToClient, "Date", "Content-Type")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("refused with %d: -want +got:\n%s", status, diff)
		}
	}
}

// slicesWithout returns the lines that begin with none of the prefixes.
func slicesWithout(lines []string, prefixes ...string) []string {
	var left []string
next:
	for _, line := range lines {
		for _, prefix := range prefixes {
			if strings.HasPrefix(line, prefix) {
				continue next
			}
		}
		left = append(left, line)
	}
	return left
}

func TestExtAuthzGRPCStoreFailure(t *testing.T) {
	server := redistest.Start(t)
	v := startEnvoy(t, newEndpoint(realLimiter(t, server), nil, budget("free", 5, 100), budget("open", 5, 100, failOpenTier)))
	server.Stop()
	if got := v.check(t, request("203.0.113.7", nil)); got.Status != 503 || got.Code != codes.PermissionDenied {
		t.Errorf("FailClosed: %+v", got)
	}
	if got := v.check(t, request("203.0.113.7", map[string]string{"tier": "open"})); got.Code != codes.OK || !strings.Contains(strings.Join(got.ToClient, "\n"), "X-Tierlimit-Enforcement: failed-open") {
		t.Errorf("FailOpen: %+v", got)
	}
}
