// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof" // it registers with http.DefaultServeMux too, which nothing here serves

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
)

// metricsHandler answers /metrics and, with --pprof, /debug/pprof.
func metricsHandler(profiles bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(ctrlmetrics.Registry, promhttp.HandlerOpts{}))
	if profiles {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
		// Not /debug/pprof/cmdline: a flag may hold the password of Redis.
	}
	return mux
}

// withMetrics adds the server of /metrics in local mode, unless it is off.
func withMetrics(o options, servers []manager.Runnable) ([]manager.Runnable, error) {
	if o.metricsAddress == off {
		return servers, nil
	}
	server, err := o.listen("metrics", "metrics-bind-address", o.metricsAddress, metricsHandler(o.profiles))
	if err != nil {
		return nil, err
	}
	return append(servers, server), nil
}

// withSecureMetrics is withMetrics in a cluster: over TLS, and whoever asks is authenticated and
// authorized by the API server, for the path that they ask for. It is not the manager's server,
// which takes headers of 1 MiB, and bodies of any size for ever.
func withSecureMetrics(o options, mgr manager.Manager, servers []manager.Runnable, log logr.Logger) ([]manager.Runnable, error) {
	if o.metricsAddress == off {
		return servers, nil
	}
	guard, err := filters.WithAuthenticationAndAuthorization(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("setting up the metrics: %w", err)
	}
	handler, err := guard(log.WithName("metrics"), metricsHandler(o.profiles))
	if err != nil {
		return nil, fmt.Errorf("setting up the metrics: %w", err)
	}
	server, err := o.listenTLS("metrics", "metrics-bind-address", o.metricsAddress, handler, tls.NoClientCert)
	if err != nil {
		return nil, err
	}
	return append(servers, server), nil
}

// listenTLS is listen over TLS, with a certificate of this process's own.
func (o options) listenTLS(name, flag, address string, handler http.Handler, clients tls.ClientAuthType) (*manager.Server, error) {
	certificate, err := ownCertificate()
	if err != nil {
		return nil, fmt.Errorf("making the certificate of --%s: %w", flag, err)
	}
	server, err := o.listen(name, flag, address, handler)
	if err != nil {
		return nil, err
	}
	// HTTP/1.1 only: who asks here has no use for streams, and an intruder has.
	server.Listener = tls.NewListener(server.Listener, &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{certificate},
		NextProtos:   []string{"http/1.1"},
		ClientAuth:   clients,
	})
	return server, nil
}

// ownCertificate makes a certificate for this process. It encrypts, but nobody can verify it: whoever
// scrapes is authenticated, and what they read is no secret to them.
func ownCertificate() (tls.Certificate, error) {
	certificate, key, err := selfSigned()
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certificate, key)
}

func selfSigned() (certificate, key []byte, err error) {
	return certutil.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
}
