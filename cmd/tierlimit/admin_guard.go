// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tierlimit/tierlimit/internal/admin"
	"github.com/tierlimit/tierlimit/internal/adminapi"
)

const (
	// knownFor is how long the API server's word on a caller is believed. It is short: a right that was
	// given or taken is to show while somebody waits for it.
	knownFor = 10 * time.Second
	// refusedFor is the same for a right that the caller does not have.
	refusedFor = 2 * time.Second
	// reviewTimeout bounds one question to the API server.
	reviewTimeout = 10 * time.Second
)

// guard lets requests through whose caller the API server knows and allows to use the method on the path.
type guard struct {
	authenticate authenticator.Request
	authorize    authorizer.Authorizer
	next         http.Handler
	log          logr.Logger
}

// newGuard returns a guard, and what learns the cluster's authority for client certificates, which has to be
// started.
func newGuard(config *rest.Config, httpClient *http.Client, log logr.Logger) (*guard, *authority, error) {
	client, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, nil, err
	}
	authority, err := newAuthority(client, log)
	if err != nil {
		return nil, nil, err
	}
	backoff := &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 3}
	authenticate, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                          &apiserver.AnonymousAuthConfig{Enabled: false},
		CacheTTL:                           knownFor,
		TokenAccessReviewClient:            client.AuthenticationV1(),
		TokenAccessReviewTimeout:           reviewTimeout,
		WebhookRetryBackoff:                backoff,
		ClientCertificateCAContentProvider: authority.provider,
	}.New()
	if err != nil {
		return nil, nil, err
	}
	authorize, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             knownFor,
		DenyCacheTTL:              refusedFor,
		WebhookRetryBackoff:       backoff,
	}.New()
	if err != nil {
		return nil, nil, err
	}
	return &guard{authenticate: authenticate, authorize: authorize, log: log}, authority, nil
}

// ServeHTTP passes a request on, or answers it with 401, 403, or 503 when the API server cannot be asked.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	known, ok, err := g.authenticate.AuthenticateRequest(r)
	switch {
	case err != nil && unreachable(err):
		g.log.Error(err, "the API server could not be asked who a caller is")
		admin.WriteProblem(w, http.StatusServiceUnavailable, "The API server cannot be asked who you are now. Nothing was changed; try again.")
		return
	case err != nil || !ok:
		w.Header().Set("WWW-Authenticate", "Bearer")
		admin.WriteProblem(w, http.StatusUnauthorized, "The API server does not know you: send a valid token of the cluster (Authorization: Bearer), such as "+
			"kubectl create token makes, or a client certificate of the cluster's CA.")
		return
	}
	attributes := authorizer.AttributesRecord{User: known.User, Verb: strings.ToLower(r.Method), Path: r.URL.Path}
	decision, _, err := g.authorize.Authorize(r.Context(), attributes)
	switch {
	case err != nil:
		g.log.Error(err, "the API server could not be asked what a caller may do", "caller", known.User.GetName())
		admin.WriteProblem(w, http.StatusServiceUnavailable, "The API server cannot be asked what you may do now. Nothing was changed; try again.")
		return
	case decision != authorizer.DecisionAllow:
		admin.WriteProblem(w, http.StatusForbidden, forbidden(known.User.GetName(), r.Method, r.URL.Path))
		return
	}
	g.next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, known.User.GetName())))
}

// callerKey is the key of the caller's name in a request's context.
type callerKey struct{}

// callerOf returns the name of whoever has sent a request that a guard has passed on.
func callerOf(r *http.Request) string {
	name, _ := r.Context().Value(callerKey{}).(string)
	return name
}

// unreachable returns whether an error is about asking the API server, and not about what was asked.
func unreachable(err error) bool {
	var aggregate utilerrors.Aggregate
	if errors.As(err, &aggregate) {
		for _, one := range aggregate.Errors() {
			if unreachable(one) {
				return true
			}
		}
		return false
	}
	var status apierrors.APIStatus
	var netErr net.Error
	return errors.As(err, &status) || errors.As(err, &netErr) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// roles are the ClusterRoles of the chart and of config/rbac, by what they allow.
var roles = map[string]string{
	http.MethodGet + " " + adminapi.PathQuota:     "get",
	http.MethodDelete + " " + adminapi.PathQuota:  "reset",
	http.MethodGet + " " + adminapi.PathExplain:   "explain",
	http.MethodPut + " " + adminapi.PathGrant:     "grant",
	http.MethodDelete + " " + adminapi.PathGrant:  "grant",
	http.MethodGet + " " + adminapi.PathTop:       "top",
	http.MethodGet + " " + adminapi.PathDecisions: "watch",
	http.MethodGet + " " + adminapi.PathSimulate:  "simulate",
	http.MethodGet + " " + adminapi.PathOpenAPI:   "get",
}

func forbidden(name, method, path string) string {
	detail := fmt.Sprintf("%q may not %s %s", name, strings.ToLower(method), path)
	role := roles[method+" "+path]
	if role == "" {
		return detail + "."
	}
	return fmt.Sprintf("%s: it needs the ClusterRole tierlimit-quota-%s, which an administrator of the cluster binds: kubectl create clusterrolebinding NAME --clusterrole=tierlimit-quota-%s --user=USER "+
		"(in a Helm release of another name than tierlimit it is RELEASE-tierlimit-quota-%s).", detail, role, role, role)
}
