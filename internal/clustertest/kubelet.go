// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

// Kubelet is a Node of a cluster with a kubelet that does nothing but forward ports, by the library of the
// real one. A port of a Pod leads to an address that the test has named.
type Kubelet struct {
	client kubernetes.Interface
	node   string

	mu        sync.Mutex
	addresses map[string]string // host:port, by NAMESPACE/POD:PORT
}

var nodes atomic.Int64

// StartKubelet adds a Node until the test ends.
func (c *Cluster) StartKubelet(t testing.TB) *Kubelet {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	k := &Kubelet{client: client, node: fmt.Sprintf("node-%d", nodes.Add(1)), addresses: map[string]string{}}
	server := httptest.NewTLSServer(k)
	t.Cleanup(server.Close)
	address := server.Listener.Addr().(*net.TCPAddr)
	node, err := client.CoreV1().Nodes().Create(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.node}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.CoreV1().Nodes().Delete(context.Background(), k.node, metav1.DeleteOptions{}) })
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address.IP.String()}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(address.Port)
	if _, err := client.CoreV1().Nodes().UpdateStatus(context.Background(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return k
}

// ServeHTTP answers /portForward/NAMESPACE/POD.
func (k *Kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	if len(parts) != 4 || parts[1] != "portForward" {
		http.NotFound(w, r)
		return
	}
	portforward.ServePortForward(w, r, k, parts[2]+"/"+parts[3], "", nil, time.Minute, time.Minute, portforward.SupportedProtocols)
}

// PortForward connects as a container runtime does, to the loopback address of the Pod. It implements
// portforward.PortForwarder.
func (k *Kubelet) PortForward(_ context.Context, pod, _ string, port int32, stream io.ReadWriteCloser) error {
	k.mu.Lock()
	address := k.addresses[fmt.Sprintf("%s:%d", pod, port)]
	k.mu.Unlock()
	if address == "" {
		return fmt.Errorf("failed to connect to localhost:%d inside namespace %q: dial tcp4 127.0.0.1:%d: connect: connection refused", port, pod, port)
	}
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return fmt.Errorf("failed to connect to localhost:%d inside namespace %q: %w", port, pod, err)
	}
	defer connection.Close()
	go func() {
		_, _ = io.Copy(connection, stream)
		_ = connection.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, connection)
	return err
}

// Pod makes a ready Pod of Tierlimit on the Node. What listens at address is behind this port of its
// loopback address; nothing does for "". The function, unless nil, changes the Pod.
func (k *Kubelet) Pod(t testing.TB, namespace, name string, port int, address string, change func(*corev1.Pod)) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"app.kubernetes.io/name": "tierlimit"}},
		Spec:       corev1.PodSpec{NodeName: k.node, Containers: []corev1.Container{{Name: "tierlimit", Image: "tierlimit"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	if change != nil {
		change(pod)
	}
	status := pod.Status
	pods := k.client.CoreV1().Pods(namespace)
	created, err := pods.Create(context.Background(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = pods.Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	})
	created.Status = status
	if _, err := pods.UpdateStatus(context.Background(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.addresses[fmt.Sprintf("%s/%s:%d", namespace, name, port)] = address
}
