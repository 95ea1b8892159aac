// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The headers of an answer, written as here (HTTP does not distinguish case, people do).
const (
	headerRetryAfter   = "Retry-After"      // whole seconds (RFC 9110, section 10.2.3)
	headerRetryAfterMs = "retry-after-ms"   // milliseconds; the SDKs of LLM providers look for it first
	headerPolicy       = "RateLimit-Policy" // draft-ietf-httpapi-ratelimit-headers-11, section 3
	headerRateLimit    = "RateLimit"        // the same, section 4
	headerLimit        = "X-RateLimit-Limit"
	headerRemaining    = "X-RateLimit-Remaining"
	headerWindow       = "X-RateLimit-Window"
	headerTier         = "X-Tierlimit-Tier"         // the tier that was applied
	headerUnknownTier  = "X-Tierlimit-Unknown-Tier" // the tier that was asked for, if it does not exist
	headerEnforcement  = "X-Tierlimit-Enforcement"  // why a request was admitted that the budget did not admit
	headerStatus       = "X-Tierlimit-Status"       // the true status, in the nginx form
	headerProblem      = "X-Tierlimit-Problem"      // the body, in the nginx form
	headerChallenge    = "WWW-Authenticate"
)

// ClientHeaders are the headers of an answer that are meant for the client. Proxies that do not
// pass on the whole answer are told to pass on these.
var ClientHeaders = []string{
	headerRetryAfter, headerRetryAfterMs,
	headerPolicy, headerRateLimit,
	headerLimit, headerRemaining, headerWindow,
	headerTier, headerUnknownTier, headerEnforcement,
}

// HeaderSets are the sets of headers that tell a client about its budget. Retry-After is always
// sent.
type HeaderSets struct {
	XRateLimit   bool // X-RateLimit-Limit, -Remaining and -Window
	RateLimit    bool // RateLimit-Policy and RateLimit
	RetryAfterMs bool // retry-after-ms
	None         bool // none of them
}

// AllHeaders are all sets.
var AllHeaders = HeaderSets{XRateLimit: true, RateLimit: true, RetryAfterMs: true}

// ParseHeaderSets reads a list of sets separated by commas, "x-ratelimit,ratelimit,retry-after-ms",
// or "none".
func ParseHeaderSets(list string) (HeaderSets, error) {
	if list == "none" {
		return HeaderSets{None: true}, nil
	}
	var sets HeaderSets
	for name := range strings.SplitSeq(list, ",") {
		switch strings.TrimSpace(name) {
		case "x-ratelimit":
			sets.XRateLimit = true
		case "ratelimit":
			sets.RateLimit = true
		case "retry-after-ms":
			sets.RetryAfterMs = true
		default:
			return HeaderSets{}, fmt.Errorf("%q is not one of x-ratelimit, ratelimit, retry-after-ms; none stands alone", name)
		}
	}
	return sets, nil
}

// headers adds what every form of an answer carries.
func (a *answer) headers(h http.Header, sets HeaderSets) {
	if a.relay != nil {
		addAll(h, a.relay.Header)
		if _, typed := h["Content-Type"]; !typed {
			h["Content-Type"] = nil // net/http would guess one
		}
		// Only this endpoint says what an answer is to become.
		delete(h, headerStatus)
		delete(h, headerProblem)
		return
	}
	if a.auth != nil {
		a.fromAuth(h)
	}
	values := make([]string, 0, 16) // one allocation for all
	set := func(name, value string) {
		values = append(values, value)
		h[name] = values[len(values)-1 : len(values) : len(values)] // keeps the case of the name
	}
	set("Cache-Control", "no-store")
	if a.status != http.StatusOK {
		set("Content-Type", "application/problem+json")
	}
	if a.quota.Window != 0 && sets.XRateLimit {
		set(headerLimit, strconv.FormatInt(a.quota.Requests, 10))
		set(headerRemaining, strconv.FormatInt(a.remaining, 10))
		set(headerWindow, a.quota.name())
	}
	if sets.RateLimit {
		if len(a.policy) > 0 {
			set(headerPolicy, a.policyField())
		}
		if len(a.usage) > 0 {
			set(headerRateLimit, a.rateLimitField())
		}
	}
	if a.retryAfter > 0 {
		set(headerRetryAfter, seconds(a.retryAfter))
		if sets.RetryAfterMs {
			set(headerRetryAfterMs, strconv.FormatInt(int64((a.wait+time.Millisecond-1)/time.Millisecond), 10))
		}
	}
	if a.challenge != "" {
		set(headerChallenge, a.challenge)
	}
	if a.tier != "" {
		set(headerTier, a.tier)
	}
	if a.unknownTier != "" {
		set(headerUnknownTier, a.unknownTier)
	}
	if a.enforcement != enforced {
		set(headerEnforcement, string(a.enforcement))
	}
}

// fromAuth adds what another auth service wants to be passed on: to the application and the client
// if the request passes, else only its cookies.
func (a *answer) fromAuth(h http.Header) {
	if a.status != http.StatusOK {
		if cookies := a.auth.Header["Set-Cookie"]; len(cookies) > 0 {
			h["Set-Cookie"] = cookies
		}
		return
	}
	addAll(h, a.auth.Header)
	for _, name := range ofTheAnswer {
		delete(h, name)
	}
}

// ofTheAnswer are headers that describe the answer of another auth service and not the caller, and
// those in which only this endpoint speaks.
var ofTheAnswer = slices.Concat([]string{"Content-Type", "Content-Encoding", "Content-Language", "Date", "Server", "Etag",
	"Last-Modified", "Expires", "Vary", "Alt-Svc", http.CanonicalHeaderKey(headerStatus), http.CanonicalHeaderKey(headerProblem)},
	canonical(ClientHeaders))

func canonical(names []string) []string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = http.CanonicalHeaderKey(name)
	}
	return all
}

func addAll(to, from http.Header) {
	for name, values := range from {
		to[name] = values
	}
}

// fieldSize is enough for most values of the two fields, in bytes.
const fieldSize = 64

// policyField is the value of RateLimit-Policy: "minute";q=5;w=60, "day";q=100;w=86400.
func (a *answer) policyField() string {
	field := make([]byte, 0, fieldSize)
	for _, q := range a.policy {
		field = appendItem(field, q)
		field = strconv.AppendInt(append(field, ";q="...), q.Requests, 10)
		field = strconv.AppendInt(append(field, ";w="...), int64(q.Window/time.Second), 10)
	}
	return string(field)
}

// rateLimitField is the value of RateLimit: "minute";r=4, "day";r=99. The parameter t, for how long
// no more than r requests can be made, is known only when r is 0.
func (a *answer) rateLimitField() string {
	field := make([]byte, 0, fieldSize)
	for _, u := range a.usage {
		field = appendItem(field, u.quota)
		field = strconv.AppendInt(append(field, ";r="...), u.remaining, 10)
		if a.retryAfter > 0 {
			field = append(append(field, ";t="...), seconds(a.retryAfter)...)
		}
	}
	return string(field)
}

// appendItem appends the name of a window, as an item of a list of strings (RFC 9651).
func appendItem(field []byte, q quota) []byte {
	if len(field) > 0 {
		field = append(field, ", "...)
	}
	return append(append(append(field, '"'), q.name()...), '"')
}

func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }

// quotaExceeded is the problem type for a used-up budget, registered by
// draft-ietf-httpapi-ratelimit-headers, section 5.1.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// upstreamQuotaExceeded is the problem type for a used-up cap of an upstream. It is a type of its own,
// because the caller cannot do anything about it; and a tag URI (RFC 4151), which identifies without
// promising that there is a page to read.
const upstreamQuotaExceeded = "tag:tierlimit.dev,2026:upstream-quota-exceeded"

// problem is a problem details object (RFC 9457). Members without a meaning for it are left out.
type problem struct {
	Type       string   `json:"type"`
	Title      string   `json:"title"`
	Status     int      `json:"status"`
	Detail     string   `json:"detail"`
	Tier       string   `json:"tier,omitempty"`
	Upstream   string   `json:"upstream,omitempty"` // whose cap is used up
	Window     string   `json:"window,omitempty"`
	Limit      *int64   `json:"limit,omitempty"`
	RetryAfter int64    `json:"retryAfter,omitempty"`        // seconds
	Violated   []string `json:"violated-policies,omitempty"` // of RateLimit-Policy
}

// body returns the body; that of an admission is empty.
func (a *answer) body() []byte {
	switch {
	case a.relay != nil:
		return a.relay.Body
	case a.status == http.StatusOK:
		return nil
	}
	p := problem{
		Type:   "about:blank",
		Title:  http.StatusText(a.status),
		Status: a.status,
		Detail: a.detail,
		Tier:   a.tier,
	}
	if a.rejected() {
		p.Type, p.Window, p.Limit = quotaExceeded, a.quota.name(), &a.quota.Requests
		p.RetryAfter, p.Violated = int64(a.retryAfter/time.Second), []string{p.Window}
		if a.quota.upstream {
			p.Type, p.Title, p.Upstream = upstreamQuotaExceeded, "Upstream Quota Exceeded", a.upstream
		}
	}
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false) // "&" stays readable; the body is not HTML
	if err := encoder.Encode(p); err != nil {
		panic(err) // strings and integers always encode
	}
	return encoded.Bytes()
}
