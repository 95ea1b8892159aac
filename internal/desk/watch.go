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
	// minPatience is how long a replica may take at the least to answer a look, firstPatience the first one,
	// for which the way to it is made.
	minPatience, firstPatience = 2 * time.Second, 10 * time.Second
	// forgotten is after how many looks without an answer a replica is gone.
	forgotten = 10
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
	before   map[string]*lastAnswer // by replica
	shown    int
}

// lastAnswer is the last answer of a replica, and how many looks it has not answered since.
type lastAnswer struct {
	adminapi.Decisions
	missed int
}

func (w *watch) run(ctx context.Context) error {
	all, err := w.connect(ctx)
	if err != nil {
		return err
	}
	defer all.close()
	return w.follow(ctx, all)
}

func (w *watch) follow(ctx context.Context, all *replicas) error {
	longest := all.timeout
	all.timeout = min(longest, max(w.interval, firstPatience))
	replicas, err := w.look(ctx, all)
	if err != nil {
		return err
	}
	if err := w.known(replicas); err != nil {
		return err
	}
	all.timeout = min(longest, max(w.interval, minPatience))
	w.remember(replicas)
	if !w.output.raw() { // rates need two looks
		if terminal(w.Streams.Out) {
			fmt.Fprintf(w.Streams.ErrOut, "Looking for %v ...\n", w.interval)
		}
		if err := pause(ctx, w.interval); err != nil {
			return err
		}
		if replicas, err = w.look(ctx, all); err != nil {
			return err
		}
	}
	for {
		if err := w.show(replicas); err != nil {
			return err
		}
		if w.shown++; w.shown == w.count {
			return nil
		}
		if err := pause(ctx, w.interval); err != nil {
			return err
		}
		if replicas, err = w.look(ctx, all); err != nil {
			return err
		}
	}
}

// known returns an error if no replica knows the tier that was asked for.
func (w *watch) known(replicas []adminapi.Decisions) error {
	merged := usage.MergeDecisions(replicas)
	if w.tier == "" || len(w.only(merged.Tiers)) > 0 {
		return nil
	}
	return fmt.Errorf("there is no RateLimitTier %s: correct --tier, or leave it out and see all", quoted(w.tier))
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

// remember keeps answers to compare the next ones with. That of a replica that has not answered now is still
// good for that: it is not counted anew from its start when it answers again.
func (w *watch) remember(replicas []adminapi.Decisions) {
	if w.before == nil {
		w.before = map[string]*lastAnswer{}
	}
	for name, one := range w.before {
		if one.missed++; one.missed > forgotten {
			delete(w.before, name)
		}
	}
	for _, r := range replicas {
		w.before[nameOf(r)] = &lastAnswer{Decisions: r}
	}
}

func nameOf(d adminapi.Decisions) string { return strings.Join(d.Replicas, ",") }

// since returns what each replica has decided since it was last seen. One that was not seen before is counted
// from its start in the first table, or when it is alone; else it is left out until the next table, since it
// may have been running for long.
func (w *watch) since(replicas []adminapi.Decisions) []adminapi.Decisions {
	var differences, fromStart []adminapi.Decisions
	for _, r := range replicas {
		if before := w.before[nameOf(r)]; before != nil {
			differences = append(differences, difference(before.Decisions, r))
		} else {
			fromStart = append(fromStart, r)
		}
	}
	if w.shown == 0 || len(differences) == 0 {
		return append(differences, fromStart...)
	}
	return differences
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
	since := w.since(replicas)
	merged := usage.MergeDecisions(since)
	merged.Tiers = w.only(merged.Tiers)
	w.remember(replicas)
	var text bytes.Buffer
	if err := printDecisions(&text, merged, ratesOf(since)); err != nil {
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
