// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest

import (
	"os/exec"
	"testing"
	"time"
)

// haproxyClosed is what decides in haproxy.cfg that a request without an answer does not pass, and
// haproxyOpen lets it pass.
const (
	haproxyClosed = "unless { var(txn.tierlimit) -m str admitted }"
	haproxyOpen   = "unless { var(txn.tierlimit) -m str admitted unreachable }"
)

// startHAProxy runs examples/haproxy with other addresses, and then with other changes.
func startHAProxy(t *testing.T, check, application string, replacements ...string) string {
	t.Helper()
	proxy, internal := FreeAddress(t), FreeAddress(t)
	lua := adapted(t, example(t, "haproxy", "tierlimit.lua"), "127.0.0.1:8410", internal)
	config := adapted(t, example(t, "haproxy", "haproxy.cfg"), append([]string{
		"/etc/haproxy/tierlimit.lua", lua,
		"bind :8080", "bind " + proxy,
		"application.example:8080", application,
		"127.0.0.1:8410", internal,
		"tierlimit.tierlimit-system.svc.cluster.local:80", check,
	}, replacements...)...)
	program := "haproxy"
	if _, err := exec.LookPath(program); err != nil {
		program = "/usr/sbin/haproxy" // which Debian leaves out of the PATH of ordinary users
	}
	Run(t, program, []string{"-db", "-f", config}, proxy, internal)
	return proxy
}

func TestHAProxy(t *testing.T) {
	r := recipe{told: true, problem: true, large: 500, patience: 10 * time.Second}
	r.run = func(t *testing.T, check, application string) string { return startHAProxy(t, check, application) }
	r.unanswered.down, r.unanswered.slow, r.unanswered.nonsense, r.unanswered.closed = 503, 503, 503, 503
	behave(t, r)
}

// With the one change that the recipe speaks of, clients pass while the check cannot be reached,
// and no client can bring that about.
func TestHAProxyFailOpen(t *testing.T) {
	testFailOpen(t, func(t *testing.T, check, application string) string {
		return startHAProxy(t, check, application, haproxyClosed, haproxyOpen)
	})
}
