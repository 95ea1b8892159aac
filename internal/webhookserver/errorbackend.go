// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tierlimit/tierlimit/internal/identity"
)

// errorBackend answers for ingress-nginx when a request was refused, by this endpoint or by
// something else: the client gets what it answers. It only looks. What is asked for, path and query,
// comes from the client and is ignored.
type errorBackend struct {
	handler    *Handler
	parameters parameters
}

// ErrorBackend returns a handler for a listener of its own, to which the annotations
// custom-http-errors and default-backend lead. The query holds the parameters of the check on the
// same Ingress: "tier=free&route=chat". It answers 429 to a caller who is over the budget now, and
// to all others the status with which they were refused.
func (h *Handler) ErrorBackend(query string) (http.Handler, error) {
	params, err := parseStatic(query)
	if err != nil {
		return nil, err
	}
	// Another auth service has been asked already; here it would be told what the client makes up.
	params.auth = authNone
	return errorBackend{handler: h, parameters: params}, nil
}

// ValidateParameters returns an error unless a query could be that of a check.
func ValidateParameters(query string) error {
	_, err := parseStatic(query)
	return err
}

// parseStatic reads a query before there are tiers to look up, and so refuses names that none can have.
func parseStatic(query string) (parameters, error) {
	params, err := inQuery.parse(query)
	if err == nil && params.tier != "" {
		err = validateTierName("tier", params.tier)
	}
	if err == nil && params.upstream != "" {
		err = validateTierName("upstream", params.upstream)
	}
	return params, err
}

func (b errorBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// nginx sends the client's body and gives up on an answer that comes before the end of it.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(errorBodyTimeout))
	_, _ = io.Copy(io.Discard, r.Body) // an error means that nobody is left to be answered

	status := refusedWith(r.Header.Get("X-Code"))
	a := answer{status: status, detail: "The request was refused."}
	if status == http.StatusForbidden {
		looked := b.handler.check(r.Context(), question{
			parameters: b.parameters,
			request:    requestOfClient(r),
			look:       true,
		})
		if looked.rejected() {
			a = looked
		}
	}
	b.handler.write(w, &a, plainForm)
}

// refusedWith is the status that nginx was about to answer. It is an error in any case: a client
// could otherwise think that it was served.
func refusedWith(code string) int {
	status, err := strconv.Atoi(code)
	if err != nil || status < 400 || status > 599 {
		return http.StatusForbidden
	}
	return status
}

// requestOfClient describes a request in which only X-Forwarded-For is not the client's own: nginx
// ends it with the client's address, and leaves an X-Real-IP that the client has sent.
func requestOfClient(r *http.Request) identity.Request {
	header := r.Header.Clone()
	last := ""
	if lines := r.Header["X-Forwarded-For"]; len(lines) > 0 {
		line := lines[len(lines)-1]
		last = strings.TrimSpace(line[strings.LastIndexByte(line, ',')+1:])
	}
	header["X-Real-Ip"] = []string{last}
	return identity.Request{Header: header, Peer: r.RemoteAddr, Unvouched: true}
}
