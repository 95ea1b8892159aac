// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/tierlimit/tierlimit/internal/desk"
	"github.com/tierlimit/tierlimit/internal/ingressnginx"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
)

// ingressNginxCommand prints what to configure ingress-nginx with.
func ingressNginxCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "ingress-nginx configmap|annotations",
		Short:     "Print the configuration of ingress-nginx that gives its clients a true 429",
		ValidArgs: []string{"configmap", "annotations"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || (args[0] != "configmap" && args[0] != "annotations") {
				return desk.UsageError("use 'tierlimit ingress-nginx configmap' or 'tierlimit ingress-nginx annotations'")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			output := ingressnginx.ConfigMap(webhookserver.ClientHeaders)
			if args[0] == "annotations" {
				output = ingressnginx.Annotations(webhookserver.ClientHeaders)
			}
			_, err := c.OutOrStdout().Write(output)
			return err
		},
	}
}
