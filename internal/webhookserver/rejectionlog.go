// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync/atomic"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"

	"github.com/tierlimit/tierlimit/internal/identity"
)

const (
	// maxRejectionsLogged is how many rejections a second are logged at debug level: enough to see who
	// is limited by what, and no more under an attack.
	maxRejectionsLogged = 10
	// debugLevel is the verbosity in logr of log/slog's debug level.
	debugLevel = -int(slog.LevelDebug)
)

// rejectionLog logs a sample of the rejections, for whoever asks for the debug level.
type rejectionLog struct {
	log      logr.Logger
	sample   *rate.Limiter
	seed     maphash.Seed
	unlogged atomic.Int64 // since the last line
}

func newRejectionLog(log logr.Logger) *rejectionLog {
	return &rejectionLog{
		log:    log.V(debugLevel),
		sample: rate.NewLimiter(maxRejectionsLogged, maxRejectionsLogged),
		seed:   maphash.MakeSeed(),
	}
}

// rejected takes note of a rejection. The line tells one caller from another and does not name them: a
// log is read by more people than may know who calls, and the hash cannot be computed outside of
// this process.
func (l *rejectionLog) rejected(a *answer, caller identity.Caller) {
	if !l.log.Enabled() {
		return
	}
	if !l.sample.Allow() {
		l.unlogged.Add(1)
		return
	}
	hash := maphash.String(l.seed, fmt.Sprint(caller.Kind, ":", caller.Tenant, ":", caller.User))
	l.log.Info("rejected", "tier", a.tier, "upstream", a.upstream, "window", a.quota.name(), "limit", a.quota.Requests,
		"retryAfter", a.retryAfter.String(), "outcome", string(a.outcome), "callerHash", fmt.Sprintf("%016x", hash),
		"unlogged", l.unlogged.Swap(0))
}
