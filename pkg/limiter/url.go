// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Errors here are read by whoever wrote the URL. They name parts and known parameters, and count
// hosts, but repeat nothing: where a password was not percent-encoded, any part may belong to it.

// topology is how the servers of a URL belong together.
type topology int

const (
	single topology = iota
	socket
	sentinel
	cluster
)

// form is one form of the URL.
type form struct {
	topology topology
	tls      bool
	text     string // for errors
	port     string // of a host without one
}

const (
	singleText   = "redis://[user:password@]host[:port][/database]"
	socketText   = "unix://[user:password@]/path"
	sentinelText = "redis+sentinel://[user:password@]host[:port][,host[:port]...][/database]?master=NAME"
	clusterText  = "redis+cluster://[user:password@]host[:port][,host[:port]...]"

	// encode follows where the cause may be a password.
	encode = "; in a password, percent-encode '/', '?', '#', '@', ':', '&' and '%'"
)

// forms by the scheme.
var forms = map[string]form{
	"redis":           {single, false, singleText, "6379"},
	"rediss":          {single, true, singleText, "6379"},
	"unix":            {socket, false, socketText, ""},
	"redis+sentinel":  {sentinel, false, sentinelText, "26379"},
	"rediss+sentinel": {sentinel, true, sentinelText, "26379"},
	"redis+cluster":   {cluster, false, clusterText, "6379"},
	"rediss+cluster":  {cluster, true, clusterText, "6379"},
}

// expected returns an error that ends with the form.
func (f form) expected(what string) error {
	text := f.text
	if f.tls {
		text = strings.Replace(text, "redis", "rediss", 1)
	}
	return errors.New(what + "; expected " + text + encode)
}

// target is what a URL says.
type target struct {
	form
	addresses []string       // host:port each, or the path of the socket
	options   *redis.Options // what all forms have
	tls       *tlsSettings   // nil without TLS

	master, sentinelUsername, sentinelPassword string
}

// parseURL takes a URL apart. It reads no files.
func parseURL(redisURL string) (*target, error) {
	scheme, rest, found := strings.Cut(redisURL, "://")
	if !found {
		return nil, form{text: singleText}.expected("not a URL")
	}
	f, known := forms[strings.ToLower(scheme)]
	if !known {
		return nil, form{text: singleText}.expected("the URL does not begin with redis://, rediss://, unix://, redis+sentinel://, " +
			"rediss+sentinel://, redis+cluster:// or rediss+cluster://")
	}
	// An unencoded '/', '?' or '#' ends the hosts early, and the rest of the password is then in
	// what follows.
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	account, hosts := "", rest[:end]
	if at := strings.LastIndexByte(hosts, '@'); at >= 0 {
		account, hosts = hosts[:at+1], hosts[at+1:]
	}
	// net/url knows one host; the hosts are parsed one by one.
	u, err := url.Parse(f.commonScheme() + "://" + account + "host" + rest[end:])
	if err != nil {
		return nil, f.expected("not a URL")
	}
	if strings.Contains(rest, "#") || strings.Contains(u.RawQuery, "@") {
		return nil, f.expected("a '#' or '@' where none can be")
	}
	t := &target{form: f}
	if t.addresses, err = f.parseHosts(hosts, u.Path); err != nil {
		return nil, err
	}
	if err := f.validateAccount(u.User); err != nil {
		return nil, err
	}
	if err := f.validateDatabase(u.Path); err != nil {
		return nil, err
	}
	return t, t.parseQuery(u)
}

// commonScheme is the scheme by which redis.ParseURL reads what all forms have.
func (f form) commonScheme() string {
	switch {
	case f.topology == socket:
		return "unix"
	case f.tls:
		return "rediss"
	}
	return "redis"
}

// parseHosts returns the addresses.
func (f form) parseHosts(hosts, path string) ([]string, error) {
	if f.topology == socket {
		switch {
		case hosts != "":
			return nil, f.expected("the URL of a socket names a host")
		case strings.Trim(path, "/ ") == "":
			return nil, f.expected("no path of a socket")
		}
		return []string{path}, nil
	}
	list := strings.Split(hosts, ",")
	if f.topology == single && len(list) > 1 {
		return nil, f.expected("more than one host: use redis+sentinel:// or redis+cluster:// for several servers, or rediss+ for TLS")
	}
	var addresses []string
	seen := map[string]int{} // the number of the host
	for i, host := range list {
		prefix := ""
		if len(list) > 1 {
			prefix = fmt.Sprintf("host %d: ", i+1)
		}
		address, problem := parseHost(host, f.port)
		if problem != "" {
			return nil, f.expected(prefix + problem)
		}
		if first, twice := seen[strings.ToLower(address)]; twice {
			return nil, f.expected(fmt.Sprintf("%sthe same as host %d: give each once", prefix, first))
		}
		seen[strings.ToLower(address)] = i + 1
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// parseHost returns the host:port, or what is wrong.
func parseHost(host, defaultPort string) (address, problem string) {
	if host == "" {
		return "", "no host"
	}
	bracketed := strings.HasPrefix(host, "[")
	if strings.Count(host, ":") > 1 && !bracketed {
		return "", "more than one ':' in the host, or the '@' before it is missing; an IPv6 address is in brackets"
	}
	u, err := url.Parse("redis://" + host)
	if err != nil {
		return "", "not a host, or its port is not a number"
	}
	name, port := u.Hostname(), u.Port()
	if name == "" {
		return "", "no host"
	}
	if bracketed {
		ip, err := netip.ParseAddr(name)
		if err != nil || !ip.Is6() {
			return "", "no IPv6 address in the brackets"
		}
		name = ip.String()
	}
	if port == "" {
		port = defaultPort
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", "the port is not a number up to 65535"
	}
	return net.JoinHostPort(name, strconv.FormatUint(number, 10)), ""
}

// validateAccount refuses what go-redis would take for no account: it sends none without a password.
func (f form) validateAccount(account *url.Userinfo) error {
	if account == nil {
		return nil
	}
	if password, _ := account.Password(); password == "" {
		return f.expected("no password before the '@': write user:password@ or, for a password alone, :password@, or leave out the '@' too")
	}
	return nil
}

func (f form) validateDatabase(path string) error {
	database := strings.Trim(path, "/")
	if f.topology == socket || database == "" {
		return nil
	}
	if f.topology == cluster {
		return f.expected("something follows the hosts: Redis Cluster has database 0 only, leave it out")
	}
	if _, err := strconv.ParseUint(database, 10, 31); err != nil {
		return f.expected("what follows the host is not a database number")
	}
	return nil
}
