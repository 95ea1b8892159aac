// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// parameters are the parameters of a check, written by the owner of a route. All are optional; ""
// is absent.
type parameters struct {
	tier        string // the name of a RateLimitTier
	user        string // who is asking, when the caller of the check knows
	tenant      string // keeps the users of one tenant apart from those of another
	route       string // gives a route a budget of its own
	upstream    string // the name of a RateLimitTier that caps all callers together
	upstreamPer string // perTenant, or "" for one cap for all
	methods     string // the only methods that count, separated by commas
	exempt      string // methods that do not count, separated by commas
	auth        string // authNone, or "" to ask the other auth service, if there is one
}

// authNone is the value of the parameter auth for routes that the other auth service does not guard.
const authNone = "none"

// perTenant is the value of the parameter upstream-per for a cap of each tenant.
const perTenant = "tenant"

// encoding is how parameters are written in one part of a URL.
type encoding struct {
	separator string
	refused   string // would separate parameters elsewhere, so must be percent-encoded here
	unescape  func(string) (string, error)
}

var (
	// inQuery is "tier=free&route=chat".
	inQuery = encoding{separator: "&", refused: ";", unescape: url.QueryUnescape}
	// inPath is "tier=free;route=chat", as parameters of a path segment (RFC 3986, section 3.3).
	inPath = encoding{separator: ";", refused: "&", unescape: url.PathUnescape}
)

// parse reads parameters as they stand in a URL. It is strict, because ingresses paste variables
// into a query as they are: a client that puts "&tier=enterprise" into one must be refused, not
// served.
func (e encoding) parse(raw string) (parameters, error) {
	var p parameters
	if err := e.each(raw, p.set); err != nil {
		return parameters{}, err
	}
	if err := p.validate(); err != nil {
		return parameters{}, err
	}
	return p, nil
}

// each hands the parameters of a URL to set, one after the other, until one is refused.
func (e encoding) each(raw string, set func(name, value string) error) error {
	for rest := raw; rest != ""; {
		var pair string
		pair, rest, _ = strings.Cut(rest, e.separator)
		if pair == "" {
			continue
		}
		rawName, rawValue, _ := strings.Cut(pair, "=")
		name, err := e.unescape(rawName)
		if err != nil {
			return fmt.Errorf("a parameter name is not percent-encoded correctly: %.40q", rawName)
		}
		if strings.Contains(rawValue, e.refused) {
			return fmt.Errorf("parameter %.40q contains '%s': percent-encode it as %%%02X", name, e.refused, e.refused[0])
		}
		value, err := e.unescape(rawValue)
		if err != nil {
			return fmt.Errorf("parameter %.40q is not percent-encoded correctly: write '%%' as %%25", name)
		}
		switch err := set(name, value); {
		case errors.Is(err, ErrEmpty):
			return err
		case err != nil:
			return fmt.Errorf("%w; percent-encode '%s' in a value as %%%02X", err, e.separator, e.separator[0])
		}
	}
	return nil
}

// ErrEmpty is the error for a parameter without a value, to be wrapped behind its name.
var ErrEmpty = errors.New("is empty: give it a value or leave it out")

// set sets one parameter.
func (p *parameters) set(name, value string) error {
	switch field := p.field(name); {
	case field == nil:
		return fmt.Errorf("unknown parameter %.40q: use tier, user, tenant, route, upstream, upstream-per, methods, exempt or auth", name)
	case *field != "":
		return fmt.Errorf("parameter %q is given twice", name)
	case value == "":
		return fmt.Errorf("parameter %q %w", name, ErrEmpty)
	default:
		*field = value
		return nil
	}
}

// field returns where to put a parameter of this name, or nil.
func (p *parameters) field(name string) *string {
	switch name {
	case "tier":
		return &p.tier
	case "user":
		return &p.user
	case "tenant":
		return &p.tenant
	case "route":
		return &p.route
	case "upstream":
		return &p.upstream
	case "upstream-per":
		return &p.upstreamPer
	case "methods":
		return &p.methods
	case "exempt":
		return &p.exempt
	case "auth":
		return &p.auth
	}
	return nil
}

func (p *parameters) validate() error {
	switch {
	case p.auth != "" && p.auth != authNone:
		return fmt.Errorf("parameter \"auth\" is %.40q: use none, or leave it out", p.auth)
	case p.upstreamPer != "" && p.upstreamPer != perTenant:
		return fmt.Errorf("parameter \"upstream-per\" is %.40q: use tenant, or leave it out", p.upstreamPer)
	case p.upstreamPer != "" && p.upstream == "":
		return errors.New("parameter \"upstream-per\" is given without upstream: name the upstream too")
	}
	if err := validateMethods("methods", p.methods); err != nil {
		return err
	}
	return validateMethods("exempt", p.exempt)
}

func validateMethods(name, list string) error {
	if list != "" && slices.ContainsFunc(strings.Split(list, ","), notMethod) {
		return fmt.Errorf("parameter %q is %.40q: list methods in capital letters, separated by commas, such as GET,HEAD", name, list)
	}
	return nil
}

// notMethod returns whether a text is not the name of a method. Methods are case-sensitive (RFC
// 9110, section 9.1), and all that are registered are in capital letters.
func notMethod(s string) bool {
	return s == "" || strings.ContainsFunc(s, func(r rune) bool { return (r < 'A' || r > 'Z') && r != '-' })
}

// counts returns whether a request with this method is charged. One is that might be taken for
// another: its method is not known, or not in capital letters, which some applications ignore.
func (p *parameters) counts(method string) bool {
	switch {
	case notMethod(method):
		return true
	case p.exempt != "" && slices.Contains(strings.Split(p.exempt, ","), method):
		return false
	case p.methods != "":
		return slices.Contains(strings.Split(p.methods, ","), method)
	}
	return true
}

// validateTierName refuses a parameter that is a name that no RateLimitTier can have.
func validateTierName(parameter, name string) error {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return fmt.Errorf("parameter %q is %.70q, which cannot be the name of a RateLimitTier: use lower case letters, digits, '-' and '.'", parameter, name)
	}
	return nil
}
