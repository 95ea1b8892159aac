// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/http/httpguts"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

// Bounds of a load: it is a look at a set-up, not an attack on one.
const (
	maxRequests    = 10_000
	maxConcurrency = 200
	maxDuration    = 10 * time.Minute
	maxBody        = 1 << 20 // bytes of --data
)

// benchFlags are the flags of bench.
type benchFlags struct {
	requests, concurrency int
	duration, timeout     time.Duration
	method, data, agent   string
	headers               []string
	insecure, noKeepalive bool
	limit                 int64
	window                string
	wait, yes             bool
	output                output
}

func (b *benchFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.IntVar(&b.requests, "requests", 100, "how many `REQUESTS` to send, 1 to 10,000; with --duration and without this as many as fit")
	flags.IntVarP(&b.concurrency, "concurrency", "c", 10, "how many `REQUESTS` at a time, 1 to 200")
	flags.DurationVar(&b.duration, "duration", 0, "stop sending after this `TIME`, up to 10m (default 10m)")
	flags.DurationVar(&b.timeout, "timeout", 30*time.Second, "longest `TIME` to wait for an answer")
	flags.StringVarP(&b.method, "method", "X", "", "`METHOD` of the requests (default GET, with --data POST)")
	flags.StringArrayVarP(&b.headers, "header", "H", nil, "a `HEADER` to send, 'Name: value'; again for more")
	flags.StringVarP(&b.agent, "user-agent", "A", "", "`TEXT` of the header User-Agent")
	flags.StringVarP(&b.data, "data", "d", "", "`BODY` to send, or @FILE; up to 1 MiB")
	flags.BoolVarP(&b.insecure, "insecure", "k", false, "do not verify the certificate of an https URL")
	flags.BoolVar(&b.noKeepalive, "no-keepalive", false, "a new connection for each request")
	flags.Int64Var(&b.limit, "limit", 0, "`REQUESTS` that the window must admit at the most; without it what X-RateLimit-Limit says")
	flags.StringVar(&b.window, "window", "", "the `WINDOW` of --limit: minute, day or a time such as 60s (default minute)")
	flags.BoolVar(&b.wait, "wait", false, "at the end wait once for as long as Retry-After says, up to 2m, and see that the next request passes")
	flags.BoolVarP(&b.yes, "yes", "y", false, "do not ask for confirmation")
	b.output.add(c, formatJSON, formatYAML)
}

func (d *desk) benchCommand() *cobra.Command {
	var flags benchFlags
	c := &cobra.Command{
		Use:   "bench URL",
		Short: "Send some requests to a route and see whether its limit holds",
		Long: `Send some requests to a route, through its ingress, and report what was admitted and rejected, how long that
took, and what was wrong:

  - more requests were admitted within a window than the limit allows. Only requests that were sent
    and answered within one window count for that, so that it is proof;
  - a 429 had no Retry-After, or one that is longer than its window;
  - with --wait: a request after the time of Retry-After was rejected once more.

The limit is that of X-RateLimit-Limit and X-RateLimit-Window in the answers, or --limit and --window.
The requests are real: they reach the application behind the route, may cost money, and use up the budget
of whoever the headers say you are. Redirects are not followed. Proxies of the environment (HTTPS_PROXY) are used.
The exit code is 1 if anything was wrong, or if nothing was proved.`,
		Example: `  # Does my set-up work? 20 requests as a user of the free tier, which admits 5 a minute
  {{NAME}} bench https://llm.example.com/free/v1/models --requests 20 -H 'Authorization: Bearer ...'
  {{NAME}} bench http://localhost:8080/check?tier=free --requests 20 --wait`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("%d URLs: give one", len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			load, err := flags.load(c.Context(), args[0], c.Flags().Changed("requests"), d.agent())
			if err != nil {
				return err
			}
			return d.bench(c, &flags, load)
		},
	}
	flags.add(c)
	return d.named(c)
}

func (d *desk) bench(c *cobra.Command, flags *benchFlags, load *load) error {
	if !isLoopback(load.url.Hostname()) {
		if err := d.confirmable(flags.yes); err != nil {
			return err
		}
		question := fmt.Sprintf("Send up to %s (%s, %d at a time) to %s? They are real: they reach the application, may cost money and use up your budget there.",
			count(int64(load.requests), "request"), load.method, load.concurrency, load.url.Redacted())
		if err := d.confirm(c.Context(), flags.yes, question); err != nil {
			return err
		}
	}
	start := time.Now()
	results := load.run(c.Context())
	late := flags.duration == 0 && time.Since(start) >= load.duration
	report := judge(results, flags.expected())
	if flags.wait && c.Context().Err() == nil {
		report.Wait = load.wait(c.Context(), d, &report)
	}
	report.sum()
	report.URL, report.Proxy = load.url.Redacted(), load.proxied()
	switch {
	case c.Context().Err() != nil:
		report.add("It was interrupted: this is what was answered until then.")
	case late:
		report.add("It was ended after %v, the longest that a load may take.", load.longest)
	}
	if flags.output.raw() {
		if err := flags.output.printValue(d.Streams.Out, report); err != nil {
			return err
		}
	} else if err := report.print(d.Streams.Out); err != nil {
		return err
	}
	if report.Wrong > 0 || report.Answered == 0 || report.Unproved {
		return errSaid
	}
	return nil
}

// expected is what was given by --limit and --window; nil without.
func (b *benchFlags) expected() *expectation {
	if b.limit == 0 {
		return nil
	}
	window := b.window
	if window == "" {
		window = adminapi.WindowMinute
	}
	length, ok := windowLength(window)
	if !ok {
		length, _ = time.ParseDuration(window) // validated
	}
	return &expectation{window: window, length: length, limit: b.limit}
}

// load checks the flags and returns what to send.
func (b *benchFlags) load(ctx context.Context, address string, requestsGiven bool, agent string) (*load, error) {
	if err := b.validate(); err != nil {
		return nil, err
	}
	target, err := url.Parse(address)
	if err != nil || (target.Scheme != "http" && target.Scheme != "https") || target.Hostname() == "" {
		return nil, usagef("the URL %.80q is not one of http:// or https:// with a host", withoutPassword(address))
	}
	l := &load{url: target, requests: b.requests, concurrency: min(b.concurrency, b.requests), duration: b.duration, timeout: b.timeout, longest: maxDuration, method: b.method, header: http.Header{}}
	if b.duration > 0 && !requestsGiven {
		l.requests, l.concurrency = maxRequests, b.concurrency
	}
	if b.duration == 0 {
		l.duration = maxDuration
	}
	if l.body, err = body(ctx, b.data); err != nil {
		return nil, err
	}
	if l.method == "" {
		l.method = http.MethodGet
		if b.data != "" {
			l.method = http.MethodPost
		}
	}
	l.header.Set("User-Agent", agent)
	for _, header := range b.headers {
		name, value, ok := strings.Cut(header, ":")
		if value = strings.TrimSpace(value); !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, usagef("a --header is not 'Name: value'") // it may hold a key, so it is not repeated
		}
		if strings.EqualFold(name, "Host") {
			l.host = value
			continue
		}
		l.header.Add(name, value)
	}
	if b.agent != "" {
		l.header.Set("User-Agent", b.agent)
	}
	l.client = newBenchClient(l.concurrency, b.insecure, b.noKeepalive)
	return l, nil
}

func (b *benchFlags) validate() error {
	switch {
	case b.requests < 1 || b.requests > maxRequests:
		return usagef("--requests is %d: use 1 to %s", b.requests, number(maxRequests))
	case b.concurrency < 1 || b.concurrency > maxConcurrency:
		return usagef("--concurrency is %d: use 1 to %d", b.concurrency, maxConcurrency)
	case b.duration < 0 || b.duration > maxDuration:
		return usagef("--duration is %v: use up to %v", b.duration, maxDuration)
	case b.timeout <= 0 || b.timeout > maxDuration:
		return usagef("--timeout is %v: use more than 0, up to %v", b.timeout, maxDuration)
	case b.limit < 0:
		return usagef("--limit is %d: use 1 or more", b.limit)
	case b.window != "" && b.limit == 0:
		return usagef("--window is given without --limit: give both")
	case b.method != "" && !httpguts.ValidHeaderFieldName(b.method):
		return usagef("--method is %.40q, which is no method of HTTP", b.method)
	}
	if _, ok := windowLength(b.window); !ok && b.window != "" {
		if length, err := time.ParseDuration(b.window); err != nil || length <= 0 {
			return usagef("--window is %.40q: use minute, day or a time such as 60s", b.window)
		}
	}
	return b.output.validate()
}
