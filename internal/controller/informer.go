// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// awayInterval is about how often an API server that is away is asked whether it is back.
const awayInterval = time.Second

// NewInformer returns what makes the informers of a cache, for its options. They notice within about two
// seconds that an API server is back which was away. Those of client-go wait longer with each failure, after a
// minute for up to another one, in which a change is not in force. The log is told when the API server is away and
// when it is back.
func NewInformer(log logr.Logger) func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(from toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		return toolscache.NewSharedIndexInformer(newSteady(from, log, awayInterval), object, resync, indexers)
	}
}

// steady lists and watches, and waits where there is nobody to ask: an informer does not see that as a failure.
type steady struct {
	toolscache.ListerWatcher
	from     toolscache.ListerWatcherWithContext
	log      logr.Logger
	interval time.Duration
}

func newSteady(from toolscache.ListerWatcher, log logr.Logger, interval time.Duration) *steady {
	return &steady{ListerWatcher: from, from: toolscache.ToListerWatcherWithContext(from), log: log, interval: interval}
}

// ListWithContext implements toolscache.ListerWithContext.
func (s *steady) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return whileAway(ctx, s, func() (runtime.Object, error) { return s.from.ListWithContext(ctx, options) })
}

// WatchWithContext implements toolscache.WatcherWithContext.
func (s *steady) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return whileAway(ctx, s, func() (watch.Interface, error) { return s.from.WatchWithContext(ctx, options) })
}

// whileAway asks until the API server answers, or ctx ends.
func whileAway[T any](ctx context.Context, s *steady, ask func() (T, error)) (T, error) {
	for failed := false; ; failed = true {
		answer, err := ask()
		switch {
		case ctx.Err() != nil:
			return answer, err
		case !away(err):
			if failed {
				s.log.Info("API server answers again")
			}
			return answer, err
		case !failed:
			s.log.Error(err, "API server cannot be reached; what it said last stays in force")
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait.Jitter(s.interval, 0.5)): // replicas do not come all at once
		}
	}
}

// away returns whether an error says that no API server has answered. Its own answers have a reason; a load
// balancer in front of none has 502, 503 or 504.
func away(err error) bool {
	if err == nil {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return apierrors.ReasonForError(err) == metav1.StatusReasonUnknown
	}
	switch status.Status().Code {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return status.Status().Reason == metav1.StatusReasonUnknown
}
