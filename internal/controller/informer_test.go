// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
)

func TestSteadyWaitsOnlyForWhoIsAway(t *testing.T) {
	refused := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonExpired}}
	cases := map[string]struct {
		reason string
		errs   []error // of the first calls
		asked  int
		want   error
		lines  int // of the log
	}{
		"Answers":      {reason: "Nothing is repeated.", asked: 1},
		"Away":         {reason: "It is asked again until it answers, and the log says so once.", errs: []error{syscall.ECONNREFUSED, syscall.ECONNREFUSED, syscall.ECONNRESET}, asked: 4, lines: 2},
		"LoadBalancer": {reason: "A load balancer without an API server answers for it.", errs: []error{apierrors.NewServiceUnavailable("no backend")}, asked: 2, lines: 2},
		"BadGateway":   {reason: "Another one does so in its own words.", errs: []error{statusError(502), statusError(504)}, asked: 3, lines: 2},
		"Error":        {reason: "What the API server says is for the informer.", errs: []error{refused}, asked: 1, want: refused},
		"AwayAndError": {reason: "That goes for one that is back, too.", errs: []error{syscall.ECONNREFUSED, refused}, asked: 2, want: refused, lines: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var asked, lines int
			next := func() error {
				asked++
				if asked <= len(tc.errs) {
					return tc.errs[asked-1]
				}
				return nil
			}
			s := newSteady(&toolscache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					return &v1alpha1.RateLimitTierList{}, next()
				},
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
					return watch.NewEmptyWatch(), next()
				},
			}, funcr.New(func(string, string) { lines++ }, funcr.Options{}), time.Millisecond)
			for what, ask := range map[string]func() error{
				"list":  func() error { _, err := s.ListWithContext(t.Context(), metav1.ListOptions{}); return err },
				"watch": func() error { _, err := s.WatchWithContext(t.Context(), metav1.ListOptions{}); return err },
			} {
				asked, lines = 0, 0
				if err := ask(); !errors.Is(err, tc.want) || asked != tc.asked || lines != tc.lines {
					t.Errorf("%s %s: asked %d times, %d lines, %v", tc.reason, what, asked, lines, err)
				}
			}
		})
	}
}

// statusError is what the client library makes of an answer that is no Kubernetes Status.
func statusError(code int) error {
	return apierrors.NewGenericServerResponse(code, "get", v1alpha1.GroupVersion.WithResource("ratelimittiers").GroupResource(), "", "", 0, true)
}

func TestSteadyEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := newSteady(&toolscache.ListWatch{WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
		cancel()
		return nil, syscall.ECONNREFUSED
	}}, funcr.New(func(string, string) {}, funcr.Options{}), time.Hour)
	if _, err := s.WatchWithContext(ctx, metav1.ListOptions{}); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
}
