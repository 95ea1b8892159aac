// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/tierlimit/tierlimit/internal/ingressnginx"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
)

// commandIngressNginx is the first argument of the command that prints what to configure
// ingress-nginx with.
const commandIngressNginx = "ingress-nginx"

// printIngressNginx runs that command and returns its exit code.
func printIngressNginx(args []string, stdout, stderr io.Writer) int {
	var output []byte
	switch strings.Join(args, " ") {
	case "configmap":
		output = ingressnginx.ConfigMap(webhookserver.ClientHeaders)
	case "annotations":
		output = ingressnginx.Annotations(webhookserver.ClientHeaders)
	default:
		fmt.Fprintln(stderr, "tierlimit: use 'tierlimit ingress-nginx configmap' or 'tierlimit ingress-nginx annotations'")
		return 2
	}
	if _, err := stdout.Write(output); err != nil {
		fmt.Fprintf(stderr, "tierlimit: %v\n", err)
		return 1
	}
	return 0
}
