// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// completePlugin is the name by which kubectl calls a program that completes the command line of its
// plugin, with the words so far.
const completePlugin = "kubectl_complete-tierlimit"

// pluginName is the name by which kubectl finds the plugin.
const pluginName = "kubectl-tierlimit"

// Called returns how a program with this path was called: as Plugin, or "" as something else. Args
// are the arguments to run with: for kubectl's completion those of the hidden command that completes.
func Called(path string, args []string) (name string, arguments []string) {
	switch filepath.Base(path) {
	case pluginName, pluginName + ".exe":
		return Plugin, args
	case completePlugin, completePlugin + ".exe":
		return Plugin, append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	return "", args
}

// completionPatience is how long somebody waits after the key.
const completionPatience = 3 * time.Second

type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// complete tells cobra what the values of flags can be. Users are not completed: their names would stay
// on the terminal of whoever pressed a key.
func (d *desk) complete(root *cobra.Command) {
	values := map[string]completion{
		"kind":         fixed(kinds...),
		"by":           fixed(byUsed, byRejected),
		"auth":         fixed("none"),
		"upstream-per": fixed("tenant"),
		"method":       fixed("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
		"tier":         d.completeTiers,
		"upstream":     d.completeTiers,
	}
	for _, c := range root.Commands() {
		c.ValidArgsFunction = cobra.NoFileCompletions
		for name, complete := range values {
			if c.Flags().Lookup(name) != nil {
				_ = c.RegisterFlagCompletionFunc(name, complete) // the flag exists
			}
		}
		if o := c.Flags().Lookup("output"); o != nil {
			_, formats, _ := strings.Cut(o.Usage, ": ")
			_ = c.RegisterFlagCompletionFunc("output", fixed(strings.Split(formats, ", ")...))
		}
		if c.Name() == "reset" {
			_ = c.RegisterFlagCompletionFunc("window", fixed("minute", "day"))
		}
	}
	for name, complete := range map[string]completion{"namespace": d.completeNamespaces, "context": d.completeContexts} {
		_ = root.RegisterFlagCompletionFunc(name, complete)
	}
}

func fixed(values ...string) completion {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

func (d *desk) completeTiers(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return d.listed(c.Context(), func(ctx context.Context, cluster *cluster) []string {
		body, err := cluster.client.CoreV1().RESTClient().Get().AbsPath("/apis/tierlimit.dev/v1alpha1/ratelimittiers").DoRaw(ctx)
		var list metav1.PartialObjectMetadataList
		if err != nil || json.Unmarshal(body, &list) != nil {
			return nil
		}
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return names
	})
}

func (d *desk) completeNamespaces(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return d.listed(c.Context(), func(ctx context.Context, cluster *cluster) []string {
		list, err := cluster.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil
		}
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return names
	})
}

// listed completes with what the API server lists, and with nothing if it cannot be asked.
func (d *desk) listed(ctx context.Context, list func(context.Context, *cluster) []string) ([]string, cobra.ShellCompDirective) {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	cluster, err := d.connectCluster(completionPatience)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, _ := within(ctx, func() ([]string, error) { return list(ctx, cluster), nil })
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (d *desk) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	config, err := d.config.loader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for name := range config.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}
