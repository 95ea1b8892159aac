// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/usage"
)

const (
	minInterval = 500 * time.Millisecond
	maxInterval = time.Hour
	// findAgain is how old a list of Pods may be.
	findAgain = 10 * time.Second
	// perTier is how many users of a tier a table shows.
	perTier = 5
)

func (d *desk) watchCommand() *cobra.Command {
	var output output
	var interval time.Duration
	var tables int
	var tier string
	c := &cobra.Command{
		Use:   "watch",
		Short: "Follow the decisions on each tier",
		Long: `Follow the decisions on each tier: how many requests a second are admitted and rejected, and who the
heaviest users of the last minute are. Those that were rejected are marked. On a terminal the table is
drawn anew, else one follows the other. With -o json the counters of the API are printed, which
begin with the start of the replicas.`,
		Example: `  {{NAME}} watch
  {{NAME}} watch --tier free --interval 10s
  {{NAME}} watch --count 1 -o json`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case interval < minInterval || interval > maxInterval:
				return usagef("--interval is %v: use %v to %v", interval, minInterval, maxInterval)
			case tables < 0:
				return usagef("--count is %d: use 1 or more, or 0 to go on until Ctrl-C", tables)
			}
			if err := output.validate(); err != nil {
				return err
			}
			w := &watch{desk: d, output: output, interval: interval, count: tables, tier: tier}
			err := w.run(c.Context())
			if errors.Is(err, context.Canceled) && c.Context().Err() != nil {
				return nil // Ctrl-C is how it ends
			}
			return err
		},
	}
	output.add(c, formatJSON, formatYAML)
	c.Flags().DurationVar(&interval, "interval", 2*time.Second, "the `TIME` from one table to the next, 500ms to 1h")
	c.Flags().IntVar(&tables, "count", 0, "end after so many `TABLES`; 0 goes on until Ctrl-C")
	c.Flags().StringVar(&tier, "tier", "", "only this `TIER`")
	return d.named(c)
}

type watch struct {
	*desk
	output   output
	interval time.Duration
	count    int
	tier     string
	before   map[string]adminapi.Decisions // by replica
}

func (w *watch) run(ctx context.Context) error {
	all, err := w.connect(ctx)
	if err != nil {
		return err
	}
	defer all.close()
	if !w.output.raw() { // rates need two looks
		first, err := w.look(ctx, all)
		if err != nil {
			return err
		}
		w.remember(first)
		if terminal(w.Streams.Out) {
			fmt.Fprintf(w.Streams.ErrOut, "Looking for %v ...\n", w.interval)
		}
		if err := pause(ctx, w.interval); err != nil {
			return err
		}
	}
	for shown := 0; ; {
		replicas, err := w.look(ctx, all)
		if err != nil {
			return err
		}
		if err := w.show(replicas); err != nil {
			return err
		}
		if shown++; shown == w.count {
			return nil
		}
		if err := pause(ctx, w.interval); err != nil {
			return err
		}
	}
}

// look asks all replicas, and looks for new ones now and then, and when one does not answer.
func (w *watch) look(ctx context.Context, all *replicas) ([]adminapi.Decisions, error) {
	if all.cluster != nil && w.now().Sub(all.listed) > findAgain {
		if err := all.find(ctx); err != nil {
			return nil, err
		}
	}
	replicas, err := everyone[adminapi.Decisions](ctx, all, together, request{http.MethodGet, adminapi.PathDecisions, nil})
	if len(replicas) < len(all.list) {
		all.listed = time.Time{}
	}
	if err != nil && w.before != nil && ctx.Err() == nil {
		w.warn("%v", err) // they may be back with the next look
		return nil, nil
	}
	return replicas, err
}

func (w *watch) remember(replicas []adminapi.Decisions) {
	w.before = map[string]adminapi.Decisions{}
	for _, r := range replicas {
		w.before[strings.Join(r.Replicas, ",")] = r
	}
}

func (w *watch) show(replicas []adminapi.Decisions) error {
	if len(replicas) == 0 {
		return nil
	}
	if w.output.raw() {
		merged := usage.MergeDecisions(replicas)
		merged.Tiers = w.only(merged.Tiers)
		if w.output.format == formatYAML {
			fmt.Fprintln(w.Streams.Out, "---")
		}
		return w.output.printValue(w.Streams.Out, merged)
	}
	var since []adminapi.Decisions
	for _, r := range replicas {
		since = append(since, difference(w.before[strings.Join(r.Replicas, ",")], r))
	}
	merged := usage.MergeDecisions(since)
	merged.Tiers = w.only(merged.Tiers)
	w.remember(replicas)
	var text bytes.Buffer
	if err := printDecisions(&text, merged); err != nil {
		return err
	}
	if terminal(w.Streams.Out) {
		fmt.Fprint(w.Streams.Out, "\x1b[H\x1b[2J") // to the upper left, and clear
	}
	_, err := w.Streams.Out.Write(text.Bytes())
	return err
}

func (w *watch) only(tiers []adminapi.TierDecisions) []adminapi.TierDecisions {
	if w.tier == "" {
		return tiers
	}
	return slices.DeleteFunc(slices.Clone(tiers), func(t adminapi.TierDecisions) bool { return t.Tier != w.tier })
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
