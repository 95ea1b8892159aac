// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestServerWithoutProxy has a kubeconfig whose API server is behind a proxy. That is not the way to
// another address, and must not see the credentials.
func TestServerWithoutProxy(t *testing.T) {
	secure := startAdmin(t, true, map[string]any{getQuota: blocked})
	var proxied atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		proxied.Add(1)
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(proxy.Close)
	file := kubeconfigWith(t, "https://192.0.2.1", nil, "", clientcmdapi.AuthInfo{Token: "the-token"})
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	config.Clusters["c"].ProxyURL = proxy.URL
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	for server, code := range map[string]int{
		secure.URL: 0,
		strings.Replace(secure.URL, "127.0.0.1", "localhost", 1): 0,
		"https://192.0.2.1:8444":                                 1, // nobody is there
	} {
		timeout := "1m"
		if code != 0 {
			timeout = "100ms"
		}
		got := call(t, nil, "get", "8421", "--kubeconfig", file, "--request-timeout", timeout, "--server", server)
		if n := proxied.Swap(0); got.code != code || n > 0 {
			t.Errorf("%s: the proxy was asked %d times: %v", server, n, got)
		}
	}
	if got := call(t, nil, "top", "--kubeconfig", file); got.code != 1 || proxied.Load() == 0 {
		t.Errorf("the API server is not asked through its proxy: %v", got)
	}
}

// TestHangingPlugin has a plugin make credentials for ever. Both --request-timeout and Ctrl-C end that.
func TestHangingPlugin(t *testing.T) {
	secure := startAdmin(t, true, map[string]any{getQuota: blocked})
	folder := t.TempDir() // the plugin ends with it
	plugin := filepath.Join(folder, "credentials")
	if err := os.WriteFile(plugin, []byte("#!/bin/sh\nwhile [ -e \"$0\" ]; do sleep 0.1; done\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := kubeconfigWith(t, cluster.Config.Host, cluster.Config.CAData, "default", clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: plugin, InteractiveMode: clientcmdapi.NeverExecInteractiveMode}})
	for _, where := range [][]string{nil, {"--server", secure.URL}} {
		got := call(t, nil, append([]string{"get", "8421", "--kubeconfig", file, "--request-timeout", "100ms"}, where...)...)
		if got.code != 1 || !strings.Contains(got.stderr, "no answer within 100ms") {
			t.Errorf("%v: --request-timeout: %v", where, got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel) // Ctrl-C
		got = callWith(ctx, strings.NewReader(""), nil, append([]string{"grant", "8421", "--requests", "1", "--for", "1h", "--yes", "--kubeconfig", file}, where...)...)
		if got.code != 1 || !strings.Contains(got.stderr, "interrupted") || strings.Contains(got.stderr, "may have been done") {
			t.Errorf("%v: Ctrl-C: %v", where, got)
		}
	}
}
