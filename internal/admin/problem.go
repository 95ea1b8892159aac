// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/tierlimit/tierlimit/internal/adminapi"
	"github.com/tierlimit/tierlimit/internal/trouble"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// document is an answer that is YAML already.
type document []byte

// failure is an error with the answer that it is to become.
type failure struct {
	status int
	detail string
}

func (f *failure) Error() string { return f.detail }

// refuse is the error for a request that cannot be done as it is.
func refuse(status int, format string, args ...any) error {
	return &failure{status: status, detail: fmt.Sprintf(format, args...)}
}

// WriteProblem answers with a problem details object (RFC 9457).
func WriteProblem(w http.ResponseWriter, status int, detail string) {
	write(w, status, adminapi.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail})
}

// write answers. Whoever asks is told not to keep it: it is about users, and old in a moment.
func write(w http.ResponseWriter, status int, body any) {
	contentType := "application/json"
	encoded := new(bytes.Buffer)
	switch body := body.(type) {
	case document:
		contentType = "application/yaml"
		encoded = bytes.NewBuffer(body)
	default:
		encoder := json.NewEncoder(encoded)
		encoder.SetEscapeHTML(false) // "&" stays readable; the body is not HTML
		if err := encoder.Encode(body); err != nil {
			panic(err) // strings, numbers and times always encode
		}
	}
	if status >= http.StatusBadRequest {
		contentType = "application/problem+json"
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(encoded.Bytes()) // an error means that the caller has left
}

// fail answers with an error. What Redis says is for the log: it may hold more than whoever asks may know.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	var f *failure
	switch {
	case errors.As(err, &f):
		WriteProblem(w, f.status, f.detail)
	case errors.Is(err, limiter.ErrInvalid):
		WriteProblem(w, http.StatusBadRequest, sentence(strings.TrimPrefix(err.Error(), "limiter: ")))
	default:
		h.Log.Error(trouble.Shortened(err), "the admin API could not use Redis", "method", r.Method, "path", r.URL.Path)
		detail := "Redis cannot be used now: " + why(err) + ". Nothing was found out. Try again; the log of this replica and docs/redis.md say more."
		switch {
		case errors.Is(err, limiter.ErrCircuitOpen):
			detail = "Redis cannot be used now: " + why(err) + ". Nothing was changed. Try again; the log of this replica and docs/redis.md say more."
		case r.Method != http.MethodGet:
			detail = "Redis cannot be used now: " + why(err) + ". Whether the change was made is not known: look at what is left (get), and repeat it if it was not. The log of this replica and docs/redis.md say more."
		}
		WriteProblem(w, http.StatusServiceUnavailable, detail)
	}
}

// why says in words of ours what is the matter with Redis.
func why(err error) string {
	var netErr net.Error
	switch {
	case errors.Is(err, limiter.ErrCircuitOpen):
		return "it has not answered the last requests, and is not asked for a moment"
	case errors.Is(err, limiter.ErrReply):
		return "it answered with something else than was asked for"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return "it did not answer in time"
	case errors.As(err, &netErr):
		return "it cannot be reached"
	}
	return "it answered with an error"
}

// sentence begins a text with a capital letter and ends it with a full stop.
func sentence(text string) string {
	if text == "" {
		return text
	}
	first, size := utf8.DecodeRuneInString(text)
	return strings.ToUpper(string(first)) + strings.TrimSuffix(text[size:], ".") + "."
}
