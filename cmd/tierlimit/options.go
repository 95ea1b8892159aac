// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tierlimit/tierlimit/internal/webhookserver"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// Environment variables.
const (
	envRedisURL = "REDIS_URL"
	envDisabled = "RATE_LIMIT_DISABLED"
	envHashKey  = "IDENTITY_HASH_KEY"
	// envNamespace is set by the Deployment from the Pod's own metadata.
	envNamespace = "POD_NAMESPACE"
	// envPod is this replica's Pod. Without it the host name is, which is the same unless the Pod has another.
	envPod = "POD_NAME"
)

// off is the bind address of a server that is not wanted.
const off = "0"

// defaultDenyMemory is short enough for whoever clears a user's log not to notice it.
const defaultDenyMemory = 250 * time.Millisecond

// options is what the command line and the environment ask for.
type options struct {
	tiersDir       string
	redisURL       string
	redisTimeout   time.Duration
	denyMemory     time.Duration
	bindAddress    string
	healthAddress  string
	metricsAddress string
	adminAddress   string
	profiles       bool // --pprof
	defaultTier    string
	kubeconfig     string
	logLevel       string
	logFormat      string
	identity       identityOptions
	headers        webhookserver.HeaderSets
	headerList     string
	grpcAddress    string
	errorBackends  []string
	firstReplicas  int64
	service        string
	namespace      string // of the service; "" if it is not known
	pod            string // name of this replica's Pod
	version        bool
	disabled       bool          // RATE_LIMIT_DISABLED
	ending         ending        // set while it runs
	replicas       *atomic.Int64 // known now
	tracer         trace.Tracer  // nil unless traces are exported
}

// local returns whether the tiers come from a directory instead of a cluster.
func (o options) local() bool { return o.tiersDir != "" }

func flags(o *options) *pflag.FlagSet {
	fs := pflag.NewFlagSet("tierlimit", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.Usage = func() {} // a wrong flag is one line, not a page
	fs.StringVar(&o.tiersDir, "tiers", "", "local mode: read RateLimitTiers from the YAML files in `DIR` and follow their changes, instead of from a cluster")
	fs.StringVar(&o.redisURL, "redis-url", "", "Redis to keep the log in, as redis://[user:password@]host[:port][/database], redis+sentinel://[user:password@]host[:port],...?master=NAME or redis+cluster://[user:password@]host[:port],...; with rediss instead of redis for TLS; better given as $"+envRedisURL+", since it carries a password; local mode has an embedded store without it")
	fs.DurationVar(&o.redisTimeout, "redis-timeout", limiter.DefaultTimeout, "longest `time` that a check waits for Redis before the tier's failurePolicy decides")
	fs.DurationVar(&o.denyMemory, "deny-memory", defaultDenyMemory, "longest `time` for which a rejected caller is rejected again without asking Redis; also how long a log that was cleared may still be taken for full; 0 switches it off")
	fs.StringVar(&o.defaultTier, "default-tier", "free", "`name` of the tier for checks that name none, or one that does not exist")
	fs.StringVar(&o.bindAddress, "bind-address", ":8080", "`address` of the check endpoint")
	fs.StringVar(&o.healthAddress, "health-probe-bind-address", ":8081", "`address` of /healthz and /readyz; 0 switches them off")
	fs.StringVar(&o.metricsAddress, "metrics-bind-address", ":8443", "`address` of /metrics: HTTPS with the API server's authentication and authorization, plain HTTP in local mode; 0 switches it off")
	fs.StringVar(&o.adminAddress, "admin-bind-address", defaultAdminAddress, "`address` of the admin API, which 'kubectl tierlimit' asks: HTTPS with the API server's authentication and authorization, plain HTTP and a loopback address in local mode; 0 switches it off")
	fs.BoolVar(&o.profiles, "pprof", false, "serve Go's profiles, /debug/pprof, on the address of /metrics and as protected as those")
	fs.StringVar(&o.grpcAddress, "ext-authz-bind-address", off, "`address` of the check over gRPC, for Envoy's ext_authz (envoy.service.auth.v3); 0 switches it off")
	fs.StringArrayVar(&o.errorBackends, "error-backend", nil, "`ADDRESS?PARAMETERS` of an error backend for ingress-nginx without snippets, such as ':8082?tier=free'; once for each set of parameters")
	fs.StringVar(&o.headerList, "rate-limit-headers", "x-ratelimit,ratelimit,retry-after-ms", "`sets` of headers that tell clients about their budget beside Retry-After; none for none")
	o.identity.flags(fs)
	fs.Int64Var(&o.firstReplicas, "replicas", 1, "`number` of replicas that share a budget while Redis is away (failurePolicy FailLocal); with --service until they have been counted")
	fs.StringVar(&o.service, "service", "", "`name` of the Service whose ready endpoints are the replicas, in the namespace of $"+envNamespace+" or of the service account; not in local mode")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` with the access to the cluster; without it $KUBECONFIG, ~/.kube/config or the service account of the pod")
	fs.StringVar(&o.logLevel, "log-level", "info", "least `level` to log: debug, info or error")
	fs.StringVar(&o.logFormat, "log-format", "", "`format` of the log: text or json (default text in local mode, json in a cluster)")
	fs.BoolVar(&o.version, "version", false, "print the version and exit")
	return fs
}

func usage() string {
	fs := flags(&options{})
	return `tierlimit answers rate limit checks (GET /check?tier=free&user=...) by RateLimitTiers.

In a cluster, where it reads RateLimitTier objects:
  ` + envRedisURL + `=redis://:password@redis:6379 tierlimit
  ` + envRedisURL + `='rediss+sentinel://:password@s1,s2,s3?master=mymaster&tls_ca_file=/etc/redis/ca.crt' tierlimit
  ` + envRedisURL + `=redis+cluster://:password@r1,r2,r3 tierlimit

Local mode, with RateLimitTiers from YAML files:
  tierlimit --tiers config/samples

Print the configuration of ingress-nginx that gives its clients a true 429:
  tierlimit ingress-nginx configmap|annotations

Print what this program was built from:
  tierlimit version [-o json]

See and change what is left of users' budgets, also as kubectl tierlimit:
  tierlimit get|explain|reset|grant|revoke|top|watch|simulate|bench ...
  tierlimit help

Flags:
` + fs.FlagUsagesWrapped(100) + `
Environment:
  ` + envRedisURL + `             the same as --redis-url, which goes first
  ` + envHashKey + `     secret that keys the hashes of credentials and of users, the same on every replica
  ` + envNamespace + `         namespace of --service
  ` + envPod + `              name of this Pod among the endpoints of --service; else the host name
  ` + envDisabled + `   true lets every request of every tier pass (kill switch); Redis is not asked
  OTEL_EXPORTER_OTLP_ENDPOINT   receiver of traces, and OpenTelemetry's other variables
`
}

// parseOptions reads and checks the command line and the environment.
func parseOptions(args []string, getenv func(string) string) (options, error) {
	var o options
	fs := flags(&o)
	if err := fs.Parse(args); err != nil {
		return options{}, withoutValue(err)
	}
	if o.version {
		return o, nil
	}
	if fs.NArg() > 0 {
		return options{}, unexpected(fs.Arg(0))
	}
	if o.redisURL == "" {
		o.redisURL = getenv(envRedisURL)
	}
	o.identity.hashKey = getenv(envHashKey)
	o.namespace = getenv(envNamespace)
	if o.pod = getenv(envPod); o.pod == "" {
		o.pod, _ = os.Hostname() // without a name the addresses of this machine tell
	}
	o.replicas = new(atomic.Int64)
	o.replicas.Store(o.firstReplicas)
	if value := getenv(envDisabled); value != "" {
		var err error
		if o.disabled, err = strconv.ParseBool(value); err != nil {
			return options{}, fmt.Errorf("%s is %q: use true or false", envDisabled, value)
		}
	}
	if o.logFormat == "" {
		o.logFormat = "json"
		if o.local() {
			o.logFormat = "text"
		}
	}
	var err error
	if o.headers, err = webhookserver.ParseHeaderSets(o.headerList); err != nil {
		return options{}, fmt.Errorf("--rate-limit-headers: %w", err)
	}
	return o, o.validate(fs)
}

// unexpected is the error for an argument that is neither a flag nor a command. It is repeated if it can be a
// command that was misspelt, and not if it may be a part of something secret.
func unexpected(argument string) error {
	said := ""
	if len(argument) <= 20 && !strings.ContainsFunc(argument, func(r rune) bool { return (r < 'a' || r > 'z') && r != '-' }) {
		said = fmt.Sprintf(" %q", argument)
	}
	return fmt.Errorf("unexpected argument%s: there are flags, and the commands that tierlimit help lists, which come first; quote a value that contains a space", said)
}

// withoutValue keeps an error from repeating a value that may be a password, as in
// "unknown shorthand flag: 'r' in -redis-url=...", or in "unknown flag: --redis-url redis://..." when
// both are quoted as one word.
func withoutValue(err error) error {
	if message, _, shorthand := strings.Cut(err.Error(), " in -"); shorthand {
		return errors.New(message + "; flags begin with two dashes")
	}
	if message, rest, unknown := strings.Cut(err.Error(), "unknown flag: "); unknown && message == "" {
		if i := strings.IndexAny(rest, " \t\n:/@"); i >= 0 {
			return fmt.Errorf("unknown flag: %s, and more in the same word: give a flag and its value as two, or with '='", rest[:i])
		}
	}
	if strings.Contains(err.Error(), "bad flag syntax: ") {
		return errors.New("a flag has no name, or three dashes: write --NAME VALUE or --NAME=VALUE")
	}
	return err
}

func (o options) validate(fs *pflag.FlagSet) error {
	if fs.Changed("tiers") && o.tiersDir == "" {
		return errors.New("--tiers is empty: give the directory with the tiers")
	}
	if o.redisURL == "" && !o.local() {
		return errors.New("no Redis: set " + envRedisURL + " or --redis-url to redis://[user:password@]host[:port], or redis+sentinel:// or redis+cluster:// with their hosts; only local mode (--tiers DIR) works without")
	}
	if o.redisTimeout <= 0 || o.redisTimeout > limiter.MaxTimeout {
		return fmt.Errorf("--redis-timeout is %v: use a time above 0 and up to %v, such as 500ms", o.redisTimeout, limiter.MaxTimeout)
	}
	if o.denyMemory < 0 || o.denyMemory > limiter.MaxDenyMemory {
		return fmt.Errorf("--deny-memory is %v: use a time from 0 to %v, such as 250ms", o.denyMemory, limiter.MaxDenyMemory)
	}
	if len(validation.IsDNS1123Subdomain(o.defaultTier)) > 0 {
		return fmt.Errorf("--default-tier is %q, which cannot be the name of a RateLimitTier", o.defaultTier)
	}
	if err := o.validateReplicas(fs); err != nil {
		return err
	}
	if err := o.identity.validate(fs); err != nil {
		return err
	}
	if err := o.validateAddresses(); err != nil {
		return err
	}
	if o.logFormat != "text" && o.logFormat != "json" {
		return fmt.Errorf("--log-format is %q: use text or json", o.logFormat)
	}
	if _, err := parseLevel(o.logLevel); err != nil {
		return err
	}
	return nil
}

func (o options) validateAddresses() error {
	for _, address := range []struct {
		flag, value string
		canBeOff    bool
	}{
		{"bind-address", o.bindAddress, false},
		{"health-probe-bind-address", o.healthAddress, true},
		{"metrics-bind-address", o.metricsAddress, true},
		{"admin-bind-address", o.adminAddress, true},
		{"ext-authz-bind-address", o.grpcAddress, true},
	} {
		if err := validateAddress(address.value, address.canBeOff); err != nil {
			return fmt.Errorf("--%s is %q: %w", address.flag, address.value, err)
		}
	}
	if err := o.validateAdminAddress(); err != nil {
		return err
	}
	if o.profiles && o.metricsAddress == off {
		return errors.New("--pprof has no effect with --metrics-bind-address 0: profiles are served on that address")
	}
	for _, backend := range o.errorBackends {
		address, query, _ := strings.Cut(backend, "?")
		if err := validateAddress(address, false); err != nil {
			return fmt.Errorf("--error-backend is %q: %w, then ? and the parameters of the check", backend, err)
		}
		if err := webhookserver.ValidateParameters(query); err != nil {
			return fmt.Errorf("--error-backend is %q: %w", backend, err)
		}
	}
	return nil
}

func validateAddress(address string, canBeOff bool) error {
	if canBeOff && address == off {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return errors.New("use [host]:port, such as :8080 or 127.0.0.1:8080")
	}
	return nil
}

func parseLevel(level string) (slog.Level, error) {
	switch strings.ToLower(level) {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("--log-level is %q: use debug, info or error", level)
}
