// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

// roleOf returns the ClusterRole that a request needs.
func roleOf(r request) string {
	name := map[string]string{
		adminapi.PathQuota: "get", adminapi.PathExplain: "explain", adminapi.PathGrant: "grant", adminapi.PathTop: "top",
		adminapi.PathDecisions: "watch", adminapi.PathSimulate: "simulate",
	}[r.path]
	if r.path == adminapi.PathQuota && r.method == http.MethodDelete {
		name = "reset"
	}
	return "tierlimit-quota-" + name
}

// rightsToForward are the commands that let somebody find the Pods and forward a port to them.
func rightsToForward(namespace string) string { // the namespace may be a word to be replaced
	const commands = `  kubectl -n NAMESPACE create role tierlimit-pods --verb=get,list --resource=pods
  kubectl -n NAMESPACE create role tierlimit-port-forward --verb=get,create --resource=pods/portforward
  kubectl -n NAMESPACE create rolebinding NAME-pods --role=tierlimit-pods --user=USER
  kubectl -n NAMESPACE create rolebinding NAME-port-forward --role=tierlimit-port-forward --user=USER`
	return strings.ReplaceAll(commands, "NAMESPACE", namespace)
}

func errImpersonation(config *rest.Config) error {
	return usagef("--as %.60q cannot be used: the admin API goes by the credentials that are sent, not by whom they stand in for. Use that user's credentials, or a token with --token", config.Impersonate.UserName)
}

// explain adds to an error what to do about it.
func (r *replicas) explain(ctx context.Context, err error) error {
	var answer *refused
	if errors.As(err, &answer) {
		return r.explainAnswer(ctx, answer, err)
	}
	var forward *forwardError
	text := err.Error()
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &forward) && isForbidden(text):
		return fmt.Errorf("%w. These give you the right, if somebody with the rights of an administrator calls them:\n%s", err, rightsToForward(r.list[0].namespace))
	case strings.Contains(text, "connection refused"):
		if r.cluster == nil {
			return fmt.Errorf("%w. Does Tierlimit run there, and is its %s this address? A port-forward of your own: kubectl port-forward POD %d", err, adminFlag, adminPort)
		}
		return fmt.Errorf("%w. Nothing listens on the port of the admin API: it is off (%s=%d), or the Pods run a version that has none (kubectl -n %s get pods -l %s -o wide)", err, adminFlag, off, r.list[0].namespace, selector)
	case strings.Contains(text, "x509: "):
		return fmt.Errorf("%w. Leave --server out and let a port-forward be opened, or name the CA of that certificate with --certificate-authority", err)
	case strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return fmt.Errorf("%w. Local mode speaks plain HTTP: use http:// in --server", err)
	}
	return err
}

func isForbidden(text string) bool { return strings.Contains(text, "forbidden") }

func (r *replicas) explainAnswer(ctx context.Context, answer *refused, err error) error {
	switch answer.status {
	case http.StatusBadRequest:
		if strings.Contains(answer.detail, "HTTP request to an HTTPS server") {
			return fmt.Errorf("%w. In a cluster the admin API speaks HTTPS: use https:// in --server", err)
		}
	case http.StatusUnauthorized:
		return fmt.Errorf("%w. %s", err, r.unknownCaller())
	case http.StatusForbidden:
		if r.cluster == nil && strings.HasPrefix(answer.replica, "http://") {
			return err // local mode knows no rights; its answer says what is wrong
		}
		role, who := roleOf(answer.request), r.whoami(ctx)
		return fmt.Errorf("%w. You need the ClusterRole %s. Somebody with the rights of an administrator gives it to you with:\n  kubectl create clusterrolebinding %s --clusterrole=%s %s",
			err, role, shell(role+"-"+who.name), role, who.flag)
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return fmt.Errorf("%w. Tierlimit there does not know this request: it is an older version than this client (%s), or the address is not that of its admin API", err, r.d.Version)
	}
	return err
}

// unknownCaller says why the credentials may not have been accepted.
func (r *replicas) unknownCaller() string {
	if r.cluster == nil {
		return "The credentials of your kubeconfig are not accepted there, or there are none: give --kubeconfig, --context or --token"
	}
	config := r.cluster.config
	hasToken := config.BearerToken != "" || config.BearerTokenFile != "" || config.ExecProvider != nil || config.AuthProvider != nil
	if hasCertificate := len(config.CertData) > 0 || config.CertFile != ""; hasCertificate && !hasToken {
		return "Your kubeconfig has a client certificate and no token, and the replica takes tokens only: it could not read the ConfigMap extension-apiserver-authentication, as its log says, or another CA has issued the certificate. Use a token:\n" +
			"  " + r.d.Name + " --token=\"$(kubectl create token SERVICEACCOUNT)\" ..."
	}
	return "The API server does not know the credentials of your kubeconfig any more: see kubectl auth whoami, and log in again"
}

type caller struct{ name, flag string }

// whoami returns who the API server takes the caller for, and the flag of "kubectl create
// clusterrolebinding" for that. If it cannot be known it is USER, to be filled in.
func (r *replicas) whoami(ctx context.Context) caller {
	unknown := caller{"USER", "--user=USER"}
	if r.cluster == nil {
		return unknown
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	review, err := within(ctx, func() (*authenticationv1.SelfSubjectReview, error) {
		return r.cluster.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	})
	if err != nil || review.Status.UserInfo.Username == "" {
		return unknown
	}
	name := review.Status.UserInfo.Username
	if account, ok := strings.CutPrefix(name, "system:serviceaccount:"); ok {
		return caller{strings.ReplaceAll(account, ":", "-"), "--serviceaccount=" + account}
	}
	return caller{strings.NewReplacer("/", "-", "%", "-").Replace(name), "--user=" + shell(name)}
}

var plain = regexp.MustCompile(`^[A-Za-z0-9@%+=:,./_-]+$`)

// shell quotes a word for a shell, if it needs to be.
func shell(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
