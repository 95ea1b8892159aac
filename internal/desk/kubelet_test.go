// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

// kubelet is a Node of the API server that the tests share, with port-forwards by the library of the
// kubelet. A port of a Pod leads to the address that the test has named.
type kubelet struct {
	client kubernetes.Interface
	node   string

	mu        sync.Mutex
	addresses map[string]string // host:port of the admin API, by Pod
	forwards  int
}

func startKubelet(t *testing.T) *kubelet {
	t.Helper()
	client, err := kubernetes.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{client: client, node: "node-" + unique(t), addresses: map[string]string{}}
	server := httptest.NewTLSServer(k)
	t.Cleanup(server.Close)
	address := server.Listener.Addr().(*net.TCPAddr)
	node, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.node}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.CoreV1().Nodes().Delete(context.Background(), k.node, metav1.DeleteOptions{}) })
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address.IP.String()}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(address.Port)
	if _, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return k
}

// ServeHTTP answers /portForward/NAMESPACE/POD.
func (k *kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	if len(parts) != 4 || parts[1] != "portForward" {
		http.NotFound(w, r)
		return
	}
	portforward.ServePortForward(w, r, k, parts[2]+"/"+parts[3], "", nil, time.Minute, time.Minute, portforward.SupportedProtocols)
}

// PortForward connects as a container runtime does: to the loopback address of the Pod.
func (k *kubelet) PortForward(_ context.Context, pod, _ string, port int32, stream io.ReadWriteCloser) error {
	k.mu.Lock()
	address := k.addresses[pod]
	k.forwards++
	k.mu.Unlock()
	if port != 8444 || address == "" {
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

// pod makes a ready Pod of Tierlimit on the node. Its admin API is at this address, or nowhere for "".
func (k *kubelet) pod(t *testing.T, namespace, name, address string, change ...func(*corev1.Pod)) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"app.kubernetes.io/name": "tierlimit"}},
		Spec:       corev1.PodSpec{NodeName: k.node, Containers: []corev1.Container{{Name: "tierlimit", Image: "tierlimit"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	for _, c := range change {
		c(pod)
	}
	status := pod.Status
	created, err := k.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = k.client.CoreV1().Pods(namespace).Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	})
	created.Status = status
	if _, err := k.client.CoreV1().Pods(namespace).UpdateStatus(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.addresses[namespace+"/"+name] = address
}
