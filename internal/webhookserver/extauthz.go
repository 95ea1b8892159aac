// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/tap"

	"github.com/tierlimit/tierlimit/internal/identity"
)

// extAuthz answers checks in the protocol of Envoy's ext_authz filter, envoy.service.auth.v3. The
// parameters of a check are the context extensions of the route.
type extAuthz struct {
	authv3.UnimplementedAuthorizationServer
	handler *Handler
}

// NewGRPCServer returns a server with this package's limits that answers checks over gRPC.
func (h *Handler) NewGRPCServer() *grpc.Server { return h.newGRPCServer(writeTimeout) }

// newGRPCServer returns a server that ends a check after some time, whatever part of it has come by
// then. The deadline that the caller sets may be none.
func (h *Handler) newGRPCServer(within time.Duration) *grpc.Server {
	end := func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		bounded, cancel := context.WithTimeout(ctx, within) //nolint:gosec // G118: the end of ctx, which comes with that of the check, stops the timer too
		_ = cancel
		return bounded, nil
	}
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(readTimeout),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.InTapHandle(end),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: maxConnectionIdle}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingInterval, PermitWithoutStream: true}),
	)
	authv3.RegisterAuthorizationServer(server, extAuthz{handler: h})
	return server
}

// Check answers one check. It returns no error: what Envoy does with one is not the tier's choice.
func (s extAuthz) Check(ctx context.Context, r *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	start := s.handler.now()
	attributes := r.GetAttributes()
	ctx, span := s.handler.traceGRPC(ctx, attributes.GetRequest().GetHttp())
	params, err := fromExtensions(attributes.GetContextExtensions())
	var a answer
	if err != nil {
		a = invalid(err)
	} else {
		a = s.handler.check(ctx, question{
			parameters: params,
			method:     attributes.GetRequest().GetHttp().GetMethod(),
			request:    requestOf(attributes),
		})
	}
	s.handler.answered(&a, start)
	endSpan(span, &a, 0)
	return s.handler.response(&a), nil
}

// fromExtensions reads the parameters of a check.
func fromExtensions(extensions map[string]string) (parameters, error) {
	var p parameters
	for name, value := range extensions {
		if err := p.set(name, value); err != nil {
			return parameters{}, err
		}
	}
	return p, p.validate()
}

// requestOf describes the request that is checked. The client's address is the one that Envoy
// found, whatever the client's own headers say.
func requestOf(attributes *authv3.AttributeContext) identity.Request {
	r := identity.Request{Header: http.Header{}}
	request := attributes.GetRequest().GetHttp()
	if raw := request.GetHeaderMap().GetHeaders(); len(raw) > 0 {
		for _, h := range raw {
			value := h.GetValue()
			if len(h.GetRawValue()) > 0 {
				value = string(h.GetRawValue())
			}
			r.Header.Add(h.GetKey(), value)
		}
	} else {
		r.Joined = true
		for name, value := range request.GetHeaders() {
			r.Header.Set(name, value)
		}
	}
	for name := range r.Header {
		if strings.HasPrefix(name, ":") { // HTTP/2's own (RFC 9113, section 8.3.1)
			delete(r.Header, name)
		}
	}
	describe(r.Header, request.GetMethod(), request.GetHost(), request.GetPath())
	r.Header["X-Forwarded-Proto"] = []string{request.GetScheme()}
	delete(r.Header, "X-Real-Ip")
	if address, err := netip.ParseAddr(attributes.GetSource().GetAddress().GetSocketAddress().GetAddress()); err == nil {
		r.Header["X-Real-Ip"] = []string{address.String()}
	}
	return r
}

// response is an answer in the protocol's terms.
func (h *Handler) response(a *answer) *authv3.CheckResponse {
	header := http.Header{}
	a.headers(header, h.Headers)
	if a.status == http.StatusOK {
		toApplication, toClient := split(header)
		ok := &authv3.OkHttpResponse{Headers: options(toApplication), ResponseHeadersToAdd: options(toClient)}
		if a.auth != nil {
			// A client must not pass for somebody because the other auth service named nobody.
			ok.HeadersToRemove = h.Auth.Unnamed(a.auth)
		}
		return &authv3.CheckResponse{
			Status:       &status.Status{Code: int32(codes.OK)},
			HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: ok},
		}
	}
	code := codes.PermissionDenied
	if a.status == http.StatusUnauthorized {
		code = codes.Unauthenticated
	}
	// Envoy refuses a status that the protocol does not list.
	httpStatus := typev3.StatusCode(int32(a.status)) //nolint:gosec // G115: a status code
	if _, listed := typev3.StatusCode_name[int32(httpStatus)]; !listed {
		httpStatus = typev3.StatusCode_Forbidden
	}
	return &authv3.CheckResponse{
		Status: &status.Status{Code: int32(code)},
		HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{
			Status:  &typev3.HttpStatus{Code: httpStatus},
			Headers: options(header),
			Body:    strings.ToValidUTF8(string(a.body()), "\uFFFD"), // a message of the protocol is UTF-8
		}},
	}
}

// split tells the headers that another auth service adds to the request, X-* and Authorization,
// from those of the answer that are meant for the client.
func split(header http.Header) (toApplication, toClient http.Header) {
	toApplication, toClient = http.Header{}, http.Header{}
	for name, values := range header {
		switch {
		case slices.Contains(ClientHeaders, name) || name == "Set-Cookie":
			toClient[name] = values
		case name == "Authorization" || strings.HasPrefix(name, "X-"):
			toApplication[name] = values
		}
	}
	return toApplication, toClient
}

// options returns headers in the protocol's terms: the first value of each takes the place of what
// is there, a header of the client's for example.
func options(header http.Header) []*corev3.HeaderValueOption {
	all := make([]*corev3.HeaderValueOption, 0, len(header))
	for name, values := range header {
		for i, value := range values {
			action := corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
			if i > 0 || name == "Set-Cookie" {
				action = corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
			}
			header := &corev3.HeaderValue{Key: name, Value: value}
			if !utf8.ValidString(value) {
				header.Value, header.RawValue = "", []byte(value)
			}
			all = append(all, &corev3.HeaderValueOption{Header: header, AppendAction: action})
		}
	}
	slices.SortStableFunc(all, func(a, b *corev3.HeaderValueOption) int {
		return strings.Compare(a.GetHeader().GetKey(), b.GetHeader().GetKey())
	})
	return all
}
