// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

// Outcomes of tierlimit_checks_total, as they are shown. What is in neither is shown as other.
var (
	admittedOutcomes = []string{"admitted", "granted", "local_admitted"}
	rejectedOutcomes = []string{"rejected", "local_rejected"}
)

// difference returns what a replica has decided between two looks, with StartedAt that of the first. A
// replica that began anew, or that is new, is counted from its start.
func difference(before, now adminapi.Decisions) adminapi.Decisions {
	if before.StartedAt.IsZero() || !before.StartedAt.Equal(now.StartedAt) {
		return now
	}
	counted := map[string]map[string]int64{}
	for _, t := range before.Tiers {
		counted[t.Tier] = t.Outcomes
	}
	result := now
	result.StartedAt = before.Now
	result.Tiers = nil
	for _, t := range now.Tiers {
		outcomes := map[string]int64{}
		for outcome, n := range t.Outcomes {
			outcomes[outcome] = max(0, n-counted[t.Tier][outcome])
		}
		t.Outcomes = outcomes
		result.Tiers = append(result.Tiers, t)
	}
	return result
}

// rates are decisions a second, by tier and outcome.
type rates map[string]map[string]float64

// ratesOf adds up the rates of replicas. Each has counted over a time of its own, by a clock of its own.
func ratesOf(replicas []adminapi.Decisions) rates {
	sum := rates{}
	for _, d := range replicas {
		seconds := max(d.Now.Sub(d.StartedAt).Seconds(), 1e-3)
		for _, t := range d.Tiers {
			if sum[t.Tier] == nil {
				sum[t.Tier] = map[string]float64{}
			}
			for outcome, n := range t.Outcomes {
				sum[t.Tier][outcome] += float64(n) / seconds
			}
		}
	}
	return sum
}

// printDecisions prints what was decided, as rates.
func printDecisions(w io.Writer, d adminapi.Decisions, sum rates) error {
	rate := func(n float64) string { return fmt.Sprintf("%.1f", n) }
	rows := [][]string{{"TIER", "MODE", "ADMITTED/S", "REJECTED/S", "OTHER/S", "NOTE"}}
	for _, t := range d.Tiers {
		var admitted, rejected, other float64
		var others []string
		for outcome, n := range sum[t.Tier] {
			switch {
			case slices.Contains(admittedOutcomes, outcome):
				admitted += n
			case slices.Contains(rejectedOutcomes, outcome):
				rejected += n
			case n > 0:
				other += n
				others = append(others, printable(outcome)+" "+rate(n))
			}
		}
		slices.Sort(others)
		rows = append(rows, []string{named(t.Tier), orNone(t.Mode), rate(admitted), rate(rejected), rate(other), orNone(strings.Join(append(switches(t), others...), ", "))})
	}
	fmt.Fprintf(w, "%s  %s\n\n", d.Now.Local().Format("2006-01-02 15:04:05 MST"), count(int64(len(d.Replicas)), "replica"))
	if err := table(w, rows); err != nil {
		return err
	}
	return printUsers(w, d.Tiers)
}

func switches(t adminapi.TierDecisions) []string {
	switch {
	case t.KillSwitch != nil && t.KillSwitch.Global:
		return []string{"global kill switch engaged"}
	case t.KillSwitch != nil:
		return []string{"kill switch engaged"}
	case t.Mode == "":
		return []string{"the tier is gone"}
	}
	return nil
}

func orNone(text string) string {
	if text == "" {
		return none
	}
	return printable(text)
}

// printUsers prints the heaviest users of each tier, those that were rejected with a mark.
func printUsers(w io.Writer, tiers []adminapi.TierDecisions) error {
	rows := [][]string{{"USER (LAST MINUTE)", "KIND", "TENANT", "ROUTE", "TIER", "USED", "REJECTED", ""}}
	for _, t := range tiers {
		for _, u := range t.Users[:min(len(t.Users), perTier)] {
			mark := ""
			if u.Rejected > u.RejectedError { // certainly
				mark = "<- rejected"
				if t.Mode == adminapi.ModeDryRun {
					mark = "<- would be rejected"
				}
			}
			rows = append(rows, []string{named(u.User), kindOf(u.Kind), named(u.Tenant), named(u.Route), named(t.Tier),
				estimate(u.Used, u.UsedError), estimate(u.Rejected, u.RejectedError), mark})
		}
	}
	if len(rows) == 1 {
		_, err := fmt.Fprint(w, "\nNo user was seen in the last minute.\n\n")
		return err
	}
	fmt.Fprintln(w)
	if err := table(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}
