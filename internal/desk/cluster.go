// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// selector finds the Pods, by the labels of the chart and of config.
	selector = "app.kubernetes.io/name=tierlimit"
	// adminFlag is the server's flag for the address of the admin API, adminPort the port without it.
	adminFlag = "--admin-bind-address"
	adminPort = 8444
	// off is what adminFlag switches the admin API off with.
	off = 0
)

// cluster finds replicas by the API server and reaches them through it.
type cluster struct {
	config    *rest.Config
	client    kubernetes.Interface
	namespace string
	explicit  bool // the namespace is that of -n
	agent     string
	timeout   time.Duration
	known     map[types.UID]*tunnelled // by the UID of the Pod
}

// tunnelled is a replica and the way to it.
type tunnelled struct {
	tunnel  *tunnel
	replica *replica
}

func (d *desk) connectCluster(timeout time.Duration) (*cluster, error) {
	loader := d.config.loader()
	config, err := d.config.rest()
	switch {
	case clientcmd.IsEmptyConfig(err) || (err == nil && nowhere(config)):
		return nil, errors.New("there is no kubeconfig: give one with --kubeconfig or $KUBECONFIG, or an address with --server (http://127.0.0.1:8444 in local mode)")
	case err != nil:
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	case config.Impersonate.UserName != "":
		return nil, errImpersonation(config)
	}
	config = rest.CopyConfig(config)
	config.UserAgent = d.agent()
	c := &cluster{config: config, agent: d.agent(), timeout: timeout, known: map[types.UID]*tunnelled{}}
	c.explicit = d.config.overrides.Context.Namespace != ""
	if c.namespace, _, err = loader.Namespace(); err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return c, nil
}

// nowhere returns whether a configuration is what is left when there is no kubeconfig: the address at which
// API servers listened long ago.
func nowhere(config *rest.Config) bool {
	return config.Host == clientcmd.ClusterDefaults.Server || config.Host == "http://localhost:8080"
}

func (d *desk) agent() string { return "kubectl-tierlimit/" + d.Version }

func (c *cluster) close() {
	for _, one := range c.known {
		one.tunnel.close()
	}
}

// replicas returns a replica for each ready Pod. Of a Pod that was known it is the same, with its tunnel.
func (c *cluster) replicas(ctx context.Context) ([]*replica, error) {
	pods, err := c.pods(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	var list []*replica
	for i := range pods {
		pod := &pods[i]
		port, err := adminPortOf(pod)
		if err != nil {
			return nil, err
		}
		if port == off {
			continue
		}
		one := c.known[pod.UID]
		if one == nil {
			if one, err = c.reach(pod, port); err != nil {
				return nil, err
			}
			c.known[pod.UID] = one
		}
		list = append(list, one.replica)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the admin API is off: the Pods in namespace %s run with %s=%d. Set it to 127.0.0.1:%d", pods[0].Namespace, adminFlag, off, adminPort)
	}
	return list, nil
}

// pods returns the ready Pods in the namespace or, if there are no Pods and none was asked for, in all.
func (c *cluster) pods(ctx context.Context) ([]corev1.Pod, error) {
	all, err := c.list(ctx, c.namespace)
	if err != nil {
		return nil, err
	}
	where := "namespace " + c.namespace
	if len(all) == 0 && !c.explicit {
		everywhere, err := c.list(ctx, metav1.NamespaceAll)
		switch {
		case apierrors.IsForbidden(err):
			where += " (you may not look in all)"
		case err != nil:
			return nil, err
		default:
			all, where = everywhere, "any namespace"
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there are no Pods of Tierlimit (label %s) in %s: give the namespace with -n, the cluster with --context or --kubeconfig, or an address with --server", selector, where)
	}
	if other := slices.IndexFunc(all, func(p corev1.Pod) bool { return p.Namespace != all[0].Namespace }); other >= 0 {
		return nil, fmt.Errorf("there are Pods of Tierlimit in the namespaces %s and %s: choose with -n", all[0].Namespace, all[other].Namespace)
	}
	ready := slices.DeleteFunc(slices.Clone(all), func(p corev1.Pod) bool { return !isReady(&p) })
	if len(ready) == 0 {
		return nil, fmt.Errorf("none of the %d Pods of Tierlimit in namespace %s is ready: see why with kubectl -n %s describe pods -l %s", len(all), all[0].Namespace, all[0].Namespace, selector)
	}
	return ready, nil
}

func (c *cluster) list(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no answer within %v", c.timeout))
	defer cancel()
	list, err := within(ctx, func() (*corev1.PodList, error) {
		return c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	})
	switch {
	case apierrors.IsForbidden(err) && namespace == metav1.NamespaceAll:
		return nil, err
	case apierrors.IsForbidden(err) && c.explicit:
		return nil, fmt.Errorf("looking for Pods of Tierlimit: %w. You need these rights:\n%s", err, rightsToForward(namespace))
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("looking for Pods of Tierlimit: %w. Give the namespace that it runs in with -n NAMESPACE. There you need these rights:\n%s", err, rightsToForward("NAMESPACE"))
	case apierrors.IsUnauthorized(err):
		return nil, fmt.Errorf("looking for Pods of Tierlimit: the API server does not accept the credentials of your kubeconfig (%w): see kubectl auth whoami, and log in again", err)
	case err != nil:
		return nil, fmt.Errorf("looking for Pods of Tierlimit at %s: %w", c.config.Host, withCause(ctx, err))
	}
	return list.Items, nil
}

func withCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	return err
}

func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// adminPortOf returns the port of the admin API in a Pod, or off, by the arguments of its containers.
func adminPortOf(pod *corev1.Pod) (int, error) {
	for _, container := range pod.Spec.Containers {
		arguments := slices.Concat(container.Command, container.Args)
		for i, argument := range arguments {
			name, value, joined := strings.Cut(argument, "=")
			if name != adminFlag {
				continue
			}
			if !joined && i+1 < len(arguments) {
				value = arguments[i+1]
			}
			if value == strconv.Itoa(off) {
				return off, nil
			}
			_, text, err := net.SplitHostPort(value)
			port, wrong := strconv.ParseUint(text, 10, 16)
			if err != nil || wrong != nil {
				return 0, fmt.Errorf("the Pod %s has %s=%s, which is not host:port", pod.Name, adminFlag, value)
			}
			return int(port), nil
		}
	}
	return adminPort, nil
}

// reach makes the client for one Pod. Its certificate is made by the Pod itself and proves nothing; the
// way there is the API server's and the kubelet's, and leads to no other Pod.
func (c *cluster) reach(pod *corev1.Pod, port int) (*tunnelled, error) {
	address := c.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	dialer, err := forwarder(c.config, address)
	if err != nil {
		return nil, fmt.Errorf("setting up the port-forward: %w", err)
	}
	t := &tunnel{dialer: dialer, port: port}
	client, err := credentialed(c.config, rest.TLSClientConfig{Insecure: true}, t.dial, noProxy) // the tunnel is the way
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return &tunnelled{tunnel: t, replica: &replica{
		name: "Pod " + pod.Name, namespace: pod.Namespace, base: fmt.Sprintf("https://127.0.0.1:%d", port), client: client, agent: c.agent,
	}}, nil
}

// credentialed returns a client that sends the credentials of a kubeconfig: its client certificate and
// whatever makes its tokens. Not a password: no API server takes one any more. The server is verified
// by tls, not by the CA of the cluster, and reached by dial and proxy, not as the API server is.
func credentialed(config *rest.Config, tls rest.TLSClientConfig, dial func(context.Context, string, string) (net.Conn, error), proxy func(*http.Request) (*url.URL, error)) (*http.Client, error) {
	admin := rest.CopyConfig(config)
	admin.Username, admin.Password = "", ""
	given := config.TLSClientConfig
	tls.CertFile, tls.KeyFile, tls.CertData, tls.KeyData = given.CertFile, given.KeyFile, given.CertData, given.KeyData
	tls.NextProtos = []string{"http/1.1"}
	admin.TLSClientConfig = tls
	admin.Dial, admin.Proxy = dial, proxy
	transport, err := rest.TransportFor(admin)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport, CheckRedirect: notFollowed}, nil
}

// noProxy is no proxy, not even that of the environment.
func noProxy(*http.Request) (*url.URL, error) { return nil, nil }

// notFollowed keeps credentials from going anywhere else.
func notFollowed(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
