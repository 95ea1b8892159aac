// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// files is a directory as a Secret of type kubernetes.io/tls is mounted.
type files struct {
	t   testing.TB
	dir string
}

func newFiles(t testing.TB) files { return files{t, t.TempDir()} }

func (f files) path(name string) string { return filepath.Join(f.dir, name) }

func (f files) write(name string, content []byte) {
	f.t.Helper()
	if err := os.WriteFile(f.path(name), content, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// fill writes the three files by which an authority is believed and one of its certificates shown.
func (f files) fill(a *redistest.Authority, names ...string) {
	f.t.Helper()
	cert, key := a.Issue(names...)
	f.write("ca.crt", a.PEM)
	f.write("tls.crt", cert)
	f.write("tls.key", key)
}

// query is the query of a URL with the files.
func (f files) query() string {
	return "?tls_ca_file=" + f.path("ca.crt") + "&tls_cert_file=" + f.path("tls.crt") + "&tls_key_file=" + f.path("tls.key")
}

// startTLS runs a server that has the certificate in the files, and returns its host:port for TLS.
func startTLS(t testing.TB, f files, args ...string) (*redistest.Server, string) {
	t.Helper()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := listener.Addr().String()
	_ = listener.Close()
	_, port, _ := net.SplitHostPort(address)
	server := redistest.Start(t, append([]string{"--tls-port", port, "--tls-cert-file", f.path("tls.crt"), "--tls-key-file", f.path("tls.key"),
		"--tls-ca-cert-file", f.path("ca.crt")}, args...)...)
	return server, address
}

// ask checks a user once and returns what went wrong.
func ask(t testing.TB, client redis.UniversalClient) error {
	t.Helper()
	s := must(NewSlidingWindow(client, Options{Timeout: patience}))(t)
	_, err := s.Check(context.Background(), user, 1000, time.Minute)
	return err
}

func TestTLS(t *testing.T) {
	ours, other := redistest.NewAuthority(t, "ours"), redistest.NewAuthority(t, "other")
	f, named, foreign := newFiles(t), newFiles(t), newFiles(t)
	f.fill(ours)
	named.fill(ours, "redis.example")
	foreign.fill(other)
	ca := "?tls_ca_file=" + f.path("ca.crt")
	open := []string{"--tls-auth-clients", "no"}
	cases := map[string]struct {
		reason string
		server files
		args   []string
		query  string
		want   string // in the error; "" for none
	}{
		"Authority":         {"The file's authority is believed.", f, open, ca, ""},
		"ClientCertificate": {"The certificate is shown.", f, nil, f.query(), ""},
		"ServerName":        {"The name is verified instead of the host.", named, open, ca + "&tls_server_name=redis.example", ""},
		"SkipVerify":        {"go-redis's switch is understood.", f, open, "?skip_verify=true", ""},
		"SkipWithCert":      {"Without verifying, a certificate is still shown.", f, nil, "?skip_verify=true&" + strings.TrimPrefix(f.query(), ca+"&"), ""},
		"NoCertificate":     {"The server wants a certificate.", f, nil, ca, "certificate required"},
		"ForeignClient":     {"The server does not know the authority.", f, nil, ca + "&" + strings.TrimPrefix(foreign.query(), "?tls_ca_file="+foreign.path("ca.crt")+"&"), "unknown certificate authority"},
		"SystemAuthorities": {"Without a file only the system's are believed.", f, open, "", "certificate signed by unknown authority"},
		"ForeignServer":     {"Only the file's are.", f, open, "?tls_ca_file=" + foreign.path("ca.crt"), "certificate signed by unknown authority"},
		"OtherHost":         {"The host is verified.", named, open, ca, "cannot validate certificate for 127.0.0.1"},
		"OtherName":         {"So is the name, although the host is right.", f, open, ca + "&tls_server_name=redis.example", "not valid for any names"},
		"OldTLS":            {"TLS 1.1 is too old.", f, append([]string{"--tls-protocols", "TLSv1.1"}, open...), ca, "protocol version"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, address := startTLS(t, tc.server, tc.args...)
			client := must(NewClient("rediss://" + address + tc.query))(t)
			defer client.Close()
			err := ask(t, client)
			if tc.want == "" && err != nil {
				t.Errorf("%s %v", tc.reason, err)
			}
			if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

func TestTLSFilesThatAreRefused(t *testing.T) {
	a := redistest.NewAuthority(t, "ours")
	f := newFiles(t)
	f.fill(a)
	_, otherKey := a.Issue()
	f.write("other.key", otherKey)
	f.write("text", []byte("nothing in PEM: hunter\n"))
	cert, key := "tls_cert_file="+f.path("tls.crt"), "tls_key_file="+f.path("tls.key")
	cases := map[string]struct{ reason, query, want string }{
		"NoAuthorityFile": {"The file does not exist.", "tls_ca_file=" + f.path("none"), "tls_ca_file: open " + f.path("none") + ": no such file or directory"},
		"NoCertFile":      {"The file does not exist.", "tls_cert_file=" + f.path("none") + "&" + key, "tls_cert_file: open " + f.path("none") + ": no such file or directory"},
		"NoKeyFile":       {"The file does not exist.", cert + "&tls_key_file=" + f.path("none"), "tls_key_file: open " + f.path("none") + ": no such file or directory"},
		"Directory":       {"A directory is no file.", "tls_ca_file=" + f.dir, "tls_ca_file: read " + f.dir + ": is a directory"},
		"NoAuthority":     {"There is no certificate in it.", "tls_ca_file=" + f.path("text"), "tls_ca_file: " + f.path("text") + " holds no certificate"},
		"KeyAsAuthority":  {"A key is no certificate.", "tls_ca_file=" + f.path("tls.key"), f.path("tls.key") + " holds no certificate"},
		"NoCert":          {"There is no certificate in it.", "tls_cert_file=" + f.path("text") + "&" + key, "failed to find any PEM data in certificate input"},
		"NoKey":           {"There is no key in it.", cert + "&tls_key_file=" + f.path("text"), "failed to find any PEM data in key input"},
		"OtherKey":        {"The key is that of another.", cert + "&tls_key_file=" + f.path("other.key"), "private key does not match public key; give a certificate and its own key"},
		"Swapped":         {"The wrong way round.", "tls_cert_file=" + f.path("tls.key") + "&tls_key_file=" + f.path("tls.crt"), "tls_cert_file " + f.path("tls.key")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, url := range []string{"rediss://:hunter@redis?", "rediss+cluster://:hunter@a,b?", "rediss+sentinel://:hunter@a,b?master=m&sentinel_password=zwei&"} {
				client, err := NewClient(url + tc.query)
				if err == nil {
					_ = client.Close()
					t.Fatalf("%s %s was taken", tc.reason, url)
				}
				if !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hunter") || strings.Contains(err.Error(), "zwei") {
					t.Errorf("%s got %v, want %q", tc.reason, err, tc.want)
				}
			}
		})
	}
}

// TestTLSFilesAreRenewed lets one client live through new certificates on both sides.
func TestTLSFilesAreRenewed(t *testing.T) {
	ctx := context.Background()
	f, servers := newFiles(t), newFiles(t)
	first, second := redistest.NewAuthority(t, "first"), redistest.NewAuthority(t, "second")
	f.fill(first)
	servers.fill(first)
	server, address := startTLS(t, servers)
	client := must(NewClient("rediss://" + address + f.query()))(t)
	defer client.Close()
	anew := func() error { // over a new connection
		t.Helper()
		if err := server.Client.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
			t.Fatal(err)
		}
		return ask(t, client)
	}
	if err := anew(); err != nil {
		t.Fatal(err)
	}

	servers.fill(second)
	if err := server.Client.Do(ctx, "CONFIG", "SET", "tls-cert-file", servers.path("tls.crt"), "tls-key-file", servers.path("tls.key"),
		"tls-ca-cert-file", servers.path("ca.crt")).Err(); err != nil {
		t.Fatal(err)
	}
	if err := anew(); err == nil {
		t.Fatal("the server has a certificate of another authority, and is believed")
	}
	f.write("ca.crt", second.PEM)
	if err := anew(); err == nil {
		t.Fatal("the client's certificate is of another authority, and is believed")
	}
	f.fill(second)
	if err := anew(); err != nil {
		t.Fatalf("the files have been renewed, and are not used: %v", err)
	}

	f.write("tls.crt", []byte("-----BEGIN"))
	f.write("ca.crt", nil)
	if err := anew(); err != nil {
		t.Errorf("files are half written: %v", err)
	}
	cert, _ := second.Issue()
	f.write("tls.crt", cert)
	if err := anew(); err != nil {
		t.Errorf("the key is not the certificate's yet: %v", err)
	}
	if err := os.RemoveAll(f.dir); err != nil {
		t.Fatal(err)
	}
	if err := anew(); err != nil {
		t.Errorf("files are away: %v", err)
	}
}

// TestAccount uses an account with the rights of docs/redis.md, in another database, over TLS.
func TestAccount(t *testing.T) {
	f := newFiles(t)
	f.fill(redistest.NewAuthority(t, "ours"))
	server, address := startTLS(t, f)
	const password = "a/b?c#d@e:f%&+ g"
	if err := server.Client.Do(context.Background(), "ACL", "SETUSER", "tierlimit", "reset", "on", ">"+password, "~*ratelimit:*",
		"+eval", "+evalsha", "+time", "+zcard", "+zrange", "+zscore", "+zcount", "+unlink", "+zremrangebyrank", "+zadd", "+expire", "+hexists", "+select").Err(); err != nil {
		t.Fatal(err)
	}
	client := must(NewClient("rediss://tierlimit:a%2Fb%3Fc%23d%40e%3Af%25%26+%20g@" + address + "/3" + f.query()))(t)
	defer client.Close()
	if err := ask(t, client); err != nil {
		t.Error(err)
	}
	if keyspace := info(t, server, "keyspace"); !strings.Contains(keyspace, "db3:keys=1") || strings.Contains(keyspace, "db0") {
		t.Errorf("the log is not in database 3: %s", keyspace)
	}
	wrong := must(NewClient("rediss://tierlimit:hunter@" + address + f.query()))(t)
	defer wrong.Close()
	if err := ask(t, wrong); err == nil || !strings.Contains(err.Error(), "WRONGPASS") || strings.Contains(err.Error(), "hunter") {
		t.Errorf("a wrong password: got %v, want WRONGPASS", err)
	}
}
