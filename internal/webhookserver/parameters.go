// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// parameters are the query parameters of a check. All are optional; "" is absent.
type parameters struct {
	tier   string // the name of a RateLimitTier
	user   string // who is asking, when the caller of the check knows
	tenant string // keeps the users of one tenant apart from those of another
	route  string // gives a route a budget of its own
}

// parseParameters reads a raw query. It is strict, because ingresses paste variables into a query
// as they are: a client that puts "&tier=enterprise" into one must be refused, not served.
func parseParameters(rawQuery string) (parameters, error) {
	var p parameters
	for rest := rawQuery; rest != ""; {
		var pair string
		pair, rest, _ = strings.Cut(rest, "&")
		if pair == "" {
			continue
		}
		rawName, rawValue, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(rawName)
		if err != nil {
			return parameters{}, fmt.Errorf("a parameter name is not percent-encoded correctly: %.40q", rawName)
		}
		field := p.field(name)
		switch {
		case field == nil:
			return parameters{}, fmt.Errorf("unknown parameter %.40q: use tier, user, tenant or route; percent-encode '&' in a value as %%26", name)
		case *field != "":
			return parameters{}, fmt.Errorf("parameter %q is given twice; percent-encode '&' in a value as %%26", name)
		case strings.Contains(rawValue, ";"):
			return parameters{}, fmt.Errorf("parameter %q contains ';': percent-encode it as %%3B", name)
		}
		if *field, err = url.QueryUnescape(rawValue); err != nil {
			return parameters{}, fmt.Errorf("parameter %q is not percent-encoded correctly: write '%%' as %%25", name)
		}
		if *field == "" {
			return parameters{}, fmt.Errorf("parameter %q is empty: give it a value or leave it out", name)
		}
	}
	return p, nil
}

// validateTierName refuses a name that no RateLimitTier can have.
func validateTierName(name string) error {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return fmt.Errorf("parameter \"tier\" is %.70q, which cannot be the name of a RateLimitTier: use lower case letters, digits, '-' and '.'", name)
	}
	return nil
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
	}
	return nil
}
