// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

// serviceAccount makes one that may do everything, and returns a token of it.
func serviceAccount(t *testing.T, namespace string) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	account, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "support"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-support"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account.Name, Namespace: namespace}}}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// kubeconfigWith writes a kubeconfig for an API server with these credentials.
func kubeconfigWith(t *testing.T, host string, caData []byte, namespace string, user clientcmdapi.AuthInfo) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: host, CertificateAuthorityData: caData}
	config.AuthInfos["u"] = &user
	config.Contexts["ctx"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: namespace}
	config.CurrentContext = "ctx"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestCredentials expects what a kubeconfig has for the API server to reach the admin API, and no password.
func TestCredentials(t *testing.T) {
	api := startAdmin(t, true, map[string]any{getQuota: blocked})
	space := namespace(t)
	cluster.StartKubelet(t).Pod(t, space, "tierlimit-a", 8444, api.address(), nil)
	token := serviceAccount(t, space)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	plugin := filepath.Join(t.TempDir(), "credentials")
	script := fmt.Sprintf("#!/bin/sh\necho '{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"%s\"}}'\n", token)
	if err := os.WriteFile(plugin, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason string
		user   clientcmdapi.AuthInfo
	}{
		"token":     {"as service accounts have", clientcmdapi.AuthInfo{Token: token}},
		"tokenFile": {"as in a Pod", clientcmdapi.AuthInfo{TokenFile: file}},
		"exec": {"as with the clouds' plugins", clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: plugin, InteractiveMode: clientcmdapi.NeverExecInteractiveMode}}},
	} {
		t.Run(name, func(t *testing.T) {
			kubeconfig := kubeconfigWith(t, cluster.Config.Host, cluster.Config.CAData, space, tc.user)
			if got := call(t, nil, "get", "8421", "--kubeconfig", kubeconfig); got.code != 0 {
				t.Fatalf("%s: %v", tc.reason, got)
			}
			if got := api.requests(); len(got) != 1 || got[0].Bearer != "Bearer "+token {
				t.Errorf("%s: the admin API was asked %v", tc.reason, got)
			}
		})
	}
	t.Run("password", func(t *testing.T) {
		server := cluster.Config // its certificate opens the API server, the password would go to the admin API
		kubeconfig := kubeconfigWith(t, server.Host, server.CAData, space, clientcmdapi.AuthInfo{
			ClientCertificateData: server.CertData, ClientKeyData: server.KeyData, Username: "alice", Password: "secret"})
		if got := call(t, nil, "get", "8421", "--kubeconfig", kubeconfig); got.code != 0 {
			t.Fatal(got)
		}
		if got := api.requests(); len(got) != 1 || got[0].Bearer != "" || got[0].Certificate == "" {
			t.Errorf("the admin API was asked %v", got)
		}
	})
}

// TestWithoutWebSockets has an API server behind a proxy that lets no WebSocket pass.
func TestWithoutWebSockets(t *testing.T) {
	api := startAdmin(t, true, map[string]any{getQuota: blocked})
	space := namespace(t)
	cluster.StartKubelet(t).Pod(t, space, "tierlimit-a", 8444, api.address(), nil)
	target, err := url.Parse(cluster.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: cluster.Config.CAData, NextProtos: []string{"http/1.1"}}})
	if err != nil {
		t.Fatal(err)
	}
	var webSockets, spdys atomic.Int64
	forward := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	proxy := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch strings.ToLower(r.Header.Get("Upgrade")) {
		case "websocket":
			webSockets.Add(1)
			http.Error(w, "no WebSockets here", http.StatusBadRequest)
			return
		case "spdy/3.1":
			spdys.Add(1)
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	kubeconfig := kubeconfigWith(t, proxy.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw}), space,
		clientcmdapi.AuthInfo{Token: serviceAccount(t, space)})
	if got := call(t, nil, "get", "8421", "--kubeconfig", kubeconfig); got.code != 0 {
		t.Error(got)
	}
	if webSockets.Load() == 0 || spdys.Load() == 0 {
		t.Errorf("%d WebSockets and %d SPDY connections were tried, want both", webSockets.Load(), spdys.Load())
	}
}

// TestServer asks one address.
func TestServer(t *testing.T) {
	plain, secure := startAdmin(t, false, map[string]any{getQuota: blocked}), startAdmin(t, true, map[string]any{getQuota: blocked})
	kubeconfig := kubeconfigWith(t, "https://127.0.0.1:1", nil, "", clientcmdapi.AuthInfo{Token: "the-token"})
	absent := filepath.Join(t.TempDir(), "none")
	_, port, _ := strings.Cut(plain.address(), ":")
	for name, tc := range map[string]struct {
		reason string
		env    map[string]string
		args   []string
		api    *admin
		bearer string
		code   int
		want   string
	}{
		"local mode":          {reason: "local mode asks for no credentials, so it is told none", args: []string{"--server", plain.URL}, api: plain},
		"by name":             {reason: "localhost is this machine", args: []string{"--server", "http://localhost:" + port}, api: plain},
		"environment":         {reason: "for a whole session", env: map[string]string{"TIERLIMIT_SERVER": plain.URL}, api: plain},
		"own tunnel":          {reason: "over TLS the credentials go along", args: []string{"--server", secure.URL}, api: secure, bearer: "Bearer the-token"},
		"far":                 {reason: "names of users and grants do not go over a network in clear", args: []string{"--server", "http://192.0.2.1:8444"}, code: 2, want: "plain HTTP is for addresses of this machine"},
		"look-alike":          {reason: "a name is not this machine because it begins like it", args: []string{"--server", "http://127.0.0.1.example.com:8444"}, code: 2, want: "plain HTTP is for addresses of this machine"},
		"no scheme":           {reason: "a URL has one", args: []string{"--server", "127.0.0.1:8444"}, code: 2, want: "--server is \"127.0.0.1:8444\", which is not a URL: use a URL such as http://127.0.0.1:8444"},
		"no scheme, password": {reason: "a password is never repeated", args: []string{"--server", "u:cret@127.0.0.1:8444"}, code: 2, want: "it may have a password"},
		"path":                {reason: "the paths are the API's", args: []string{"--server", plain.URL + "/admin"}, code: 2, want: "give a scheme, a host and a port"},
		"password":            {reason: "a password is never repeated", args: []string{"--server", "http://u:cret@127.0.0.1:8444"}, code: 2, want: "give a scheme, a host and a port"},
		"refused":             {reason: "nothing listens", args: []string{"--server", "http://127.0.0.1:1"}, code: 1, want: "connection refused. Does Tierlimit run there"},
		"TLS to none":         {reason: "local mode speaks plain HTTP", args: []string{"--server", "https://" + plain.address()}, code: 1, want: "use http:// in --server"},
		"no rights":           {reason: "local mode has no kubeconfig to read", args: []string{"--server", plain.URL, "--kubeconfig", absent}, api: plain},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"get", "8421"}, tc.args...)
			if !strings.Contains(strings.Join(args, " "), "--kubeconfig") {
				args = append(args, "--kubeconfig", kubeconfig)
			}
			got := call(t, tc.env, args...)
			if got.code != tc.code || !strings.Contains(got.stderr, tc.want) || strings.Contains(got.stderr, "cret") {
				t.Errorf("%s: want code %d and %q: %v", tc.reason, tc.code, tc.want, got)
			}
			if tc.api != nil {
				if asked := tc.api.requests(); len(asked) != 1 || asked[0].Bearer != tc.bearer {
					t.Errorf("%s: the admin API was asked %v", tc.reason, asked)
				}
			}
		})
	}
}

// TestUnreachable expects errors that say what to do.
func TestUnreachable(t *testing.T) {
	admin := cluster.Kubeconfig(t, "alice", "system:masters")
	kubelet := cluster.StartKubelet(t)
	empty, waiting, refusing, off, old, elsewhere := namespace(t), namespace(t), namespace(t), namespace(t), namespace(t), namespace(t)
	kubelet.Pod(t, waiting, "tierlimit-a", 8444, "", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse })
	kubelet.Pod(t, refusing, "tierlimit-a", 8444, "", nil)
	kubelet.Pod(t, off, "tierlimit-a", 8444, "", func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"--admin-bind-address=0"} })
	kubelet.Pod(t, old, "tierlimit-a", 8444, startAdmin(t, true, nil).address(), nil)
	kubelet.Pod(t, elsewhere, "tierlimit-a", 8444, "", func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"--admin-bind-address", "127.0.0.1:9444"} })
	nobody := cluster.Kubeconfig(t, "mallory")
	for name, tc := range map[string]struct {
		reason, kubeconfig, namespace string
		want                          []string
	}{
		"no Pods":    {"a wrong namespace", admin, empty, []string{"there are no Pods of Tierlimit (label app.kubernetes.io/name=tierlimit) in namespace " + empty, "give the namespace with -n"}},
		"not ready":  {"a Pod that does not answer", admin, waiting, []string{"none of the 1 Pods of Tierlimit in namespace " + waiting + " is ready", "describe pods"}},
		"refused":    {"an older version, or off", admin, refusing, []string{"Pod tierlimit-a cannot be asked", "connection refused", "it is off (--admin-bind-address=0), or the Pods run a version that has none"}},
		"off":        {"the Pod says so", admin, off, []string{"the admin API is off", "Set it to 127.0.0.1:8444"}},
		"older":      {"another path", admin, old, []string{"answers 404", "older version than this client (v0.0.0-test)"}},
		"other port": {"the port is that of the Pod's flag", admin, elsewhere, []string{"9444"}},
		"no rights":  {"nobody may look for Pods", nobody, empty, []string{`User "mallory" cannot list resource "pods"`, "kubectl -n " + empty + " create role tierlimit-port-forward --verb=get,create --resource=pods/portforward"}},
		"no file":    {"a wrong path", filepath.Join(t.TempDir(), "none"), empty, []string{"reading the kubeconfig", "no such file"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := call(t, nil, "get", "8421", "--kubeconfig", tc.kubeconfig, "-n", tc.namespace)
			for _, want := range tc.want {
				if got.code != 1 || !strings.Contains(got.stderr, want) {
					t.Errorf("%s: want code 1 and %q: %v", tc.reason, want, got)
				}
			}
		})
	}
}

// TestForbidden expects the commands that give the missing right.
func TestForbidden(t *testing.T) {
	space := namespace(t)
	problem := func(status int, detail string) adminapi.Problem {
		return adminapi.Problem{Status: status, Detail: detail}
	}
	api := startAdmin(t, true, map[string]any{
		getQuota:    problem(http.StatusForbidden, "alice may not get /admin/v1/quota."),
		deleteQuota: problem(http.StatusForbidden, "no"),
		getTop:      problem(http.StatusUnauthorized, "The token is not known."),
	})
	cluster.StartKubelet(t).Pod(t, space, "tierlimit-a", 8444, api.address(), nil)
	admin := cluster.Kubeconfig(t, "alice", "system:masters")
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"get":         {[]string{"get", "8421"}, "kubectl create clusterrolebinding tierlimit-quota-get-alice --clusterrole=tierlimit-quota-get --user=alice"},
		"reset":       {[]string{"reset", "8421", "--yes"}, "--clusterrole=tierlimit-quota-reset --user=alice"},
		"certificate": {[]string{"top"}, "the replica takes tokens only"},
	} {
		t.Run(name, func(t *testing.T) {
			got := call(t, nil, append(tc.args, "--kubeconfig", admin, "-n", space)...)
			if got.code != 1 || !strings.Contains(got.stderr, tc.want) {
				t.Errorf("want code 1 and %q: %v", tc.want, got)
			}
		})
	}
	t.Run("port-forward", func(t *testing.T) {
		client, err := kubernetes.NewForConfig(cluster.Config)
		if err != nil {
			t.Fatal(err)
		}
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}}}}
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "pods"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "bob"}}}
		if _, err := client.RbacV1().Roles(space).Create(context.Background(), role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.RbacV1().RoleBindings(space).Create(context.Background(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		got := call(t, nil, "get", "8421", "--kubeconfig", cluster.Kubeconfig(t, "bob"), "-n", space)
		for _, want := range []string{"no port-forward", "forbidden", "--resource=pods/portforward"} {
			if got.code != 1 || !strings.Contains(got.stderr, want) {
				t.Errorf("want code 1 and %q: %v", want, got)
			}
		}
	})
	t.Run("impersonation", func(t *testing.T) {
		got := call(t, nil, "get", "8421", "--kubeconfig", admin, "-n", space, "--as", "bob")
		if got.code != 2 || !strings.Contains(got.stderr, `--as "bob" cannot be used`) {
			t.Error(got)
		}
	})
}
