// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// What one simulation asks of Redis, so that checks hardly notice it.
const (
	// maxSimulated is how many users it looks at; of more it takes a sample.
	maxSimulated = 8192
	// simulatedRate is how many it looks at in a second at the most, one after the other.
	simulatedRate = 2000
	// simulateFor is for how long it begins with further users. Those that it has not come to are left out, as
	// if the sample were smaller.
	simulateFor = 3 * time.Minute
	// maxReplayed is the longest log that is replayed, in requests: 6 MiB.
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

// errTooSlow is the error of a simulation that has not read enough for the smallest sample.
var errTooSlow = fmt.Errorf("the logs cannot be read within %v: %w", simulateFor, context.DeadlineExceeded)

// simulation is what is asked of each user.
type simulation struct {
	logs   Logs
	limits []limiter.Limit // that are tried out
	known  []limiter.Limit // the windows that have logs, the shortest first
	pace   *rate.Limiter
	begun  time.Time
}

// Simulate says what other limits would have done to the users that this replica has seen in the last day
// by a tier: it replays the log of the tier's longest window, which holds the requests that were admitted.
// Where reading them all would take longer than three minutes, it takes a smaller sample. It blocks for so
// long at the most and for the last user's log, or until ctx ends; the error is then that of ctx, else that
// of logs.
func (u *Usage) Simulate(ctx context.Context, logs Logs, t *tier.Tier, limits []limiter.Limit) (adminapi.Simulation, error) {
	s := simulation{logs: logs, limits: limits, known: windowsWith(t.Limits, limits), pace: rate.NewLimiter(simulatedRate, 1), begun: u.now()}
	users, zeros := u.seenBy(t.Name, maxSimulated)
	// The smallest samples first: wherever it ends, what was read is a sample.
	slices.SortStableFunc(users, func(a, b sampled) int { return cmp.Compare(zerosOf(b.hash), zerosOf(a.hash)) })
	result := adminapi.Simulation{
		Replicas:     []string{u.options.Replica},
		Tier:         tierShown(t, u.options.Disabled, s.begun),
		Limits:       limitsShown(limits),
		Now:          s.begun,
		Since:        u.sinceWhen(s.begun),
		KnownSeconds: int64(s.longest() / time.Second),
		Users:        make([]adminapi.SimulatedUser, 0, len(users)),
	}
	rows := make([]adminapi.SimulatedUser, 0, len(users))
	long := make([]bool, 0, len(users))
	for i, user := range users {
		if i > 0 && u.now().Sub(s.begun) > simulateFor {
			zeros = zerosOf(user.hash) + 1
			break
		}
		row, short, err := s.user(ctx, user.subject)
		if err != nil {
			return adminapi.Simulation{}, fmt.Errorf("reading the logs of %d users of tier %s, of which %d were read: %w", len(users), t.Name, i, err)
		}
		row.ID = idOf(user.hash)
		rows, long = append(rows, row), append(long, !short)
	}
	result.SampledOneIn = 1 << zeros
	for i, row := range rows {
		switch {
		case zerosOf(users[i].hash) < zeros: // of a sample that was not read whole
		case long[i]:
			result.TooLong++
		default:
			result.Users = append(result.Users, row)
		}
	}
	if len(rows) < len(users) && len(result.Users)+int(result.TooLong) == 0 {
		return adminapi.Simulation{}, fmt.Errorf("%w: of %d users of tier %s %d were read", errTooSlow, len(users), t.Name, len(rows))
	}
	sortSimulated(result.Users)
	return result, nil
}

func (s *simulation) longest() time.Duration { return s.known[len(s.known)-1].Window }

// user simulates one user. Short is false for a log that is too long.
func (s *simulation) user(ctx context.Context, subject limiter.Subject) (row adminapi.SimulatedUser, short bool, err error) {
	if err := s.pace.Wait(ctx); err != nil { // also when ctx would end before it is this user's turn
		return row, false, cmp.Or(context.Cause(ctx), context.DeadlineExceeded)
	}
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
