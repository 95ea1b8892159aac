// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

// Bounds of a grant, as the admin API has them.
const (
	maxGrant     = 100_000
	maxGrantTime = 31 * 24 * time.Hour
)

func (d *desk) grantCommand() *cobra.Command {
	c := change{d: d}
	var requests int64
	var lasts time.Duration
	command := &cobra.Command{
		Use:   "grant USER --requests N --for TIME",
		Short: "Allow a user more requests for some time",
		Long: `Allow a user so many requests on top of the limits of the tier, for some time. They are spent only while a limit
is used up, and what is left of them lapses by itself. A grant replaces the one that the user has.
A cap of an upstream holds for granted requests too.

You are shown what get shows and asked, unless --yes is given. revoke takes a grant back.`,
		Example: `  # Let user 8421 make 100 requests more within the next hour
  {{NAME}} grant 8421 --tier pro --requests 100 --for 1h`,
		Args: c.subject.arguments,
		RunE: func(command *cobra.Command, args []string) error {
			switch {
			case !command.Flags().Changed("requests") || !command.Flags().Changed("for"):
				return usagef("say how many requests to grant and for how long, such as --requests 100 --for 1h")
			case requests < 1 || requests > maxGrant:
				return usagef("--requests is %d: use 1 to %s", requests, number(maxGrant))
			case lasts < time.Second || lasts > maxGrantTime || lasts%time.Second != 0:
				return usagef("--for is %v: use whole seconds, up to %v, such as 1h30m", lasts, maxGrantTime)
			}
			return c.grant(command, args, requests, lasts)
		},
	}
	c.add(command)
	command.Flags().Int64Var(&requests, "requests", 0, "how many `REQUESTS` to grant, 1 to 100,000")
	command.Flags().DurationVar(&lasts, "for", 0, "for how long, a `TIME` such as 1h or, for a day, 24h; up to 744h (31 days)")
	return d.named(command)
}

func (c *change) grant(command *cobra.Command, args []string, requests int64, lasts time.Duration) error {
	question := func(quota *adminapi.Quota, who string) string {
		text := fmt.Sprintf("Grant %s to %s for %s", count(requests, "extra request"), who, spell(lasts))
		if quota != nil && quota.Grant != nil {
			text += fmt.Sprintf(", in place of the grant with %s left", count(quota.Grant.Remaining, "request"))
		}
		return text + "?"
	}
	query := c.subject.query(args)
	query.Set("requests", strconv.FormatInt(requests, 10))
	query.Set("for", lasts.String())
	return carryOut(c, command, args, question, request{http.MethodPut, adminapi.PathGrant, query}, func(r adminapi.GrantResult) string {
		text := fmt.Sprintf("Granted %s to %s", count(requests, "extra request"), describe(r.Subject))
		if r.Grant != nil {
			text += " until " + clock(c.d.now(), r.Grant.ExpiresAt)
		}
		if r.Before != nil {
			text += fmt.Sprintf(", in place of a grant with %s left", count(r.Before.Remaining, "request"))
		}
		return grantSaid(text+".", r)
	})
}

func (d *desk) revokeCommand() *cobra.Command {
	c := change{d: d}
	command := &cobra.Command{
		Use:   "revoke USER",
		Short: "Take a grant back",
		Long: `Take back what is left of a user's grant. Requests that were made on it are not undone.

You are shown what get shows and asked, unless --yes is given.`,
		Example: `  {{NAME}} revoke 8421 --tier pro`,
		Args:    c.subject.arguments,
		RunE: func(command *cobra.Command, args []string) error {
			question := func(quota *adminapi.Quota, who string) string {
				if quota != nil && quota.Grant != nil {
					return fmt.Sprintf("Take the grant of %s back, with %s left?", who, count(quota.Grant.Remaining, "request"))
				}
				return fmt.Sprintf("Take the grant of %s back, if there is one?", who)
			}
			return carryOut(&c, command, args, question, request{http.MethodDelete, adminapi.PathGrant, c.subject.query(args)}, func(r adminapi.GrantResult) string {
				text := fmt.Sprintf("There was no grant of %s to take back.", describe(r.Subject))
				if r.Before != nil {
					text = fmt.Sprintf("Took the grant of %s back, with %s of %s left.", describe(r.Subject), number(r.Before.Remaining), count(r.Before.Requests, "request"))
				}
				return grantSaid(text, r)
			})
		},
	}
	c.add(command)
	return d.named(command)
}

// grantSaid is what was done to a grant, and who is told of it; there is nobody to tell if nothing has changed.
func grantSaid(done string, r adminapi.GrantResult) string {
	if r.Grant == nil && r.Before == nil {
		return done
	}
	return changed(done, r.EverywhereAfterMilliseconds, r.AuditID, r.Tier)
}

// spell writes a time without the zeros at its end: "1h", "1h30m".
func spell(t time.Duration) string {
	text := t.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
