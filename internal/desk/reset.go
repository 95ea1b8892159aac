// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

func (d *desk) resetCommand() *cobra.Command {
	c := change{d: d}
	var window string
	command := &cobra.Command{
		Use:   "reset USER",
		Short: "Clear what a user has used",
		Long: `Clear what a user has used, in all windows of the tier or in one. The user has the whole budget again. That
cannot be taken back. To let a user through without forgetting what was used, see grant.

You are shown what get shows and asked, unless --yes is given.`,
		Example: `  {{NAME}} reset 8421 --tier pro
  {{NAME}} reset 8421 --tier pro --window minute --yes`,
		Args: c.subject.arguments,
		RunE: func(command *cobra.Command, args []string) error {
			if window != "" && window != adminapi.WindowMinute && window != adminapi.WindowDay {
				return usagef("--window is %.40q: use minute or day, or leave it out for all", window)
			}
			return c.reset(command, args, window)
		},
	}
	c.add(command)
	command.Flags().StringVar(&window, "window", "", "the `WINDOW` to clear, minute or day; without it all")
	return d.named(command)
}

func (c *change) reset(command *cobra.Command, args []string, window string) error {
	question := func(quota *adminapi.Quota, who string) string { return resetQuestion(quota, who, window) }
	query := c.subject.query(args)
	set(query, "window", window)
	return carryOut(c, command, args, question, request{http.MethodDelete, adminapi.PathQuota, query}, func(r adminapi.ResetResult) string {
		return changed(cleared(r), r.EverywhereAfterMilliseconds, r.AuditID, r.Tier)
	})
}

// cleared says what was cleared.
func cleared(result adminapi.ResetResult) string {
	var windows []string
	for _, w := range result.Windows {
		windows = append(windows, fmt.Sprintf("the %s (%s)", printable(w.Window), count(w.Used, "request")))
	}
	return fmt.Sprintf("Cleared %s of %s.", strings.Join(windows, " and "), describe(result.Subject))
}

// resetQuestion says what would be cleared. The quota is nil if it is not known.
func resetQuestion(quota *adminapi.Quota, who, window string) string {
	if quota == nil {
		if window == "" {
			return fmt.Sprintf("Clear all windows of %s? This cannot be taken back.", who)
		}
		return fmt.Sprintf("Clear the %s of %s? This cannot be taken back.", window, who)
	}
	var parts []string
	for _, w := range quota.Windows {
		if window == "" || window == w.Window {
			parts = append(parts, fmt.Sprintf("the %s (%s of %s used)", printable(w.Window), number(w.Used), number(w.Requests)))
		}
	}
	if len(parts) == 0 {
		parts = []string{"the " + printable(window)}
	}
	return fmt.Sprintf("Clear %s of %s? This cannot be taken back.", strings.Join(parts, " and "), describe(quota.Subject))
}
