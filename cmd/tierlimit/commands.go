// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tierlimit/tierlimit/internal/desk"
)

// program is how this program is called unless it is a plugin.
const program = "tierlimit"

// command returns the command line that the arguments begin a command of, or nil if they are flags of the
// server, or nothing that is known.
func command(args []string, getenv func(string) string, stdout, stderr io.Writer) *cobra.Command {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return nil
	}
	root := commandLine(program, getenv, stdout, stderr)
	root.Flags().AddFlagSet(flags(&options{})) // to be completed
	root.InitDefaultHelpCmd()
	known := slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == args[0] })
	if !known && args[0] != cobra.ShellCompRequestCmd && args[0] != cobra.ShellCompNoDescRequestCmd {
		return nil
	}
	return root
}

// commandLine returns all commands. The name is how this program is called.
func commandLine(name string, getenv func(string) string, stdout, stderr io.Writer) *cobra.Command {
	root := desk.NewCommand(desk.Options{
		Streams: genericiooptions.IOStreams{In: os.Stdin, Out: stdout, ErrOut: stderr},
		Name:    name,
		Getenv:  getenv,
		Version: version(),
	})
	root.AddCommand(versionCommand(), ingressNginxCommand())
	return root
}

// runCommand runs a command and returns its exit code.
func runCommand(ctx context.Context, root *cobra.Command, args []string, stderr io.Writer) int {
	root.SetContext(ctx)
	root.SetArgs(args)
	return desk.Run(root, stderr)
}
