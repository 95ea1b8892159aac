// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
	"github.com/tierlimit/tierlimit/internal/admin"
)

// Where a cluster publishes the CA of its client certificates. Whoever may delegate authentication to the API
// server may read it, by the Role extension-apiserver-authentication-reader of the same namespace.
const (
	authorityNamespace = "kube-system"
	authorityConfigMap = "extension-apiserver-authentication"
	authorityKey       = "client-ca-file"
)

// authorityRetry is how often an API server that is away is asked again.
const authorityRetry = 5 * time.Second

// authority learns the CA of the cluster's client certificates, and follows its changes. Without it nobody
// can use one.
type authority struct {
	client   kubernetes.Interface
	provider *dynamiccertificates.ConfigMapCAController
	log      logr.Logger
}

func newAuthority(client kubernetes.Interface, log logr.Logger) (*authority, error) {
	provider, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca", authorityNamespace, authorityConfigMap, authorityKey, client)
	return &authority{client: client, provider: provider, log: log}, err
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*authority) NeedLeaderElection() bool { return false }

// Start follows the CA until ctx ends. If it may not be read, one line says so.
func (a *authority) Start(ctx context.Context) error {
	for {
		err := a.readable(ctx)
		switch {
		case err == nil:
			a.provider.Run(ctx, 1)
			return nil
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errNoAuthority), apierrors.IsForbidden(err), apierrors.IsNotFound(err):
			a.log.Info("the admin API takes tokens only, no client certificates: the CA of the cluster cannot be read",
				"configMap", authorityNamespace+"/"+authorityConfigMap, "reason", err.Error())
			<-ctx.Done() // a Runnable that returns is one that is over
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(authorityRetry):
		}
	}
}

var errNoAuthority = errors.New("it has no " + authorityKey)

func (a *authority) readable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	configMap, err := a.client.CoreV1().ConfigMaps(authorityNamespace).Get(ctx, authorityConfigMap, metav1.GetOptions{})
	if err == nil && configMap.Data[authorityKey] == "" {
		return errNoAuthority
	}
	return err
}

// eventTimeout bounds writing one Event.
const eventTimeout = 5 * time.Second

// eventWriter writes an Event for each change. A recorder would not do: it takes two changes of the same kind to one
// tier for one that happens twice, and shows the first.
type eventWriter struct {
	client   eventsclient.EventsV1Interface
	instance string
	log      logr.Logger
}

func newEventWriter(config *rest.Config, httpClient *http.Client, pod string, log logr.Logger) (*eventWriter, error) {
	client, err := eventsclient.NewForConfigAndClient(config, httpClient)
	return &eventWriter{client: client, instance: cmp.Or(pod, "unknown"), log: log}, err
}

// write writes an Event. The change has been made, so that a failure is only logged.
func (e *eventWriter) write(ctx context.Context, change admin.Event) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	now := time.Now()
	event := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", change.Tier.Name, now.UnixNano()), Namespace: metav1.NamespaceDefault},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: "tierlimit",
		ReportingInstance:   e.instance,
		Type:                corev1.EventTypeNormal,
		Reason:              change.Reason,
		Action:              change.Action,
		Note:                change.Note,
		Regarding: corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RateLimitTier",
			Name: change.Tier.Name, UID: types.UID(change.Tier.UID)},
	}
	if _, err := e.client.Events(metav1.NamespaceDefault).Create(ctx, event, metav1.CreateOptions{}); err != nil {
		e.log.Error(err, "the Event of a change could not be written", "reason", change.Reason, "note", change.Note)
	}
}
