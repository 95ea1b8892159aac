// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package desk is the quota desk: the commands with which support engineers look at users' budgets and
// change them, and the client of the admin API behind them. It knows the API by internal/adminapi, and
// nothing of the server.
package desk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// EnvServer names one address to ask instead of the Pods of a cluster, as --server does.
const EnvServer = "TIERLIMIT_SERVER"

// Plugin is how the program is called as a plugin of kubectl.
const Plugin = "kubectl tierlimit"

// Options are what the commands depend on.
type Options struct {
	// Streams are standard input, output and error. What asks and warns goes to error.
	Streams genericiooptions.IOStreams
	// Name is how the program is called. Example: "kubectl tierlimit".
	Name string
	// Getenv returns a variable of the environment.
	Getenv func(string) string
	// Version is told to the admin API. Example: "v1.2.3".
	Version string
}

// desk is what all commands share.
type desk struct {
	Options
	config *kubeconfig
	server string // --server
	now    func() time.Time
}

// usageError is a wrong command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usagef makes a usageError.
func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// UsageError is the error of a wrong command line, for commands that are added.
func UsageError(message string) error { return usagef("%s", message) }

// errSaid ends a command with exit code 1 when what was wrong is in its output.
var errSaid = errors.New("the output says what is wrong")

// Run runs a command that NewCommand made and returns its exit code: 0, 1 when it failed, 2 for a wrong
// command line. It prints the error.
func Run(root *cobra.Command, stderr io.Writer) int {
	command, err := root.ExecuteC()
	var wrong usageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errSaid):
		return 1
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "tierlimit: %v (see %s --help)\n", err, command.CommandPath())
		return 2
	}
	fmt.Fprintf(stderr, "tierlimit: %v\n", err)
	return 1
}

// NewCommand returns the command line. Add further commands to it before Run.
func NewCommand(o Options) *cobra.Command {
	out := &checked{Writer: o.Streams.Out}
	o.Streams.Out = out
	d := &desk{Options: o, config: newKubeconfig(), now: time.Now}
	root := &cobra.Command{
		Use:           "tierlimit",
		Short:         "See and change what is left of users' budgets",
		Long:          rootLong,
		SilenceErrors: true,
		SilenceUsage:  true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: o.Name},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %.40q", args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPostRunE: func(*cobra.Command, []string) error {
			if out.err != nil {
				return fmt.Errorf("writing the output: %w", out.err)
			}
			return nil
		},
	}
	root.SetIn(o.Streams.In)
	root.SetOut(o.Streams.Out)
	root.SetErr(o.Streams.ErrOut)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.SetUsageTemplate(usageTemplate)
	d.config.addFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&d.server, "server", o.Getenv(EnvServer), "`URL` of one admin API to ask instead of the Pods of a cluster, such as http://127.0.0.1:8444 of the local mode; the same as $"+EnvServer)
	root.AddCommand(d.getCommand(), d.explainCommand(), d.resetCommand(), d.grantCommand(), d.revokeCommand(),
		d.topCommand(), d.watchCommand(), d.simulateCommand(), d.benchCommand(), optionsCommand())
	d.complete(root)
	root.InitDefaultCompletionCmd("completion")
	return root
}

const rootLong = `See and change what is left of users' budgets.

The commands ask the admin API of Tierlimit's Pods, through a port-forward that they open
themselves with your kubeconfig. You need the rights to list Pods and to forward a port to them,
and the ClusterRole of each command: tierlimit-quota-get, tierlimit-quota-explain and so on.`

// optionsCommand shows the flags that all commands have, as "kubectl options" does.
func optionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "Show the flags that every command has",
		Args:  noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			fmt.Fprintf(c.OutOrStdout(), "These flags can be given to every command:\n\n%s", c.Root().PersistentFlags().FlagUsagesWrapped(100))
			return nil
		},
	}
}

// usageTemplate is cobra's, without the flags that all commands have.
const usageTemplate = `Usage:{{if .Runnable}}{{if .HasParent}}
  {{.UseLine}}{{end}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND [flags]{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}{{if .HasParent}}

Flags:
{{.LocalFlags.FlagUsagesWrapped 100 | trimTrailingWhitespaces}}{{end}}{{end}}

{{.Root.DisplayName}} options lists the flags that every command has: -n, --context, --kubeconfig, --server ...
`

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %.40q", args[0])
	}
	return nil
}

// checked is the standard output. It keeps the first error, so that no command has to look at each line.
type checked struct {
	io.Writer
	err error
}

// Write implements io.Writer.
func (c *checked) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	if c.err == nil {
		c.err = err
	}
	return n, err
}

// terminal returns whether a stream is one.
func terminal(stream any) bool {
	if out, ok := stream.(*checked); ok {
		stream = out.Writer
	}
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
