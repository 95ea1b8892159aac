// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// kubeconfig is the access to a cluster, found as kubectl finds it. It is client-go's part of kubectl's
// flags: the rest of them, k8s.io/cli-runtime, brings kustomize along and makes the program a third
// larger.
type kubeconfig struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
}

func newKubeconfig() *kubeconfig {
	return &kubeconfig{rules: clientcmd.NewDefaultClientConfigLoadingRules()}
}

// addFlags adds the flags that kubectl has for this, but for --server.
func (k *kubeconfig) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&k.rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "`FILE` with the access to clusters; without it $KUBECONFIG or ~/.kube/config")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	// That is the address of the admin API, which is what is asked here.
	names.ClusterOverrideFlags.APIServer.LongName = ""
	// kubectl has neither: a password on a command line is seen by everybody on the machine.
	names.AuthOverrideFlags.Username.LongName, names.AuthOverrideFlags.Password.LongName = "", ""
	clientcmd.BindOverrideFlags(&k.overrides, fs, names)
}

// loader returns the access that the flags and the files give.
func (k *kubeconfig) loader() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(k.rules, &k.overrides)
}

// rest returns the same as a client needs it.
func (k *kubeconfig) rest() (*rest.Config, error) { return k.loader().ClientConfig() }
