// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// What one simulation asks of Redis, so that checks do not notice it.
const (
	// maxSimulated is how many users it looks at; of more it takes a sample.
	maxSimulated = 8192
	// simulatedAtOnce is how many it looks at together, and simulatedRate how many in a second.
	simulatedAtOnce = 4
	simulatedRate   = 2000
	// maxReplayed is the longest log that is replayed, in requests. Four of them are 25 MiB.
	maxReplayed = 250_000
)

// Logs reads the logs of subjects, as limiter.SlidingWindow does: both methods block until Redis has
// answered or ctx ends.
type Logs interface {
	// Times returns when the requests in the log of a window were admitted, oldest first, perhaps some
	// that have left too. The caller may change them.
	Times(ctx context.Context, subject limiter.Subject, window time.Duration) ([]time.Time, error)
	// Inspect returns the state of the windows of some limits, the shortest first.
	Inspect(ctx context.Context, subject limiter.Subject, last int, limits ...limiter.Limit) (limiter.State, error)
}

// simulation is what is asked of each user.
type simulation struct {
	logs   Logs
	limits []limiter.Limit // that are tried out
	known  []limiter.Limit // the windows that have logs, the shortest first
	pace   *rate.Limiter
}

// Simulate says what other limits would have done to the users that this replica has seen in the last day
// by a tier: it replays the log of the tier's longest window, which holds the requests that were admitted.
// It blocks until all are read, 0.5 ms for each user at least, or ctx ends; the error is then that of
// ctx, else that of logs.
func (u *Usage) Simulate(ctx context.Context, logs Logs, t *tier.Tier, limits []limiter.Limit) (adminapi.Simulation, error) {
	s := simulation{logs: logs, limits: limits, known: windowsWith(t.Limits, limits), pace: rate.NewLimiter(simulatedRate, simulatedAtOnce)}
	users, zeros := u.seenBy(t.Name, maxSimulated)
	now := u.now()
	result := adminapi.Simulation{
		Replicas:     []string{u.options.Replica},
		Tier:         tierShown(t, u.options.Disabled, now),
		Limits:       limitsShown(limits),
		Now:          now,
		Since:        u.sinceWhen(now),
		KnownSeconds: int64(s.longest() / time.Second),
		SampledOneIn: 1 << zeros,
		Users:        make([]adminapi.SimulatedUser, 0, len(users)),
	}
	var mu sync.Mutex // guards result
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(simulatedAtOnce)
	var stopped error
	for _, user := range users {
		if s.pace.Wait(ctx) != nil { // also when ctx would end before it is this user's turn
			stopped = cmp.Or(context.Cause(ctx), context.DeadlineExceeded)
			break
		}
		group.Go(func() error {
			row, short, err := s.user(ctx, user.subject)
			if err != nil {
				return err
			}
			row.ID = idOf(user.hash)
			mu.Lock()
			defer mu.Unlock()
			if short {
				result.Users = append(result.Users, row)
			} else {
				result.TooLong++
			}
			return nil
		})
	}
	if err := cmp.Or(group.Wait(), stopped); err != nil {
		return adminapi.Simulation{}, fmt.Errorf("reading the logs of %d users of tier %s, of which %d were read: %w", len(users), t.Name, len(result.Users), err)
	}
	sortSimulated(result.Users)
	return result, nil
}

func (s *simulation) longest() time.Duration { return s.known[len(s.known)-1].Window }

// user simulates one user. Short is false for a log that is too long.
func (s *simulation) user(ctx context.Context, subject limiter.Subject) (row adminapi.SimulatedUser, short bool, err error) {
	state, err := s.logs.Inspect(ctx, subject, 0, s.known...)
	if err != nil {
		return row, false, err
	}
	row.Requests = state.Windows[len(state.Windows)-1].Used
	if !slices.ContainsFunc(s.limits, func(l limiter.Limit) bool { return row.Requests >= l.Requests }) {
		return row, true, nil // no window has ever been full
	}
	if row.Requests > maxReplayed {
		return row, false, nil
	}
	times, err := s.logs.Times(ctx, subject, s.longest())
	if err != nil {
		return row, false, err
	}
	first := slices.IndexFunc(times, func(at time.Time) bool { return state.Now.Sub(at) < s.longest() })
	if first < 0 {
		first = len(times)
	}
	times = times[first:] // without those that have left, which may not be removed yet
	row.RejectedNow = s.rejectedNow(state, times)
	row.Requests, row.Rejected = int64(len(times)), replay(times, s.limits)
	return row, true, nil
}

// rejectedNow returns whether the next request would be rejected if the limits held from now on. What
// was admitted until now has been charged, so this is not what replay has left.
func (s *simulation) rejectedNow(state limiter.State, times []time.Time) bool {
	granted := state.Grant != nil && state.Grant.Used < state.Grant.Requests
	rejected := false
	for _, l := range s.limits {
		used := within(times, l.Window, state.Now)
		if i := slices.IndexFunc(state.Windows, func(w limiter.WindowState) bool { return w.Limit.Window == l.Window }); i >= 0 {
			used = state.Windows[i].Used
		}
		if l.Requests == 0 {
			return true // a grant admits nobody there
		}
		rejected = rejected || used >= l.Requests && !granted
	}
	return rejected
}

// windowsWith returns limits with the requests of others where these have the same window.
func windowsWith(limits, others []limiter.Limit) []limiter.Limit {
	limits = slices.Clone(limits)
	for i := range limits {
		for _, other := range others {
			if other.Window == limits[i].Window {
				limits[i] = other
			}
		}
	}
	return limits
}

// idOf is a hash as it is shown. Its zero bits say how small a sample it belongs to.
func idOf(hash uint64) string { return fmt.Sprintf("%016x", hash) }

// tierShown is a tier as the admin API shows it.
func tierShown(t *tier.Tier, disabled bool, now time.Time) adminapi.Tier {
	policy := map[tier.FailurePolicy]string{tier.FailClosed: "FailClosed", tier.FailLocal: "FailLocal", tier.FailOpen: "FailOpen"}
	return adminapi.Tier{Name: t.Name, Limits: limitsShown(t.Limits), Mode: modeOf(t), FailurePolicy: policy[t.FailurePolicy],
		KillSwitch: killSwitchOf(t, disabled, now)}
}

func limitsShown(limits []limiter.Limit) []adminapi.Limit {
	all := make([]adminapi.Limit, 0, len(limits))
	for _, l := range limits {
		name := l.Window.String()
		switch l.Window {
		case tier.Minute:
			name = adminapi.WindowMinute
		case tier.Day:
			name = adminapi.WindowDay
		}
		all = append(all, adminapi.Limit{Window: name, Requests: l.Requests})
	}
	return all
}
