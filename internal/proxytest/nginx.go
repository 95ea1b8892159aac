// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/template"
)

// nginxPath and nginxModules are where Debian installs nginx and the modules that ingress-nginx has
// compiled in.
const (
	nginxPath    = "/usr/sbin/nginx"
	nginxModules = "/usr/lib/nginx/modules"
)

// Nginx is a server of nginx with the directives that ingress-nginx renders for one host.
type Nginx struct {
	// HTTPSnippet, LocationSnippet and ServerSnippet are those of the ConfigMap.
	HTTPSnippet, LocationSnippet, ServerSnippet string
	// HostSnippet is the server-snippet of the host's oldest Ingress.
	HostSnippet string
	// ErrorPages is the host:port of the default backend that shows a page in place of any 403, if
	// the ConfigMap has custom-http-errors: "403".
	ErrorPages string
	// Application is the host:port that all routes lead to.
	Application string
	Routes      []NginxRoute
}

// NginxRoute is one path of an Ingress.
type NginxRoute struct {
	// Path is a prefix: "/free/".
	Path string
	// AuthURL is that of the annotation; "" is no check.
	AuthURL string
	// AuthSnippet and Snippet are the annotations auth-snippet and configuration-snippet.
	AuthSnippet, Snippet string
	// Keepalive is whether auth-keepalive is set.
	Keepalive bool
	// SigninURL is that of the annotation auth-signin.
	SigninURL string
	// Denied is whether an allow-list leaves the client out.
	Denied bool
	// ErrorBackend is the host:port of the Ingress's default-backend, with custom-http-errors: "403".
	ErrorBackend string
	// KeepErrors is disable-proxy-intercept-errors: the application's own errors are left alone.
	KeepErrors bool
}

// StartNginx runs an nginx until the test ends, and returns its URL.
func StartNginx(t testing.TB, n Nginx) string {
	t.Helper()
	address := FreeAddress(t)
	folder := t.TempDir()
	Run(t, nginxPath, n.arguments(t, folder, address), address)
	return "http://" + address
}

// Validate returns what "nginx -t" says of the configuration, and its error.
func (n Nginx) Validate(t testing.TB) (string, error) {
	t.Helper()
	arguments := append(n.arguments(t, t.TempDir(), "127.0.0.1:1"), "-t")
	output, err := exec.CommandContext(context.Background(), nginxPath, arguments...).CombinedOutput()
	return string(output), err
}

// arguments writes the configuration and returns the arguments for nginx to read it.
func (n Nginx) arguments(t testing.TB, folder, address string) []string {
	t.Helper()
	var text strings.Builder
	err := nginxConf.Execute(&text, struct {
		Nginx
		Folder, Modules, Listen string
	}{n, folder, nginxModules, address})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "nginx.conf")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"-p", folder, "-c", file, "-e", "stderr"}
}

// Check is the host:port that AuthURL names.
func (r NginxRoute) Check() string {
	authority, _, _ := strings.Cut(strings.TrimPrefix(r.AuthURL, "http://"), "/")
	return authority
}

// OnUpstream is AuthURL with an upstream of nginx in place of the host:port.
func (r NginxRoute) OnUpstream(upstream string) string {
	return strings.Replace(r.AuthURL, r.Check(), upstream, 1)
}

var nginxConf = template.Must(template.New("nginx.conf").Parse(nginxTemplate))
