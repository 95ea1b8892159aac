// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWrongCommandLine expects one line that says what to do, and never a password.
func TestWrongCommandLine(t *testing.T) {
	occupied := strings.TrimPrefix(start(t, nil, "--tiers", "config/samples").check, "http://")
	empty := t.TempDir()
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "free.yaml"), []byte("kind: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	samples := filepath.Join("..", "..", "config", "samples")
	cases := map[string]struct {
		args []string
		env  map[string]string
		code int
		want string
	}{
		"UnknownFlag":     {args: []string{"--tires", "x"}, code: 2, want: "unknown flag: --tires"},
		"BadValue":        {args: []string{"--redis-timeout", "soon"}, code: 2, want: `invalid argument "soon" for "--redis-timeout"`},
		"NegativeTimeout": {args: []string{"--tiers", samples, "--redis-timeout", "-1s"}, code: 2, want: "--redis-timeout is -1s"},
		"Argument":        {args: []string{"config/samples"}, code: 2, want: "unexpected argument"},
		"NoSuchCommand":   {args: []string{"gte", "8421"}, code: 2, want: `unexpected argument "gte": there are flags, and the commands that tierlimit help lists`},
		"NotFirst":        {args: []string{"--tiers", samples, "get", "s3cret"}, code: 2, want: "unexpected argument"},
		"Desk":            {args: []string{"get"}, code: 2, want: "no USER: say whose budget (see tierlimit get --help)"},
		"NoRedis":         {code: 2, want: "no Redis: set REDIS_URL"},
		"EmptyTiers":      {args: []string{"--tiers="}, code: 2, want: "--tiers is empty"},
		"BadAddress":      {args: []string{"--tiers", samples, "--bind-address", "8080"}, code: 2, want: `--bind-address is "8080": use [host]:port`},
		"BadPort":         {args: []string{"--tiers", samples, "--metrics-bind-address", ":99999"}, code: 2, want: `--metrics-bind-address is ":99999"`},
		"OpenAdmin":       {args: []string{"--tiers", samples, "--admin-bind-address", ":8444"}, code: 2, want: `--admin-bind-address is ":8444": in local mode, where nobody is authenticated, use a loopback address`},
		"OtherAdmin":      {args: []string{"--tiers", samples, "--admin-bind-address", "192.0.2.1:8444"}, code: 2, want: "use a loopback address, such as 127.0.0.1:8444"},
		"BadAdmin":        {args: []string{"--tiers", samples, "--admin-bind-address", "8444"}, code: 2, want: `--admin-bind-address is "8444": use [host]:port`},
		"CheckOff":        {args: []string{"--tiers", samples, "--bind-address", "0"}, code: 2, want: `--bind-address is "0"`},
		"BadDefaultTier":  {args: []string{"--tiers", samples, "--default-tier", "Free"}, code: 2, want: `--default-tier is "Free"`},
		"BadLevel":        {args: []string{"--tiers", samples, "--log-level", "loud"}, code: 2, want: "use debug, info or error"},
		"BadFormat":       {args: []string{"--tiers", samples, "--log-format", "xml"}, code: 2, want: "use text or json"},
		"BadSwitch":       {args: []string{"--tiers", samples}, env: map[string]string{"RATE_LIMIT_DISABLED": "maybe"}, code: 2, want: `RATE_LIMIT_DISABLED is "maybe": use true or false`},
		"LongTimeout":     {args: []string{"--tiers", samples, "--redis-timeout", "61s"}, code: 2, want: "--redis-timeout is 1m1s: use a time above 0 and up to 1m0s"},
		"OneWord":         {args: []string{"--redis-url redis://:secret@h"}, code: 2, want: "unknown flag: --redis-url, and more in the same word"},
		"ThreeDashes":     {args: []string{"---redis-url=redis://:secret@h"}, code: 2, want: "a flag has no name, or three dashes"},
		"LongMemory":      {args: []string{"--tiers", samples, "--deny-memory", "61s"}, code: 2, want: "--deny-memory is 1m1s: use a time from 0 to 1m0s"},
		"NegativeMemory":  {args: []string{"--tiers", samples, "--deny-memory", "-1ms"}, code: 2, want: "--deny-memory is -1ms"},
		"OneDash":         {args: []string{"-redis-url=redis://:secret@h"}, code: 2, want: "unknown shorthand flag"},
		"URLAsArgument":   {args: []string{"--redis-url", "=", "redis://:secret@h"}, code: 2, want: "unexpected argument"},
		"BadURLPort":      {args: []string{"--tiers", samples, "--redis-url", "redis://h:99999"}, code: 1, want: "the port is not a number up to 65535"},
		"Unquoted":        {args: []string{"--redis-url", "redis://:se", "cret@h:6379"}, code: 2, want: "quote a value that contains a space"},
		"BadURLOption":    {args: []string{"--tiers", samples, "--redis-url", "redis://h?pool_size=secret"}, code: 1, want: "invalid pool_size number"},
		"BadURL":          {args: []string{"--tiers", samples, "--redis-url", "redis://:se/cret@h"}, code: 1, want: "--redis-url (or REDIS_URL): "},
		"BadEnvURL":       {args: []string{"--tiers", samples}, env: map[string]string{"REDIS_URL": "http://:secret@h"}, code: 1, want: "does not begin with redis://"},
		"NoMaster":        {args: []string{"--tiers", samples, "--redis-url", "redis+sentinel://:secret@a,b"}, code: 1, want: "--redis-url (or REDIS_URL): the query parameter master is missing"},
		"SentinelSecret":  {args: []string{"--tiers", samples, "--redis-url", "redis+sentinel://a?master=m&sentinel_password=se@cret"}, code: 1, want: "--redis-url (or REDIS_URL): a '#' or '@' where none can be"},
		"ClusterDatabase": {args: []string{"--tiers", samples}, env: map[string]string{"REDIS_URL": "redis+cluster://:secret@a,b/1"}, code: 1, want: "Redis Cluster has database 0 only"},
		"ClusterPort":     {args: []string{"--tiers", samples}, env: map[string]string{"REDIS_URL": "redis+cluster://:secret@a:1,b:99999"}, code: 1, want: "host 2: the port is not a number up to 65535"},
		"TLSNoFile":       {args: []string{"--tiers", samples, "--redis-url", "rediss://:secret@h?tls_ca_file=/no/such/ca.crt"}, code: 1, want: "--redis-url (or REDIS_URL): tls_ca_file: open /no/such/ca.crt: no such file or directory"},
		"TLSWithoutTLS":   {args: []string{"--tiers", samples, "--redis-url", "redis://:secret@h?tls_ca_file=/no/such/ca.crt"}, code: 1, want: "the query parameter tls_ca_file needs a URL that begins with rediss"},
		"NoSuchDir":       {args: []string{"--tiers", "no/such/dir"}, code: 1, want: "--tiers: open no/such/dir: no such file or directory"},
		"EmptyDir":        {args: []string{"--tiers", empty}, code: 1, want: "no *.yaml file with a RateLimitTier"},
		"BrokenFile":      {args: []string{"--tiers", broken}, code: 1, want: "free.yaml:1: "},
		"Occupied":        {args: []string{"--tiers", samples, "--bind-address", occupied}, code: 1, want: "--bind-address: listen tcp " + occupied},
		"NoKubeconfig":    {args: []string{"--kubeconfig", "no/such/file"}, env: map[string]string{"REDIS_URL": "redis://h"}, code: 1, want: "no access to a cluster: "},
		"BadIdentity":     {args: []string{"--tiers", samples, "--identity", "addr"}, code: 2, want: `--identity: "addr" is not one of address[:HEADER]`},
		"NeverReached":    {args: []string{"--tiers", samples, "--identity", "address,jwt", "--jwt-jwks-url", "http://h/", "--jwt-issuer", "i", "--jwt-audience", "a"}, code: 2, want: `"jwt" is never reached`},
		"NoJWKS":          {args: []string{"--tiers", samples, "--identity", "jwt"}, code: 2, want: "--identity lists jwt: give --jwt-jwks-url"},
		"NoAudience":      {args: []string{"--tiers", samples, "--identity", "jwt", "--jwt-jwks-url", "http://h/", "--jwt-issuer", "i"}, code: 2, want: "give --jwt-audience"},
		"UnusedJWT":       {args: []string{"--tiers", samples, "--jwt-jwks-url", "http://h/"}, code: 2, want: "--jwt-jwks-url has no effect: --identity does not list jwt"},
		"UnusedClaim":     {args: []string{"--tiers", samples, "--jwt-tier-claim", "tier"}, code: 2, want: "--jwt-tier-claim has no effect"},
		"UnusedAuth":      {args: []string{"--tiers", samples, "--auth-timeout", "2s"}, code: 2, want: "--auth-timeout has no effect: give --auth-url"},
		"EmptyAuth":       {args: []string{"--tiers", samples, "--auth-url", ""}, code: 2, want: "--auth-url is empty"},
		"BadJWKS":         {args: []string{"--tiers", samples, "--identity", "jwt", "--jwt-jwks-url", "file:///secret", "--jwt-issuer", "i", "--jwt-audience", "a"}, code: 2, want: "--jwt-jwks-url: use http://host"},
		"BadAuthURL":      {args: []string{"--tiers", samples, "--auth-url", "user:secret@h"}, code: 2, want: "--auth-url: use http://host"},
		"AuthPassword":    {args: []string{"--tiers", samples, "--auth-url", "http://joe:secret@h/"}, code: 2, want: "--auth-url: a URL with a user or password is not supported"},
		"AuthPort":        {args: []string{"--tiers", samples, "--auth-url", "http://h:99999/"}, code: 2, want: "--auth-url: the port is not a number"},
		"SameHeaders":     {args: []string{"--tiers", samples, "--auth-url", "http://h/", "--auth-user-header", "X-U", "--auth-tier-header", "x-u"}, code: 2, want: `--auth-tier-header is "x-u", which another`},
		"LongAuth":        {args: []string{"--tiers", samples, "--auth-url", "http://h/", "--auth-timeout", "11s"}, code: 2, want: "--auth-timeout is 11s: use a time above 0 and up to 10s"},
		"BadAuthHeader":   {args: []string{"--tiers", samples, "--auth-url", "http://h/", "--auth-user-header", "X User"}, code: 2, want: `--auth-user-header is "X User", which is not the name of a header`},
		"BadHeaders":      {args: []string{"--tiers", samples, "--rate-limit-headers", "draft"}, code: 2, want: `--rate-limit-headers: "draft" is not one of x-ratelimit`},
		"BadGRPC":         {args: []string{"--tiers", samples, "--ext-authz-bind-address", "9001"}, code: 2, want: `--ext-authz-bind-address is "9001": use [host]:port`},
		"BadBackend":      {args: []string{"--tiers", samples, "--error-backend", "?tier=free"}, code: 2, want: `--error-backend is "?tier=free": use [host]:port`},
		"BackendTier":     {args: []string{"--tiers", samples, "--error-backend", ":0?teir=free"}, code: 2, want: `unknown parameter "teir"`},
		"NoReplicas":      {args: []string{"--tiers", samples, "--replicas", "0"}, code: 2, want: "--replicas is 0: use 1 to 100000"},
		"LocalService":    {args: []string{"--tiers", samples, "--service", "tierlimit"}, code: 2, want: "--service has no effect in local mode: give the number of --replicas"},
		"BadService":      {args: []string{"--service", "Tier limit"}, env: map[string]string{"REDIS_URL": "redis://h"}, code: 2, want: `--service is "Tier limit", which cannot be the name of a Service`},
		"BadNamespace":    {args: []string{"--service", "tierlimit"}, env: map[string]string{"REDIS_URL": "redis://h", "POD_NAMESPACE": "a.b"}, code: 2, want: `POD_NAMESPACE is "a.b"`},
		"IngressNginx":    {args: []string{"ingress-nginx"}, code: 2, want: "use 'tierlimit ingress-nginx configmap'"},
		"IngressNginxBad": {args: []string{"ingress-nginx", "secret"}, code: 2, want: "use 'tierlimit ingress-nginx configmap'"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), tc.args, func(name string) string { return tc.env[name] }, &stdout, &stderr)
			lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
			last := lines[len(lines)-1]
			if code != tc.code || !strings.HasPrefix(last, "tierlimit: ") || !strings.Contains(last, tc.want) || stdout.Len() > 0 {
				t.Errorf("code %d, want %d with %q:\n%s%s", code, tc.code, tc.want, &stdout, &stderr)
			}
			for i, line := range lines[:len(lines)-1] {
				if !strings.Contains(line, "level=") { // the log of a start that went some way
					t.Errorf("line %d is neither a log line nor the error: %s", i, line)
				}
			}
			if strings.Contains(stderr.String(), "cret") {
				t.Errorf("the password shows:\n%s", &stderr)
			}
		})
	}
}

func TestHelpAndVersion(t *testing.T) {
	var stdout, stderr bytes.Buffer
	none := func(string) string { return "" }
	if code := run(t.Context(), []string{"--help"}, none, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Errorf("--help: code %d, %s", code, &stderr)
	}
	for _, want := range []string{"--tiers DIR", "--redis-url", "redis+sentinel://", "redis+cluster://", "$REDIS_URL", "RATE_LIMIT_DISABLED", "--bind-address", `(default ":8080")`, "--health-probe-bind-address", "--metrics-bind-address", "--default-tier",
		"--identity list", "--auth-url", "--jwt-jwks-url", "--ext-authz-bind-address", "--error-backend", "--rate-limit-headers", "--replicas", "--service", "--deny-memory", "POD_NAMESPACE", "$REDIS_URL", "IDENTITY_HASH_KEY", "ingress-nginx configmap", "get|explain|reset"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("--help does not mention %s:\n%s", want, &stdout)
		}
	}
	stdout.Reset()
	if code := run(t.Context(), []string{"--version"}, none, &stdout, &stderr); code != 0 || !strings.HasPrefix(stdout.String(), "tierlimit ") {
		t.Errorf("--version: code %d, %s", code, &stdout)
	}
}

// TestCommands runs what is no server: help for all commands, and the words that complete a command line.
func TestCommands(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"Help":        {[]string{"help"}, []string{"grant ", "ingress-nginx ", "version "}},
		"HelpOfOne":   {[]string{"help", "get"}, []string{"tierlimit get USER", "--tenant"}},
		"Completion":  {[]string{"completion", "bash"}, []string{"__start_tierlimit"}},
		"Words":       {[]string{"__complete", ""}, []string{"get\t", "simulate\t", "ingress-nginx\t"}},
		"ServerFlags": {[]string{"__complete", "--redis-t"}, []string{"--redis-timeout"}},
		"Recipes":     {[]string{"__complete", "ingress-nginx", ""}, []string{"configmap", "annotations"}},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), tc.args, func(string) string { return "" }, &stdout, &stderr)
			for _, want := range tc.want {
				if code != 0 || !strings.Contains(stdout.String(), want) {
					t.Errorf("code %d, want 0 and %q:\n%s%s", code, want, &stdout, &stderr)
				}
			}
		})
	}
}
