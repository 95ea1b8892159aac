// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

// anonymous is the kind of everybody of whom nothing is known, who need no USER.
const anonymous = "anonymous"

var kinds = []string{"ip", "key", anonymous, "upstream"}

// subjectFlags say whose budget is meant.
type subjectFlags struct {
	kind, tenant, route, tier string
}

func (s *subjectFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&s.kind, "kind", "", "what USER is: `KIND` is ip, key, anonymous or upstream; without it a user's id")
	flags.StringVar(&s.tenant, "tenant", "", "the `TENANT` of the user's checks")
	flags.StringVar(&s.route, "route", "", "the `ROUTE` of the user's checks, where it has budgets of its own")
	flags.StringVar(&s.tier, "tier", "", "the `TIER` whose limits apply; without it the one by which the user's checks were lately decided, else the default tier")
}

// arguments checks how many users were given: one, or none for everybody of whom nothing is known.
func (s *subjectFlags) arguments(_ *cobra.Command, args []string) error {
	switch {
	case len(args) > 1:
		return usagef("%d users: give one USER, in quotes if it contains a space", len(args))
	case len(args) == 1 && s.kind == anonymous:
		return usagef("--kind %s is everybody of whom nothing is known together: leave USER out", anonymous)
	case len(args) == 0 && s.kind != anonymous:
		return usagef("no USER: say whose budget")
	case len(args) == 1 && args[0] == "":
		return usagef("USER is empty: say whose budget")
	}
	return s.validate()
}

func (s *subjectFlags) validate() error {
	if s.kind != "" && !slices.Contains(kinds, s.kind) {
		return usagef("--kind is %.40q: use %s, or leave it out for a user's id", s.kind, strings.Join(kinds, ", "))
	}
	return nil
}

// query returns the parameters of the admin API for what was asked.
func (s *subjectFlags) query(args []string) url.Values {
	query := url.Values{}
	if len(args) == 1 {
		query.Set("user", args[0])
	}
	set(query, "kind", s.kind)
	set(query, "tenant", s.tenant)
	set(query, "route", s.route)
	set(query, "tier", s.tier)
	return query
}

// set sets a parameter unless it is empty, which is how one that is absent is written.
func set(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

// describe names a subject in a sentence: `user "8421" of tenant acme on route chat`.
func describe(s adminapi.Subject) string {
	var text string
	switch s.Kind {
	case "":
		text = "user " + quoted(s.User)
	case "ip":
		text = "address " + quoted(s.User)
	case anonymous:
		text = "everybody of whom nothing is known"
	default:
		text = printable(s.Kind) + " " + quoted(s.User)
	}
	if s.Tenant != "" {
		text += " of tenant " + quoted(s.Tenant)
	}
	if s.Route != "" {
		text += " on route " + quoted(s.Route)
	}
	return text
}

// quoted returns a name as it can be read on a terminal: as it is, or in quotes and escaped.
func quoted(name string) string {
	q := strconv.Quote(name)
	if q[1:len(q)-1] == name && !strings.ContainsAny(name, " ") && name != "" {
		return name
	}
	return q
}

// named is a name in a table: what a user chose must not move the cursor or begin a row.
func named(name string) string {
	if name == "" {
		return none
	}
	return quoted(name)
}

// none stands in a table where there is nothing.
const none = "-"
