// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

// maxLast is the most last requests that the admin API tells.
const maxLast = 100

func (d *desk) getCommand() *cobra.Command {
	var subject subjectFlags
	var output output
	var last int
	c := &cobra.Command{
		Use:   "get USER",
		Short: "Show what is left of a user's budget",
		Long: `Show what is left of a user's budget: for each window the limit, how many requests count now, when the
next one is possible, when all of it is free again, and when the last requests were.

USER is what the ingress or the application tells Tierlimit. A caller that is known by its address or
by a key only needs --kind. Budgets follow the user and, where checks have them, the tenant and the
route; the limits are those of --tier, else of the tier by which the user's checks were lately decided, else of the
default tier.`,
		Example: `  # Why is user 8421 blocked, and until when?
  {{NAME}} get 8421 --tier pro
  # A caller that is known by its address
  {{NAME}} get 203.0.113.7 --kind ip
  # Clock times, and the ID of the user in logs and Events
  {{NAME}} get 8421 --tier pro -o wide`,
		Args: subject.arguments,
		RunE: func(c *cobra.Command, args []string) error {
			if err := output.validate(); err != nil {
				return err
			}
			if last < 0 || last > maxLast {
				return usagef("--last is %d: use 0 to %d", last, maxLast)
			}
			query := subject.query(args)
			query.Set("last", strconv.Itoa(last))
			all, err := d.connect(c.Context())
			if err != nil {
				return err
			}
			defer all.close()
			var quota adminapi.Quota
			body, err := all.one(c.Context(), request{http.MethodGet, adminapi.PathQuota, query}, &quota)
			if err != nil {
				return err
			}
			if output.raw() {
				return output.print(d.Streams.Out, body)
			}
			return printQuota(d.Streams.Out, quota, output.format == formatWide)
		},
	}
	subject.add(c)
	output.add(c, formatJSON, formatYAML, formatWide)
	c.Flags().IntVar(&last, "last", 5, "show the times of so many last `REQUESTS` of each window, 0 to 100")
	return d.named(c)
}

// named fills the name of the program into the examples.
func (d *desk) named(c *cobra.Command) *cobra.Command {
	c.Example = strings.ReplaceAll(c.Example, "{{NAME}}", d.Name)
	return c
}

func printQuota(w io.Writer, q adminapi.Quota, wide bool) error {
	if err := table(w, quotaRows(q, wide)); err != nil {
		return err
	}
	notes := quotaNotes(q)
	if wide {
		notes = append(notes, "Audit ID "+printable(q.AuditID)+": Events and logs name the user so.")
	}
	if len(notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, note := range notes {
		fmt.Fprintln(w, note)
	}
	return nil
}

// quotaRows are a row for each window.
func quotaRows(q adminapi.Quota, wide bool) [][]string {
	when := in
	heading := []string{"USER", "TIER", "WINDOW", "LIMIT", "USED", "REMAINING", "NEXT SLOT", "EMPTY", "LAST REQUESTS"}
	if wide {
		when = at
		heading = []string{"USER", "KIND", "TENANT", "ROUTE", "TIER", "WINDOW", "LIMIT", "USED", "REMAINING", "NEXT SLOT", "EMPTY", "LAST REQUESTS"}
	}
	rows := [][]string{heading}
	for _, window := range q.Windows {
		row := []string{named(q.User)}
		if wide {
			row = append(row, kindOf(q.Kind), named(q.Tenant), named(q.Route))
		}
		next, empty := none, none
		switch {
		case window.Requests == 0:
			next = "never"
		case window.NextSlotAt != nil:
			next = when(q.Now, *window.NextSlotAt)
		}
		if window.EmptyAt != nil {
			empty = when(q.Now, *window.EmptyAt)
		}
		rows = append(rows, append(row, named(q.Tier.Name), printable(window.Window), fmt.Sprint(window.Requests), fmt.Sprint(window.Used),
			fmt.Sprint(window.Remaining), next, empty, lastRequests(q.Now, window.LastRequests, wide)))
	}
	return rows
}

func kindOf(kind string) string {
	if kind == "" {
		return "user"
	}
	return printable(kind)
}

func lastRequests(now time.Time, last []time.Time, wide bool) string {
	if len(last) == 0 {
		return none
	}
	var texts []string
	for _, t := range last {
		if wide {
			texts = append(texts, t.Local().Format("15:04:05"))
		} else {
			texts = append(texts, ago(now, t))
		}
	}
	text := strings.Join(texts, ", ")
	if !wide {
		text += " ago"
	}
	return text
}

// quotaNotes says what a table does not: whether the user is blocked, what is granted, what is switched off.
func quotaNotes(q adminapi.Quota) []string {
	var notes []string
	switch {
	case q.BlockedBy != "" && q.BlockedUntil != nil:
		notes = append(notes, fmt.Sprintf("Blocked by the %s for %s, until %s.", printable(q.BlockedBy), left(q.Now, *q.BlockedUntil), clock(q.Now, *q.BlockedUntil)))
	case q.BlockedBy != "":
		notes = append(notes, fmt.Sprintf("Blocked by the %s. No wait helps: the limit is 0.", printable(q.BlockedBy)))
	}
	if q.Grant != nil {
		notes = append(notes, grantNote(q.Now, *q.Grant))
	}
	notes = append(notes, tierNotes(q.Now, q.Tier)...)
	for _, seen := range q.SeenAs {
		if seen.Subject == q.Subject {
			notes = append(notes, fmt.Sprintf("The user's checks were lately decided by tier %s: --tier %s shows the same requests by its limits.", named(seen.Tier), named(seen.Tier)))
			continue
		}
		notes = append(notes, fmt.Sprintf("The same user was lately seen as %s with tier %s, which is another budget.", describe(seen.Subject), named(seen.Tier)))
	}
	return notes
}

func grantNote(now time.Time, g adminapi.Grant) string {
	return fmt.Sprintf("Granted: %s, %s used, %s left; lapses %s.", count(g.Requests, "extra request"), number(g.Used), number(g.Remaining), at(now, g.ExpiresAt))
}

// tierNotes says what is unusual about a tier.
func tierNotes(now time.Time, t adminapi.Tier) []string {
	var notes []string
	switch {
	case t.Asked != "":
		notes = append(notes, fmt.Sprintf("There is no tier %s: the default tier %s stands in for it.", named(t.Asked), named(t.Name)))
	case t.Seen:
		notes = append(notes, fmt.Sprintf("Shown by the tier %s, by which the user's checks were lately decided. Another one can be given with --tier.", named(t.Name)))
	case t.Default:
		notes = append(notes, fmt.Sprintf("Shown by the default tier %s. If the user's checks name another, give it with --tier.", named(t.Name)))
	}
	if t.Mode == "DryRun" {
		notes = append(notes, fmt.Sprintf("The tier %s is in DryRun: nobody is rejected by it.", named(t.Name)))
	}
	if k := t.KillSwitch; k != nil {
		which := "The kill switch of the tier " + named(t.Name)
		if k.Global {
			which = "The global kill switch"
		}
		until := ""
		if k.ExpiresAt != nil {
			until = "; it ends " + at(now, *k.ExpiresAt)
		}
		notes = append(notes, which+" is engaged: every request passes"+until+".")
	}
	return notes
}
