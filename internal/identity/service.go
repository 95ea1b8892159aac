// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

const (
	// DefaultTimeout is a usual ServiceConfig.Timeout.
	DefaultTimeout = time.Second
	// MaxTimeout is the largest ServiceConfig.Timeout.
	MaxTimeout = 10 * time.Second
)

// smallBody is the largest body of a 2xx answer that is read only to use the connection again.
const smallBody = 4 << 10

// maxAnswer bounds the body of another service's answer, in bytes: a sign-in page, not a download.
const maxAnswer = 256 << 10

// ServiceConfig configures Service.
type ServiceConfig struct {
	// URL is the address of the service, and the only one that is asked. Its query is sent as it is.
	URL string
	// Timeout bounds one request, from its beginning to the end of the answer; above 0, at most
	// MaxTimeout.
	Timeout time.Duration
	// UserHeader, TenantHeader and TierHeader are the headers of a 2xx answer that name the caller.
	// "" does not look for it.
	UserHeader, TenantHeader, TierHeader string
}

// Service is another auth service that is asked before the budget is: for proxies that can ask only
// one service for each request.
type Service struct {
	config ServiceConfig
	client *http.Client
}

// NewService returns a Service.
func NewService(config ServiceConfig) *Service {
	return &Service{config: config, client: &http.Client{Transport: newTransport(), CheckRedirect: doNotFollow, Timeout: config.Timeout}}
}

// Answer is what a Service answered.
type Answer struct {
	// Status, Header and Body are those of the answer, without headers that concern the connection
	// only. The body of a 2xx answer is left out.
	Status int
	Header http.Header
	Body   []byte
	// Caller is whom a 2xx answer names; its User is "" if it names nobody.
	Caller Caller
}

// Allows returns whether the service lets the request pass.
func (a *Answer) Allows() bool { return a.Status >= 200 && a.Status < 300 }

// Ask asks the service about a request with these headers. The error wraps ErrUnavailable: the
// service did not answer in time, or with a server error.
func (s *Service) Ask(ctx context.Context, header http.Header) (*Answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.config.URL, nil)
	if err != nil {
		return nil, unavailable(err)
	}
	request.Header = endToEnd(header)
	for _, name := range conditions {
		delete(request.Header, name)
	}
	delete(request.Header, "Accept-Encoding") // an answer is passed on as it is, also where it must be text
	response, err := s.client.Do(request)
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer := &Answer{Status: response.StatusCode, Header: withoutOrders(endToEnd(response.Header))}
	switch {
	case answer.Status < 200 || answer.Status >= http.StatusInternalServerError:
		return nil, unavailable(ownError(fmt.Sprintf("it answered with status %d", answer.Status)))
	case answer.Allows():
		if response.ContentLength >= 0 && response.ContentLength <= smallBody {
			_, _ = io.Copy(io.Discard, response.Body) // so that the connection can be used again
		}
		answer.Caller, err = s.named(answer.Header)
	default:
		answer.Body, err = readAll(response.Body)
	}
	if err != nil {
		return nil, unavailable(err)
	}
	return answer, nil
}

func unavailable(err error) error {
	return fmt.Errorf("%w: the auth service: %w", ErrUnavailable, presentable(err))
}

// named returns whom the headers of an answer name.
func (s *Service) named(header http.Header) (Caller, error) {
	var caller Caller
	for name, field := range map[string]*string{
		s.config.UserHeader:   &caller.User,
		s.config.TenantHeader: &caller.Tenant,
		s.config.TierHeader:   &caller.Tier,
	} {
		if name == "" {
			continue
		}
		values := header.Values(name)
		if len(values) > 1 {
			return Caller{}, ownError("its header " + name + " is given twice")
		}
		*field = strings.Join(values, "")
	}
	return caller, nil
}

// Unnamed returns the headers that name the caller and are not in an answer.
func (s *Service) Unnamed(a *Answer) []string {
	var names []string
	for _, name := range []string{s.config.UserHeader, s.config.TenantHeader, s.config.TierHeader} {
		if name != "" && len(a.Header.Values(name)) == 0 {
			names = append(names, name)
		}
	}
	return names
}

func readAll(body io.Reader) ([]byte, error) {
	var all bytes.Buffer
	n, err := io.Copy(&all, io.LimitReader(body, maxAnswer+1))
	if err == nil && n > maxAnswer {
		err = ownError("its answer is larger than 256 KiB")
	}
	return all.Bytes(), err
}

var (
	// conditions would make an answer depend on what the client has already (RFC 9110, sections 13
	// and 14).
	conditions = []string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range", "Range"}

	// hopByHop headers concern one connection (RFC 9110, section 7.6.1), or the length of a body that
	// is not passed on as it came.
	hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect", "Content-Length"}
)

// withoutOrders removes the headers by which an application tells nginx what to do: in place of an
// answer to a check nginx would go elsewhere, and take what it finds there for the answer.
func withoutOrders(header http.Header) http.Header {
	for name := range header {
		if strings.HasPrefix(name, "X-Accel-") {
			delete(header, name)
		}
	}
	return header
}

// endToEnd returns a copy of the headers that are passed on. Headers that Connection names are, too:
// a client could name there what the proxy has set, and have it removed.
func endToEnd(header http.Header) http.Header {
	passed := header.Clone()
	if passed == nil {
		passed = http.Header{}
	}
	for _, name := range hopByHop {
		delete(passed, name)
	}
	// Over gRPC a client's header is not necessarily one of HTTP.
	for name, values := range passed {
		if !httpguts.ValidHeaderFieldName(name) || slices.ContainsFunc(values, func(v string) bool { return !httpguts.ValidHeaderFieldValue(v) }) {
			delete(passed, name)
		}
	}
	return passed
}
