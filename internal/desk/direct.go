// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// direct returns the replica at --server.
//
// Over plain HTTP nothing is sent that could be stolen: no credentials, since local mode asks for none,
// and nothing at all to another machine. Over HTTPS the credentials of the kubeconfig go along. The
// certificate of an address of this machine proves nothing and is not asked to, since it is a port-forward
// that its owner opened; that of any other must be valid. The way never leads through the proxy of the
// API server: an address of this machine is dialled directly, another as $HTTPS_PROXY says.
func (d *desk) direct() (*replica, error) {
	address, err := url.Parse(d.server)
	if err != nil {
		return nil, usagef("--server is %s, which is not a URL: use a URL such as http://127.0.0.1:8444", withoutPassword(d.server))
	}
	if address.Host == "" || address.Hostname() == "" {
		return nil, usagef("--server is %s: use a URL such as http://127.0.0.1:8444", withoutPassword(d.server))
	}
	if address.User != nil || address.RawQuery != "" || address.Fragment != "" || (address.Path != "" && address.Path != "/") {
		return nil, usagef("--server is %s: give a scheme, a host and a port, and no more", withoutPassword(d.server))
	}
	one := &replica{name: address.Scheme + "://" + address.Host, base: address.Scheme + "://" + address.Host, agent: d.agent()}
	local := isLoopback(address.Hostname())
	switch {
	case address.Scheme == "http" && !local:
		return nil, usagef("--server is %s: plain HTTP is for addresses of this machine. Use https://, or leave --server out and let a port-forward be opened", withoutPassword(d.server))
	case address.Scheme == "http":
		one.client = &http.Client{Transport: &http.Transport{Proxy: nil, DialContext: (&net.Dialer{}).DialContext}, CheckRedirect: notFollowed}
	case address.Scheme == "https":
		one.client, err = d.overTLS(local)
	default:
		return nil, usagef("--server is %s: the URL begins with http:// or https://", withoutPassword(d.server))
	}
	return one, err
}

func (d *desk) overTLS(local bool) (*http.Client, error) {
	config, err := d.config.rest()
	switch {
	case clientcmd.IsEmptyConfig(err) || (errors.Is(err, os.ErrNotExist) && d.config.rules.ExplicitPath == ""):
		config = &rest.Config{} // the server says what it wants
	case err != nil:
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	case config.Impersonate.UserName != "":
		return nil, errImpersonation(config)
	}
	verify := rest.TLSClientConfig{Insecure: local || d.config.overrides.ClusterInfo.InsecureSkipTLSVerify}
	if !verify.Insecure {
		verify.CAFile, verify.ServerName = d.config.overrides.ClusterInfo.CertificateAuthority, d.config.overrides.ClusterInfo.TLSServerName
	}
	proxy := http.ProxyFromEnvironment
	if local {
		proxy = noProxy
	}
	client, err := credentialed(config, verify, nil, proxy)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return client, nil
}

// isLoopback returns whether a host is this machine whatever a resolver says.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback()
}

// withoutPassword returns what was given for a URL as it can be shown.
func withoutPassword(address string) string {
	if strings.Contains(address, "@") {
		return "not shown here, since it may have a password"
	}
	return fmt.Sprintf("%.80q", address)
}
