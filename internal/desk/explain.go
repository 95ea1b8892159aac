// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

// explainFlags are the parameters of a check, and what a request would bring along.
type explainFlags struct {
	tenant, route, tier, upstream, upstreamPer, methods, exempt, auth, peer string
	headers                                                                 []string
}

func (e *explainFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&e.tier, "tier", "", "the `TIER` that the check names")
	flags.StringVar(&e.tenant, "tenant", "", "the `TENANT` that it names")
	flags.StringVar(&e.route, "route", "", "the `ROUTE` that it names")
	flags.StringVar(&e.upstream, "upstream", "", "the `TIER` that caps all callers together")
	flags.StringVar(&e.upstreamPer, "upstream-per", "", "`tenant`, where each tenant has a cap of its own")
	flags.StringVar(&e.methods, "methods", "", "the only `METHODS` that count, separated by commas")
	flags.StringVar(&e.exempt, "exempt", "", "`METHODS` that do not count, separated by commas")
	flags.StringVar(&e.auth, "auth", "", "`none`, where the other auth service is not asked")
	flags.StringArrayVarP(&e.headers, "header", "H", nil, "a `HEADER` of the request, 'Name: value', from which the caller may be found; again for more")
	flags.StringVar(&e.peer, "peer", "", "the `ADDRESS` of whoever asks for the check, from which the caller may be found")
}

func (e *explainFlags) query(args []string) (url.Values, error) {
	query := url.Values{}
	if len(args) == 1 {
		query.Set("user", args[0])
	}
	for name, value := range map[string]string{"tenant": e.tenant, "route": e.route, "tier": e.tier, "upstream": e.upstream,
		"upstream-per": e.upstreamPer, "methods": e.methods, "exempt": e.exempt, "auth": e.auth, "peer": e.peer} {
		set(query, name, value)
	}
	for _, header := range e.headers {
		if name, _, ok := strings.Cut(header, ":"); !ok || strings.TrimSpace(name) == "" {
			return nil, usagef("a --header is not 'Name: value'") // it may hold a key, so it is not repeated
		}
		query.Add("header", header)
	}
	return query, nil
}

func (d *desk) explainCommand() *cobra.Command {
	var flags explainFlags
	var output output
	c := &cobra.Command{
		Use:   "explain [USER]",
		Short: "Show what a check would answer now, and why",
		Long: `Show what a check with these parameters would answer now, and why: who would be charged and how that was
found, which tier applies, which window decides, and what is switched off. Nothing is charged.

Without USER the caller is found as a check finds it, from --header and --peer. A header may hold
the key of a user: it is sent to Tierlimit, and your shell may keep it in its history.`,
		Example: `  {{NAME}} explain 8421 --tier pro
  {{NAME}} explain --header 'X-Api-Key: sk-1' --tier pro
  {{NAME}} explain --header 'X-Real-IP: 203.0.113.7' --upstream gpt-4o`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%d users: give one USER, in quotes if it contains a space", len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := output.validate(); err != nil {
				return err
			}
			query, err := flags.query(args)
			if err != nil {
				return err
			}
			all, err := d.connect(c.Context())
			if err != nil {
				return err
			}
			defer all.close()
			var explanation adminapi.Explanation
			body, err := all.one(c.Context(), request{http.MethodGet, adminapi.PathExplain, query}, &explanation)
			if err != nil {
				return err
			}
			if output.raw() {
				return output.print(d.Streams.Out, body)
			}
			printExplanation(d.Streams.Out, explanation, output.format == formatWide)
			if explanation.Identity == nil && len(args) == 0 && flags.peer == "" {
				d.warn("this check has no address, which a real one has: give the address that asks for it with --peer, or USER, or the header by which the ingress tells who it is")
			}
			return nil
		},
	}
	flags.add(c)
	output.add(c, formatJSON, formatYAML, formatWide)
	return d.named(c)
}

func printExplanation(w io.Writer, e adminapi.Explanation, wide bool) {
	fmt.Fprintln(w, verdict(e))
	for _, reason := range e.Reasons {
		fmt.Fprintln(w, "  - "+printable(reason))
	}
	fmt.Fprintln(w)
	line := func(name, value string) { fmt.Fprintf(w, "%-13s %s\n", name+":", value) }
	if e.Identity != nil {
		line("Caller", describe(e.Identity.Subject)+", by "+quoted(e.Identity.Source))
	}
	if e.Tier != nil {
		line("Tier", limitsOf(*e.Tier))
	}
	if e.Upstream != nil {
		line("Upstream", limitsOf(*e.Upstream))
	}
	if e.Window != "" {
		line("Window", fmt.Sprintf("%s: %s of %s remaining", printable(e.Window), number(e.Remaining), number(e.Limit)))
	}
	if e.Grant != nil {
		line("Grant", strings.TrimPrefix(grantNote(e.Now, *e.Grant), "Granted: "))
	}
	line("Outcome", printable(e.Outcome)+" in tierlimit_checks_total")
	if wide {
		for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
			line("Header", printable(name+": "+e.Headers[name]))
		}
	}
}

// verdict is the answer in one sentence.
func verdict(e adminapi.Explanation) string {
	text := fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status))
	switch {
	case e.Status == http.StatusOK && e.Enforcement != "":
		text += ": the request would pass (" + printable(e.Enforcement) + ")"
	case e.Status == http.StatusOK:
		text += ": the request would be admitted"
	case e.Status == http.StatusTooManyRequests && e.RetryAt != nil:
		text += ": the request would be rejected; one would pass " + at(e.Now, *e.RetryAt)
	case e.Status == http.StatusTooManyRequests && e.RetryAfterSeconds == 0:
		text += ": the request would be rejected, and no wait helps"
	default:
		text += ": the request would not pass"
	}
	return text
}

// limitsOf describes a tier: "pro: 60 a minute, 5,000 a day; Enforce, FailClosed".
func limitsOf(t adminapi.Tier) string {
	text := named(t.Name) + ": " + limitList(t.Limits) + "; " + printable(t.Mode+", "+t.FailurePolicy)
	switch {
	case t.Asked != "":
		text += "; it stands in for " + named(t.Asked) + ", which does not exist"
	case t.Seen:
		text += "; it was applied lately"
	case t.Default:
		text += "; the default tier"
	}
	if t.KillSwitch != nil {
		text += "; kill switch engaged"
	}
	return text
}

func limitList(limits []adminapi.Limit) string {
	var texts []string
	for _, limit := range limits {
		texts = append(texts, number(limit.Requests)+" a "+printable(limit.Window))
	}
	return strings.Join(texts, ", ")
}
