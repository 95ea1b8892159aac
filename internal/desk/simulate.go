// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/usage"
)

// simulationPatience is how long a replica may read logs, without --request-timeout.
const simulationPatience = 10 * time.Minute

func (d *desk) simulateCommand() *cobra.Command {
	var output output
	var tier string
	var perMinute, perDay int64
	c := &cobra.Command{
		Use:   "simulate --tier TIER",
		Short: "Try other limits out on the users of the last day",
		Long: `Try other limits of a tier out: how many of the users that were seen in the last day would have been rejected,
and how many would be now. The requests that Redis still knows are replayed; those that were rejected by
the limits as they are have left no trace, and users react to a rejection. Nothing is changed. What DryRun
tells of the same limits is the live answer (docs/ratelimittier.md).`,
		Example: `  # What happens if we lower pro to 30 a minute?
  {{NAME}} simulate --tier pro --per-minute 30`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			flags := c.Flags()
			switch {
			case tier == "":
				return usagef("no --tier: name the tier to try other limits of")
			case !flags.Changed("per-minute") && !flags.Changed("per-day"):
				return usagef("no limit to try out: give --per-minute, --per-day or both")
			case perMinute < 0 || perDay < 0:
				return usagef("a limit is negative: use 0 or more")
			}
			if err := output.validate(); err != nil {
				return err
			}
			query := url.Values{"tier": {tier}}
			for name, value := range map[string]int64{"per-minute": perMinute, "per-day": perDay} {
				if flags.Changed(name) {
					query.Set(name, strconv.FormatInt(value, 10))
				}
			}
			return d.simulate(c, query, output)
		},
	}
	output.add(c, formatJSON, formatYAML)
	c.Flags().StringVar(&tier, "tier", "", "the `TIER` to try other limits of")
	c.Flags().Int64Var(&perMinute, "per-minute", 0, "`REQUESTS` a minute to try out; without it as it is")
	c.Flags().Int64Var(&perDay, "per-day", 0, "`REQUESTS` a day to try out; without it as it is")
	return d.named(c)
}

func (d *desk) simulate(c *cobra.Command, query url.Values, output output) error {
	all, err := d.connect(c.Context())
	if err != nil {
		return err
	}
	defer all.close()
	if !all.given {
		all.timeout = simulationPatience
	}
	simulations, err := everyone[adminapi.Simulation](c.Context(), all, 1, request{http.MethodGet, adminapi.PathSimulate, query})
	if err != nil {
		return err
	}
	merged := usage.MergeSimulations(simulations)
	if output.raw() {
		return output.printValue(d.Streams.Out, merged)
	}
	d.printSimulation(merged)
	return nil
}

func (d *desk) printSimulation(s adminapi.Simulation) {
	var users, rejected, now, requests, lost int64
	for _, u := range s.Users {
		users++
		requests += u.Requests
		lost += u.Rejected
		if u.Rejected > 0 {
			rejected++
		}
		if u.RejectedNow {
			now++
		}
	}
	w := d.Streams.Out
	fmt.Fprintf(w, "%s of %s would have been rejected at least once, and %s would be now.\n",
		share(rejected, users), count(users, "user"), share(now, users))
	fmt.Fprintf(w, "%s of %s would have been rejected.\n\n", share(lost, requests), count(requests, "request"))
	fmt.Fprintf(w, "Tier:     %s\n", limitsOf(s.Tier))
	fmt.Fprintf(w, "Tried:    %s\n", limitList(s.Limits))
	fmt.Fprintf(w, "Users:    seen since %s by %s%s\n", clock(s.Now, s.Since), count(int64(len(s.Replicas)), "replica"), sampled(s.SampledOneIn))
	fmt.Fprintf(w, "Requests: of the last %s, as far as Redis knows them\n", duration.HumanDuration(time.Duration(s.KnownSeconds)*time.Second))
	if slices.Equal(s.Limits, s.Tier.Limits) {
		d.warn("these are the limits that the tier has")
	}
	if s.TooLong > 0 {
		d.warn("%s left out: their logs are too long to be replayed", count(s.TooLong, "user"))
	}
	if s.SampledOneIn > 1 {
		d.warn("one user in %d was looked at: multiply the numbers of users and requests by that", s.SampledOneIn)
	}
}

func sampled(oneIn int64) string {
	if oneIn <= 1 {
		return ""
	}
	return fmt.Sprintf(", one in %d of them", oneIn)
}

// share is a part of a whole, "57 (4.6%)".
func share(part, whole int64) string {
	if whole == 0 {
		return number(part)
	}
	return fmt.Sprintf("%s (%.1f%%)", number(part), 100*float64(part)/float64(whole))
}
