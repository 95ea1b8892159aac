// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// clientAddress is where the requests come from. The proxies connect from 127.0.0.1, so that their
// address is not taken for the client's.
const clientAddress = "127.0.0.2"

// answer is what a client gets.
type answer struct {
	status int
	header http.Header
	body   string
	// rest is what comes after the headers, as it is; from raw only.
	rest string
}

func dialer() *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(clientAddress)}, Timeout: patience}
}

// send asks the proxy, with a connection of its own.
func (g *guarded) send(t testing.TB, method, uri string, body io.Reader, headers ...string) *answer {
	t.Helper()
	answer, err := g.try(t, method, uri, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// try asks the proxy, with a connection of its own. The headers are names and values.
func (g *guarded) try(t testing.TB, method, uri string, body io.Reader, headers ...string) (*answer, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+g.proxy+uri, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: dialer().DialContext,
		DisableKeepAlives: true, DisableCompression: true, ExpectContinueTimeout: patience}}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return &answer{status: response.StatusCode, header: response.Header, body: string(content)}, err
}

// connect opens a connection to the proxy and sends a request line and headers as they are.
func (g *guarded) connect(t testing.TB, line string, headers ...string) net.Conn {
	t.Helper()
	connection, err := dialer().Dial("tcp", g.proxy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	_ = connection.SetDeadline(time.Now().Add(time.Minute))
	lines := append([]string{line, "Host: api.example"}, headers...)
	// A proxy may answer and close the connection before it has read all of it.
	_, _ = io.WriteString(connection, strings.Join(lines, "\r\n")+"\r\n\r\n")
	return connection
}

// bytes sends a request line and headers as they are and returns all that comes until the proxy
// closes the connection.
func (g *guarded) bytes(t testing.TB, line string, headers ...string) string {
	t.Helper()
	connection := g.connect(t, line, append(headers, "Connection: close")...)
	defer connection.Close()
	content, _ := io.ReadAll(connection)
	return string(content)
}

// raw sends a request line and headers as they are.
func (g *guarded) raw(t testing.TB, line string, headers ...string) *answer {
	t.Helper()
	content := g.bytes(t, line, headers...)
	method, _, _ := strings.Cut(line, " ")
	reader := bufio.NewReader(strings.NewReader(content))
	response, err := http.ReadResponse(reader, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%.80s: %v in %q", line, err, content)
	}
	body, _ := io.ReadAll(response.Body)
	_, rest, _ := strings.Cut(content, "\r\n\r\n")
	return &answer{status: response.StatusCode, header: response.Header, body: string(body), rest: rest}
}

// built returns the path of a proxy that hack/setup-proxies.sh has built.
func built(t testing.TB, name string) string {
	t.Helper()
	directory := os.Getenv("TIERLIMIT_PROXIES")
	if directory == "" {
		t.Fatalf("proxytest: TIERLIMIT_PROXIES is not set: run the tests with 'make test', or with " +
			"TIERLIMIT_PROXIES=$(hack/setup-proxies.sh)")
	}
	return filepath.Join(directory, name)
}

// example returns the path of a file in examples.
func example(t testing.TB, elements ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(append([]string{"..", "..", "examples"}, elements...)...))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// adapted returns the path of a copy of an example in which texts have been replaced: old, new and
// so on. The example must hold each of them, so that a recipe that changes does not pass by.
func adapted(t testing.TB, path string, replacements ...string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for i := 0; i < len(replacements); i += 2 {
		if !strings.Contains(text, replacements[i]) {
			t.Fatalf("%s does not hold %q", path, replacements[i])
		}
		text = strings.ReplaceAll(text, replacements[i], replacements[i+1])
	}
	target := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(target, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return target
}
