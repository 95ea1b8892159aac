// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/usage"
)

// By what top sorts.
const (
	byUsed     = "used"
	byRejected = "rejected"
)

// maxTop is the most users that the admin API names.
const maxTop = 1000

func (d *desk) topCommand() *cobra.Command {
	var output output
	var by, tier string
	var limit int
	c := &cobra.Command{
		Use:   "top",
		Short: "Show the heaviest users now",
		Long: `Show the heaviest users now, by the requests that were admitted or by those that were rejected. Every replica
counts what it has answered, in bounded memory; the numbers of all are added up. A number with ~ may be
too high, by what -o wide shows.`,
		Example: `  {{NAME}} top
  {{NAME}} top --by rejected --tier free`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case by != byUsed && by != byRejected:
				return usagef("--by is %.40q: use %s or %s", by, byUsed, byRejected)
			case limit < 1 || limit > maxTop:
				return usagef("--limit is %d: use 1 to %d", limit, maxTop)
			}
			if err := output.validate(); err != nil {
				return err
			}
			all, err := d.connect(c.Context())
			if err != nil {
				return err
			}
			defer all.close()
			// A user who is among the heaviest of all need not be among those of each replica.
			query := url.Values{"by": {by}, "limit": {strconv.Itoa(maxTop)}}
			set(query, "tier", tier)
			tops, err := everyone[adminapi.Top](c.Context(), all, together, request{http.MethodGet, adminapi.PathTop, query})
			if err != nil {
				return err
			}
			return d.printTop(usage.MergeTop(tops, limit), output)
		},
	}
	output.add(c, formatJSON, formatYAML, formatWide)
	c.Flags().StringVar(&by, "by", byUsed, "sort `BY` used or rejected requests")
	c.Flags().StringVar(&tier, "tier", "", "only the users of this `TIER`")
	c.Flags().IntVar(&limit, "limit", 20, "show so many `USERS`, 1 to 1000")
	return d.named(c)
}

func (d *desk) printTop(top adminapi.Top, output output) error {
	if output.raw() {
		return output.printValue(d.Streams.Out, top)
	}
	window := duration.HumanDuration(time.Duration(top.WindowSeconds) * time.Second)
	if len(top.Users) == 0 {
		fmt.Fprintf(d.Streams.ErrOut, "No user was seen in the last %s.\n", window)
		return nil
	}
	if err := table(d.Streams.Out, userRows(top.Users, output.format == formatWide)); err != nil {
		return err
	}
	fmt.Fprintf(d.Streams.ErrOut, "\nRequests of the last %s, as %s saw them.\n", window, count(int64(len(top.Replicas)), "replica"))
	return nil
}

func userRows(users []adminapi.TopUser, wide bool) [][]string {
	rows := [][]string{{"USER", "KIND", "TENANT", "ROUTE", "TIER", "USED", "REJECTED"}}
	if wide {
		rows[0] = append(rows[0], "USED ERROR", "REJECTED ERROR")
	}
	for _, u := range users {
		row := []string{named(u.User), kindOf(u.Kind), named(u.Tenant), named(u.Route), named(u.Tier),
			estimate(u.Used, u.UsedError), estimate(u.Rejected, u.RejectedError)}
		if wide {
			row = append(row, fmt.Sprint(u.UsedError), fmt.Sprint(u.RejectedError))
		}
		rows = append(rows, row)
	}
	return rows
}

// estimate marks a number that may be too high.
func estimate(n, tooHigh int64) string {
	if tooHigh > 0 {
		return fmt.Sprintf("~%d", n)
	}
	return fmt.Sprint(n)
}
