// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tierlimit/tierlimit/internal/clustertest"
	"github.com/tierlimit/tierlimit/internal/proxytest"
)

// TestPrintIngressNginx compares what the program prints with the files of this repository.
func TestPrintIngressNginx(t *testing.T) {
	for argument, file := range map[string]string{"configmap": "configmap.yaml", "annotations": "annotations.yaml"} {
		want, err := os.ReadFile(filepath.Join(clustertest.Root(), "config", "ingress-nginx", file))
		if err != nil {
			t.Fatal(err)
		}
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), []string{"ingress-nginx", argument}, func(string) string { return "" }, &stdout, &stderr)
		if code != 0 || stderr.Len() > 0 || !bytes.Equal(want, stdout.Bytes()) {
			t.Errorf("ingress-nginx %s: code %d, %s, and not what is in %s", argument, code, &stderr, file)
		}
	}
}

// send asks for a check with headers, name, value, name, value.
func (p *process) send(query string, headers ...string) reply {
	p.t.Helper()
	request, err := http.NewRequest(http.MethodGet, p.check+"/check?"+query, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatalf("%v\n%s", err, p.log)
	}
	defer response.Body.Close()
	return reply{status: response.StatusCode, header: response.Header}
}

func TestIdentityFlags(t *testing.T) {
	auth := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Cookie") == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("X-Org", "acme")
	}))
	defer auth.Close()
	p := start(t, []string{"IDENTITY_HASH_KEY=pepper"}, "--tiers", "config/samples", "--identity", "header:X-User, api-key:X-Api-Key, anonymous",
		"--auth-url", auth.URL, "--auth-tenant-header", "X-Org", "--rate-limit-headers", "ratelimit")
	if got := p.send("tier=free"); got.status != http.StatusUnauthorized {
		t.Errorf("without a cookie: %v", got)
	}
	for _, caller := range [][]string{{"X-User", "alice"}, {"X-Api-Key", "sk-secret"}, {"X-Forwarded-User", "eve"}} {
		for remaining := 4; remaining >= 0; remaining-- {
			got := p.send("tier=free", append(caller, "Cookie", "session=1")...)
			if want := fmt.Sprintf(`"minute";r=%d, "day";r=%d`, remaining, 95+remaining); got.status != 200 || got.header.Get("RateLimit") != want || got.header.Get("X-RateLimit-Limit") != "" {
				t.Fatalf("%v: %v, want %s", caller, got, want)
			}
		}
	}
	if got := p.send("tier=free&auth=none", "X-Real-IP", "203.0.113.7"); got.header.Get("RateLimit") != `"minute";r=4, "day";r=99` {
		t.Errorf("anonymous callers of no tenant: %v", got)
	}
	if strings.Contains(p.log.String(), "secret") {
		t.Error("the log shows an API key")
	}
}

// TestOtherListeners asks the two listeners that are off by default.
func TestOtherListeners(t *testing.T) {
	envoy, backend := proxytest.FreeAddress(t), proxytest.FreeAddress(t)
	p := start(t, nil, "--tiers", "config/samples", "--ext-authz-bind-address", envoy, "--error-backend", backend+"?tier=free")
	connection, err := grpc.NewClient(envoy, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	request := &authv3.CheckRequest{Attributes: &authv3.AttributeContext{ContextExtensions: map[string]string{"tier": "free", "user": "alice"}}}
	var last codes.Code
	for range 6 {
		response, err := authv3.NewAuthorizationClient(connection).Check(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		last = codes.Code(response.GetStatus().GetCode())
	}
	if last != codes.PermissionDenied {
		t.Errorf("the sixth check over gRPC: %v", last)
	}
	limited := func() int {
		request, _ := http.NewRequest(http.MethodGet, "http://"+backend+"/", nil)
		request.Header.Set("X-Forwarded-For", "203.0.113.7")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	if got := limited(); got != http.StatusForbidden {
		t.Errorf("the error backend, for a caller with room: %d", got)
	}
	for range 5 {
		p.send("tier=free", "X-Real-IP", "203.0.113.7")
	}
	if got := limited(); got != http.StatusTooManyRequests {
		t.Errorf("the error backend, for a caller over the budget: %d", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go func() {
		defer cancel()
		if err := p.stop(); err != nil {
			t.Errorf("the process ended with %v", err)
		}
	}()
	for ctx.Err() == nil { // checks until the end are answered
		if _, err := authv3.NewAuthorizationClient(connection).Check(ctx, request); err != nil && ctx.Err() == nil && !strings.Contains(err.Error(), "refused") {
			t.Errorf("a check while the process ends: %v", err)
		}
	}
}
