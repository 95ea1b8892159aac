// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"net"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// endpoint is one replica as the EndpointSlices show it.
type endpoint struct {
	// key tells it from others, also from an earlier Pod of the same name.
	key string
	// pod is the name of its Pod; "" if there is none.
	pod string
	// addresses are those of all families. Example: "192.0.2.1".
	addresses []string
	// stopping is whether it is about to stop and still serves.
	stopping bool
}

// name returns what to call a replica in a message.
func (e *endpoint) name() string {
	if e.pod == "" && len(e.addresses) > 0 {
		return e.addresses[0]
	}
	return e.pod
}

// endpointsOf returns the endpoints that serve, ordered by name. One that is in two slices, or has an
// address of each family, is there once.
func endpointsOf(objects []any) []endpoint {
	byKey := map[string]*endpoint{}
	for _, object := range objects {
		slice, ok := object.(*discoveryv1.EndpointSlice)
		if !ok {
			continue
		}
		for i := range slice.Endpoints {
			addEndpoint(byKey, &slice.Endpoints[i])
		}
	}
	all := make([]endpoint, 0, len(byKey))
	for _, e := range byKey {
		slices.Sort(e.addresses) // IPv4 comes before IPv6; what matters is that the order stays
		all = append(all, *e)
	}
	slices.SortFunc(all, func(a, b endpoint) int {
		return cmp.Or(cmp.Compare(a.name(), b.name()), cmp.Compare(a.key, b.key))
	})
	return all
}

func addEndpoint(byKey map[string]*endpoint, from *discoveryv1.Endpoint) {
	c := from.Conditions
	// Absent conditions mean ready, and serving what ready says (the API's documentation).
	if !ptr.Deref(c.Serving, ptr.Deref(c.Ready, true)) {
		return
	}
	key := keyOf(from)
	e := byKey[key]
	if e == nil {
		e = &endpoint{key: key, stopping: true}
		if from.TargetRef != nil {
			e.pod = from.TargetRef.Name
		}
		byKey[key] = e
	}
	e.stopping = e.stopping && ptr.Deref(c.Terminating, false)
	for _, address := range from.Addresses {
		if !slices.Contains(e.addresses, address) {
			e.addresses = append(e.addresses, address)
		}
	}
}

// keyOf returns what tells one endpoint from another: its Pod or, where there is none, its address.
func keyOf(e *discoveryv1.Endpoint) string {
	if pod := e.TargetRef; pod != nil {
		return fmt.Sprintf("%s %s/%s %s", pod.Kind, pod.Namespace, pod.Name, pod.UID)
	}
	if len(e.Addresses) > 0 {
		return e.Addresses[0]
	}
	return ""
}

// selfOf returns a function that says which endpoint is this process: that of its Pod. If there is none
// of this name, one of this machine's addresses tells, for endpoints without Pods and Pods that have
// another host name.
func selfOf(endpoints []endpoint, pod string) func(*endpoint) bool {
	byName := func(e *endpoint) bool { return e.pod != "" && e.pod == pod }
	for i := range endpoints {
		if byName(&endpoints[i]) {
			return byName
		}
	}
	local := localAddresses()
	return func(e *endpoint) bool {
		return slices.ContainsFunc(e.addresses, func(address string) bool { return local[address] })
	}
}

// localAddresses returns the addresses of this machine.
func localAddresses() map[string]bool {
	local := map[string]bool{}
	addresses, _ := net.InterfaceAddrs() // without them the name of the Pod tells
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok {
			local[network.IP.String()] = true
		}
	}
	return local
}
