// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

// Headers of an answer, as docs/check.md has them.
const (
	headerLimit       = "X-RateLimit-Limit"
	headerRemaining   = "X-RateLimit-Remaining"
	headerWindow      = "X-RateLimit-Window"
	headerRateLimit   = "RateLimit"
	headerEnforcement = "X-Tierlimit-Enforcement"
	headerStatus      = "X-Tierlimit-Status"
	headerRetryAfter  = "Retry-After"
)

// Values of X-Tierlimit-Enforcement. The last stands for all that Tierlimit does not send.
const (
	byGrant = "granted"
	byShare = "local"
	byOther = "other"
)

// maxHeader is how much of the value of a header is kept, in bytes.
const maxHeader = 256

// kept returns the headers of an answer that are looked at: a load may have 10,000 answers. A header that
// is there twice stays so.
func kept(header http.Header) http.Header {
	few := http.Header{}
	for _, name := range []string{headerLimit, headerRemaining, headerWindow, headerRateLimit, headerEnforcement, headerStatus, headerRetryAfter, "Date", "Location"} {
		name = http.CanonicalHeaderKey(name)
		for _, value := range header[name][:min(2, len(header[name]))] {
			few[name] = append(few[name], strings.Clone(value[:min(maxHeader, len(value))]))
		}
	}
	return few
}

// enforcementOf returns why a request was decided otherwise than by a budget of all replicas; "" if it was not.
func enforcementOf(r result) string {
	switch value := r.header.Get(headerEnforcement); value {
	case "", "disabled", "dry-run", "failed-open", "exempt", byGrant, byShare:
		return value
	}
	return byOther
}

// isAdmitted returns whether an answer is that of the application, whatever it says, so that the request was
// admitted. It is, if it is a success, or if it stands beside what only an admitted request is told.
func isAdmitted(r result) bool {
	if r.status >= 200 && r.status < 300 {
		return true
	}
	if status := r.header.Get(headerStatus); status != "" {
		return status == "200" && r.status != 0
	}
	switch enforcementOf(r) {
	case "", byShare, byOther:
	default:
		return r.status != 0
	}
	_, limit, speaks := limitOf(r)
	if !speaks {
		return false
	}
	remaining, told := remainingOf(r)
	switch {
	case told && remaining > 0:
		return true
	case r.status == http.StatusTooManyRequests:
		// The last request that a budget admits has 0 remaining as well, but is not told for how long.
		usage := r.header.Values(headerRateLimit)
		return limit > 0 && len(usage) == 1 && !strings.Contains(usage[0], ";t=")
	case r.status == http.StatusServiceUnavailable, told && (r.status == http.StatusForbidden || r.status >= 500):
		return false // Redis is away, or a proxy has made another status of the limiter's
	}
	return r.header.Get(headerRetryAfter) == ""
}

// limitOf returns the limit that an answer speaks of. An application behind the limiter may have headers
// of the same name: only numbers beside a window are Tierlimit's.
func limitOf(r result) (window string, limit int64, ok bool) {
	values, windows := r.header.Values(headerLimit), r.header.Values(headerWindow)
	if len(values) != 1 || len(windows) != 1 {
		return "", 0, false
	}
	limit, err := strconv.ParseInt(values[0], 10, 64)
	_, known := windowLength(windows[0])
	return windows[0], limit, err == nil && limit >= 0 && known
}

// remainingOf returns how many more requests the limit admits that an answer speaks of.
func remainingOf(r result) (int64, bool) {
	values := r.header.Values(headerRemaining)
	if len(values) != 1 {
		return 0, false
	}
	remaining, err := strconv.ParseInt(values[0], 10, 64)
	return remaining, err == nil && remaining >= 0
}

// retryAfter returns the seconds of Retry-After, and by how many they may be too many: a date has
// no fractions. Seconds that are no int64 are the highest of them.
func retryAfter(r result) (seconds, inexact int64, ok bool) {
	value := r.header.Get(headerRetryAfter)
	if value != "" && strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			seconds = math.MaxInt64
		}
		return seconds, 0, true
	}
	until, err := http.ParseTime(value)
	if err != nil {
		return 0, 0, false
	}
	now, err := http.ParseTime(r.header.Get("Date")) // by the clock of the same server
	if err != nil {
		now = r.answered
	}
	return max(0, int64(math.Ceil(until.Sub(now).Seconds()))), 1, true
}

// says is the status of an answer in words: "503 Service Unavailable".
func says(r result) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", r.status, http.StatusText(r.status)))
}

// failure names an answer that is neither, or why there was none.
func failure(r result) string {
	if r.status != 0 {
		return says(r)
	}
	return "no answer: " + cause(r.err)
}

// perRequest is what differs between failures that are the same: ports of this machine and numbers of
// streams.
var perRequest = regexp.MustCompile(`stream ID \d+; |LastStreamID=\d+, |\S+->\S+ ?`)

// cause says why there was no answer, in the same words for each request that failed for it.
func cause(err error) string {
	for {
		var wrapped *url.Error
		var operation *net.OpError
		switch {
		case errors.As(err, &wrapped):
			err = wrapped.Err
			continue
		case errors.As(err, &operation) && operation.Err != nil:
			err = operation.Err
			continue
		case errors.Is(err, context.DeadlineExceeded):
			return "no answer in time"
		}
		break
	}
	text := printable(perRequest.ReplaceAllString(fmt.Sprint(err), ""))
	return strings.ToValidUTF8(text[:min(maxHeader, len(text))], "")
}

// windowLength returns the length of a window with one of Tierlimit's names.
func windowLength(name string) (time.Duration, bool) {
	switch strings.TrimPrefix(name, "upstream-") {
	case adminapi.WindowMinute:
		return time.Minute, true
	case adminapi.WindowDay:
		return 24 * time.Hour, true
	}
	return 0, false
}
