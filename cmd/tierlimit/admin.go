// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tierlimit/tierlimit/docs"
	"github.com/tierlimit/tierlimit/internal/admin"
)

// defaultAdminAddress is on no network. A port-forward enters a Pod at its loopback address.
const defaultAdminAddress = "127.0.0.1:8444"

// localCaller is who changes something in local mode, where nobody is authenticated.
const localCaller = "local"

// validateAdminAddress refuses an address of local mode that others could reach: nobody is asked there who
// they are.
func (o options) validateAdminAddress() error {
	if !o.local() || o.adminAddress == off {
		return nil
	}
	host, _, err := net.SplitHostPort(o.adminAddress)
	if err != nil || !isLoopback(host) {
		return fmt.Errorf("--admin-bind-address is %q: in local mode, where nobody is authenticated, use a loopback address, such as %s, or 0 to switch it off", o.adminAddress, defaultAdminAddress)
	}
	return nil
}

// isLoopback returns whether a host, without a port, is this machine to itself.
func isLoopback(host string) bool {
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback()
}

// newAdmin returns what answers the admin API.
func (o options) newAdmin(r replica, who func(*http.Request) string, event func(context.Context, admin.Event), log logr.Logger) http.Handler {
	return admin.NewHandler(admin.Options{
		Limiter:    r.window,
		Checks:     r.checks,
		Usage:      adminUsage{r.usage},
		HashKey:    []byte(o.identity.hashKey),
		DenyMemory: o.denyMemory,
		OpenAPI:    docs.OpenAPI,
		Who:        who,
		Event:      event,
		Ending:     o.ending.asked,
		Log:        log,
	})
}

// withAdmin adds the server of the admin API in local mode, unless it is off.
func withAdmin(o options, servers []manager.Runnable, r replica, log logr.Logger) ([]manager.Runnable, error) {
	if o.adminAddress == off {
		return servers, nil
	}
	who := func(*http.Request) string { return localCaller }
	handler := notFromPages(o.newAdmin(r, who, nil, log.WithName("admin")))
	server, err := o.listen("admin", "admin-bind-address", o.adminAddress, handler)
	if err != nil {
		return nil, err
	}
	return append(servers, server), nil
}

// withSecureAdmin is withAdmin in a cluster: over TLS, and whoever asks is authenticated and authorized by the
// API server, for the method and the path.
func withSecureAdmin(o options, mgr manager.Manager, servers []manager.Runnable, r replica, log logr.Logger) ([]manager.Runnable, error) {
	if o.adminAddress == off {
		return servers, nil
	}
	log = log.WithName("admin")
	guard, authority, err := newGuard(mgr.GetConfig(), mgr.GetHTTPClient(), log)
	if err != nil {
		return nil, fmt.Errorf("setting up the admin API: %w", err)
	}
	events, err := newEventWriter(mgr.GetConfig(), mgr.GetHTTPClient(), o.pod, log)
	if err != nil {
		return nil, fmt.Errorf("setting up the admin API: %w", err)
	}
	guard.next = o.newAdmin(r, callerOf, events.write, log)
	// The guard verifies a certificate; there may be a token instead.
	server, err := o.listenTLS("admin", "admin-bind-address", o.adminAddress, guard, tls.RequestClientCert)
	if err != nil {
		return nil, err
	}
	return append(servers, authority, server), nil
}

// notFromPages refuses what a web page makes a browser on the same machine send. A page of a name that its
// owner has pointed at this machine has that name in Host; one of any other origin has it in Origin, or the
// browser says in Sec-Fetch-Site where the request comes from.
func notFromPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if detail := fromPage(r); detail != "" {
			admin.WriteProblem(w, http.StatusForbidden, detail)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// fromPage says what to do instead if a request may be a web page's, else "".
func fromPage(r *http.Request) string {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, hasOrigin := r.Header["Origin"]
	site := r.Header.Get("Sec-Fetch-Site")
	switch {
	case !isLoopback(host):
		return "The admin API of local mode is for this machine only: ask for it at 127.0.0.1 or localhost, not under another name."
	case hasOrigin, site != "" && site != "none" && site != "same-origin":
		return "The admin API is not for web pages: use tierlimit, curl or another program."
	}
	return ""
}
