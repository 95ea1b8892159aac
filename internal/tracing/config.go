// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/sdk/trace"
)

// The variables of OpenTelemetry that decide whether and where traces go. The exporters read the
// others by themselves.
const (
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envDisabled       = "OTEL_SDK_DISABLED"
	envSampler        = "OTEL_TRACES_SAMPLER"
	envSamplerArg     = "OTEL_TRACES_SAMPLER_ARG"
)

const (
	protocolHTTP = "http/protobuf"
	protocolGRPC = "grpc"
)

// defaultRatio is the part of the checks that begin a trace of their own: enough to see what a slow
// check waits for, and ten spans a second at a thousand checks a second.
const defaultRatio = 0.01

const (
	// maxMilliseconds bounds a time: an hour.
	maxMilliseconds = 3_600_000
	// maxSpans bounds a queue, which takes its memory at the start.
	maxSpans = 65_536
)

// numbers are variables that the SDK would ignore if they are wrong, or end the program if they are too
// large, and what they may be at most.
var numbers = map[string]int{
	"OTEL_EXPORTER_OTLP_TIMEOUT": maxMilliseconds, "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": maxMilliseconds,
	"OTEL_BSP_SCHEDULE_DELAY": maxMilliseconds, "OTEL_BSP_EXPORT_TIMEOUT": maxMilliseconds,
	"OTEL_BSP_MAX_QUEUE_SIZE": maxSpans, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": maxSpans,
}

// config is what the environment asks for.
type config struct {
	protocol string // "" is no traces
	receiver string // its host:port, for people
	sampler  trace.Sampler
}

// parse reads the environment. An error names the variable and never its value where that may hold a
// password.
func parse(getenv func(string) string) (config, error) {
	off, err := disabled(getenv)
	if off || err != nil {
		return config{}, err
	}
	for _, name := range []string{envEndpoint, envTracesEndpoint} {
		if err := validateEndpoint(name, getenv(name)); err != nil {
			return config{}, err
		}
	}
	if getenv(envEndpoint) == "" && getenv(envTracesEndpoint) == "" {
		return config{}, nil
	}
	if err := validateOthers(getenv); err != nil {
		return config{}, err
	}
	receiver, err := url.Parse(cmp.Or(getenv(envTracesEndpoint), getenv(envEndpoint)))
	if err != nil {
		return config{}, err
	}
	c := config{protocol: protocolHTTP, receiver: receiver.Host}
	for _, name := range []string{envProtocol, envTracesProtocol} {
		switch value := getenv(name); value {
		case "":
		case protocolHTTP, protocolGRPC:
			c.protocol = value
		default:
			return config{}, fmt.Errorf("%s is %q: use %s or %s", name, value, protocolHTTP, protocolGRPC)
		}
	}
	c.sampler, err = parseSampler(getenv(envSampler), getenv(envSamplerArg))
	return c, err
}

// validateOthers looks at what the exporters and the SDK read by themselves.
func validateOthers(getenv func(string) string) error {
	for name, most := range numbers {
		if value := getenv(name); value != "" {
			if n, err := strconv.Atoi(value); err != nil || n <= 0 || n > most {
				return fmt.Errorf("%s is %q: use a whole number from 1 to %d", name, value, most)
			}
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_COMPRESSION", "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION"} {
		if value := getenv(name); value != "" && value != "gzip" && value != "none" {
			return fmt.Errorf("%s is %q: use gzip or none", name, value)
		}
	}
	return nil
}

// disabled returns whether a variable says that there are to be no traces.
func disabled(getenv func(string) string) (bool, error) {
	switch value := getenv(envDisabled); strings.ToLower(value) {
	case "true":
		return true, nil
	case "", "false":
	default:
		return false, fmt.Errorf("%s is %q: use true or false", envDisabled, value)
	}
	switch value := getenv(envExporter); value {
	case "none":
		return true, nil
	case "", "otlp":
		return false, nil
	default:
		return false, fmt.Errorf("%s is %q: use otlp or none", envExporter, value)
	}
}

// validateEndpoint returns an error unless an endpoint is one, or "". The value is not repeated.
func validateEndpoint(name, value string) error {
	if value == "" {
		return nil
	}
	u, err := url.Parse(value)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return fmt.Errorf("%s is not a URL of an OTLP receiver: use http://HOST:PORT or https://HOST:PORT, such as http://otel-collector:4318 (%s) or http://otel-collector:4317 (%s)", name, protocolHTTP, protocolGRPC)
	case u.Port() != "" && !validPort(u.Port()):
		return fmt.Errorf("%s has a port that is no number from 1 to 65535", name)
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%s has a query or a fragment, which would not be sent: leave out what begins with ? or #", name)
	case u.User != nil:
		return fmt.Errorf("%s holds a user or a password, which would not be sent: use OTEL_EXPORTER_OTLP_HEADERS for them", name)
	}
	return nil
}

func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// parseSampler returns the sampler of a name and its argument, each "" for the default.
func parseSampler(name, arg string) (trace.Sampler, error) {
	ratio := defaultRatio
	if arg != "" {
		var err error
		if ratio, err = strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
			return nil, fmt.Errorf("%s is %q: use a number from 0 to 1, such as 0.01 for one trace in a hundred", envSamplerArg, arg)
		}
	} else if name != "" {
		ratio = 1 // as OpenTelemetry has it
	}
	switch cmp.Or(name, "parentbased_traceidratio") {
	case "always_on":
		return trace.AlwaysSample(), nil
	case "always_off":
		return trace.NeverSample(), nil
	case "traceidratio":
		return trace.TraceIDRatioBased(ratio), nil
	case "parentbased_always_on":
		return trace.ParentBased(trace.AlwaysSample()), nil
	case "parentbased_always_off":
		return trace.ParentBased(trace.NeverSample()), nil
	case "parentbased_traceidratio":
		return trace.ParentBased(trace.TraceIDRatioBased(ratio)), nil
	}
	return nil, errors.New(envSampler + " is not a sampler that is known here: use always_on, always_off, traceidratio, or one of the three after parentbased_")
}
