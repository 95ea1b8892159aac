// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tierlimit/tierlimit/api/v1alpha1"
	"github.com/tierlimit/tierlimit/internal/controller"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
)

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// serveCluster runs in a cluster: the tiers are its RateLimitTiers. Every replica does the same,
// there is no leader.
func serveCluster(ctx context.Context, o options, log logr.Logger) error {
	client, err := redisClient(o)
	if err != nil {
		return err
	}
	defer client.Close()
	restConfig, err := clusterConfig(o.kubeconfig)
	if err != nil {
		return fmt.Errorf("no access to a cluster: %w; to run without one use --tiers DIR", err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme: scheme,
		Logger: log,
		// Longer than that of the servers, which are what there is to wait for.
		GracefulShutdownTimeout: ptr.To(o.shutdownTimeout() + webhookserver.ShutdownMargin),
		HealthProbeBindAddress:  off, // ours are the same in local mode, and have the same bounds
		Metrics:                 metricsserver.Options{BindAddress: off},
		Cache:                   cache.Options{NewInformer: controller.NewInformer(log.WithName("tiers"))},
	})
	if err != nil {
		return fmt.Errorf("setting up: %w", err)
	}
	var tiers tier.Table
	servers, replica, err := newServers(ctx, o, &tiers, client, log)
	if err != nil {
		return err
	}
	if servers, err = withSecureMetrics(o, mgr, servers, log); err != nil {
		return err
	}
	if servers, err = withSecureAdmin(o, mgr, servers, replica, log); err != nil {
		return err
	}
	discovery, err := newDiscovery(o, mgr.GetConfig(), log)
	if err != nil {
		return err
	}
	reconciler := &controller.Reconciler{
		Client:           mgr.GetClient(),
		Recorder:         mgr.GetEventRecorder("tierlimit"),
		Table:            &tiers,
		GloballyDisabled: o.disabled,
		Discovery:        discovery,
	}
	if err := reconciler.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up: %w", err)
	}
	if discovery != nil {
		servers = append(servers, discovery)
	}
	if err := addAll(mgr, servers); err != nil {
		return err
	}
	log.Info("answering checks", "version", version(), "address", replica.address.String())
	go logInForce(ctx, o, &tiers, log)
	go lookAtRedis(ctx, o, client, log)
	return mgr.Start(ctx)
}

func addAll(mgr manager.Manager, servers []manager.Runnable) error {
	for _, server := range servers {
		if err := mgr.Add(server); err != nil {
			return fmt.Errorf("setting up: %w", err)
		}
	}
	return nil
}

// clusterConfig finds the access to the cluster as kubectl does and, in a pod, uses its service
// account.
func clusterConfig(kubeconfig string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	restConfig, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	restConfig.QPS = -1 // the API server's priority and fairness limits clients better than they do themselves
	return restConfig, nil
}
