// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/tierlimit/tierlimit/internal/controller"
)

// maxReplicas is the largest --replicas, more than any Service has.
const maxReplicas = 100_000

func (o options) validateReplicas(fs *pflag.FlagSet) error {
	switch {
	case o.firstReplicas < 1 || o.firstReplicas > maxReplicas:
		return fmt.Errorf("--replicas is %d: use 1 to %d", o.firstReplicas, maxReplicas)
	case !fs.Changed("service"):
		return nil
	case o.local():
		return errors.New("--service has no effect in local mode: give the number of --replicas")
	case len(validation.IsDNS1035Label(o.service)) > 0:
		return fmt.Errorf("--service is %q, which cannot be the name of a Service", o.service)
	case o.namespace != "" && len(validation.IsDNS1123Label(o.namespace)) > 0:
		return fmt.Errorf("%s is %q, which cannot be the name of a namespace", envNamespace, o.namespace)
	}
	return nil
}

// namespaceFile is where a Pod finds the namespace of its service account.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// newDiscovery returns what knows the replicas behind --service, or nil without it.
func newDiscovery(o options, config *rest.Config, log logr.Logger) (*controller.Discovery, error) {
	if o.service == "" {
		return nil, nil
	}
	namespace := o.namespace
	if namespace == "" {
		content, err := os.ReadFile(namespaceFile)
		if err != nil {
			return nil, fmt.Errorf("--service: its namespace is not known: set %s: %w", envNamespace, err)
		}
		namespace = strings.TrimSpace(string(content))
	}
	return &controller.Discovery{Config: config, Namespace: namespace, Service: o.service,
		Pod: o.pod, Port: o.healthPort(), Replicas: o.replicas, Log: log.WithName("discovery")}, nil
}

// healthPort returns the port of the probes, at which replicas ask each other; "" if there is none.
func (o options) healthPort() string {
	_, port, err := net.SplitHostPort(o.healthAddress)
	if err != nil || port == "0" { // off, or any that is free
		return ""
	}
	return port
}
