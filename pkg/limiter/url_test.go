// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

func TestURLsThatAreRefused(t *testing.T) {
	cases := map[string]struct{ reason, url, want string }{
		"HugePipelinePool":   {"Nor the other pool.", "redis://:hunter@redis?pipeline_pool_size=9999999999", "pipeline_pool_size is outside"},
		"NegativeBuffer":     {"A buffer has a size.", "redis://:hunter@redis?pipeline_read_buffer_size=-1", "pipeline_read_buffer_size is outside"},
		"DatabaseInQuery":    {"A database is not negative there either.", "redis://:hunter@redis?db=-1", "database number is negative"},
		"Semicolon":          {"net/url would drop the parameter.", "redis://:hunter@redis?pool_size=7;zwei", "a query parameter has a ';'"},
		"NoColon":            {"A password without a ':' looks like a user, and nobody would be logged in.", "redis://hunter@redis", "no password before the '@'"},
		"NoPassword":         {"A user without a password is not logged in.", "redis://hunter:@redis", "no password before the '@'"},
		"EmptyAccount":       {"An empty variable in a template.", "redis://:@redis", "no password before the '@'"},
		"ManyHosts":          {"One server has one host.", "redis://:hunter@redis:6379,zwei", "more than one host: use redis+sentinel:// or redis+cluster://"},
		"Comma":              {"An '@' forgotten and a comma in the password.", "redis://user:hunter,zwei", "more than one host"},
		"TwoPaths":           {"A socket has a path.", "unix://:hunter@/", "no path of a socket"},
		"NotIPv6":            {"Brackets are for IPv6.", "redis://[hunter]:6379", "not a host"},
		"IPv4InBrackets":     {"Brackets are for IPv6.", "redis://[123.1.1.1]:6379", "not a host"},
		"MasterOfSingle":     {"A master is Sentinel's.", "redis://redis?master=hunter", "master needs a URL that begins with redis+sentinel://"},
		"SentinelOfCluster":  {"The password too.", "redis+cluster://redis?sentinel_password=hunter", "sentinel_password needs a URL that begins with redis+sentinel://"},
		"TLSWithoutTLS":      {"It would not be TLS.", "redis://redis?tls_ca_file=/hunter", "tls_ca_file needs a URL that begins with rediss"},
		"SkipWithoutTLS":     {"It would not be TLS.", "redis://:hunter@redis?skip_verify=true", "skip_verify needs a URL that begins with rediss"},
		"TLSOfSocket":        {"A socket has no TLS.", "unix:///run/redis.sock?tls_server_name=hunter", "tls_server_name needs a URL that begins with rediss"},
		"SkipNotBool":        {"A switch is true or false.", "rediss://redis?skip_verify=hunter", "invalid skip_verify boolean"},
		"CertWithoutKey":     {"One is no use without the other.", "rediss://:hunter@redis?tls_cert_file=/etc/hostname", "tls_cert_file without tls_key_file"},
		"KeyWithoutCert":     {"One is no use without the other.", "rediss://:hunter@redis?tls_key_file=/etc/hostname", "tls_key_file without tls_cert_file"},
		"EmptyFile":          {"A file has a name.", "rediss://:hunter@redis?tls_ca_file=", "tls_ca_file is empty"},
		"TwoFiles":           {"There is one file.", "rediss://redis?tls_ca_file=/hunter&tls_ca_file=/zwei", "tls_ca_file is given more than once"},
		"SkipAndVerify":      {"Both at once is a mistake.", "rediss://:hunter@redis?tls_ca_file=/etc/hostname&skip_verify=true", "have no effect with skip_verify"},
		"SkipAndName":        {"Both at once is a mistake.", "rediss://:hunter@redis?tls_server_name=zwei&skip_verify=1", "have no effect with skip_verify"},
		"SentinelNoMaster":   {"Sentinel knows several masters.", "redis+sentinel://:hunter@a,b", "master is missing"},
		"SentinelBadMaster":  {"Not a name.", "redis+sentinel://a?master=hunter%20zwei", "master is not a name"},
		"SentinelTwoMasters": {"There is one master.", "redis+sentinel://a?master=hunter&master=zwei", "master is given more than once"},
		"SentinelNoPassword": {"A user needs a password.", "redis+sentinel://a?master=m&sentinel_username=hunter", "no effect without sentinel_password"},
		"SentinelAmpersand":  {"An unencoded '&' in the password.", "redis+sentinel://a?master=m&sentinel_password=hunter&zwei", "unknown query parameters"},
		"SentinelAt":         {"An unencoded '@' in the password.", "redis+sentinel://a?master=m&sentinel_password=hunter@zwei", "a '#' or '@'"},
		"SentinelHash":       {"An unencoded '#' in the password.", "redis+sentinel://a?master=m&sentinel_password=hunter#zwei", "a '#' or '@'"},
		"SentinelHashAtEnd":  {"At its end.", "redis+sentinel://a?master=m&sentinel_password=hunter#", "a '#' or '@'"},
		"SentinelPercent":    {"A '%' without two digits.", "redis+sentinel://a?master=m&sentinel_password=hunter%zwei", "without two digits"},
		"SentinelDatabase":   {"A database is a number.", "redis+sentinel://a/zwei?master=m", "not a database number"},
		"ClusterDatabase":    {"A Cluster has database 0.", "redis+cluster://:hunter@a,b/1", "database 0 only"},
		"ClusterZero":        {"Nothing to choose.", "redis+cluster://:hunter@a,b/0", "database 0 only"},
		"ClusterDB":          {"The other way to give it.", "redis+cluster://:hunter@a,b?db=1", "database 0 only"},
		"ClusterPort":        {"Every port is a number.", "redis+cluster://:hunter@a:1,b:zwei", "host 2: not a host, or its port is not a number"},
		"ClusterHugePort":    {"Every port is up to 65535.", "redis+cluster://:hunter@a:1,b:123456", "host 2: the port is not a number up to 65535"},
		"ClusterColons":      {"Every host has at most one ':'.", "redis+cluster://:hunter@a,b:zwei:1", "host 2: more than one ':'"},
		"ClusterEmptyHost":   {"A comma too many.", "redis+cluster://:hunter@a,,b", "host 2: no host"},
		"ClusterComma":       {"A comma at the end.", "redis+cluster://:hunter@a,b,", "host 3: no host"},
		"ClusterOnlyPort":    {"A port without its host.", "redis+cluster://:hunter@a,:456", "host 2: no host"},
		"ClusterTwice":       {"A host given twice, once without the default port.", "redis+cluster://:hunter@zwei,a,ZWEI:6379", "host 3: the same as host 1"},
		"ClusterTwiceIPv6":   {"An address written in two ways.", "redis+cluster://:hunter@[::1],[0:0::1]", "host 2: the same as host 1"},
		"ClusterOtherForm":   {"Hosts are not in the query.", "redis+cluster://:hunter@a?addr=zwei:6379", "unknown query parameters"},
		"ClusterReplicas":    {"Replicas are not asked.", "redis+cluster://:hunter@a?read_only=true", "unknown query parameters"},
		"UnknownPlus":        {"There is no such form.", "redis+hunter://a", "does not begin with redis://"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			refused(t, tc.reason, tc.url)
			if _, err := NewClient(tc.url); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

func TestURLsOfSeveralServers(t *testing.T) {
	type result struct {
		Addresses, Master, User, Password, SentinelUser, SentinelPassword string
		DB                                                                int
	}
	cases := map[string]struct {
		reason, url string
		want        result
	}{
		"Sentinel":        {"The port has a default.", "redis+sentinel://a?master=m", result{Addresses: "a:26379", Master: "m"}},
		"SentinelFull":    {"Every part is used.", "redis+sentinel://u:p@a:1,b,10.0.0.1:2/3?master=my-master.1_2&sentinel_username=su&sentinel_password=sp", result{"a:1,b:26379,10.0.0.1:2", "my-master.1_2", "u", "p", "su", "sp", 3}},
		"SentinelOrder":   {"The order of parameters does not matter.", "redis+sentinel://:p@a?sentinel_password=sp&master=m", result{"a:26379", "m", "", "p", "", "sp", 0}},
		"SentinelEncoded": {"Percent-encoded passwords are decoded, a plus is one.", "redis+sentinel://:a%2Fb%3Fc%23d%40e%3Af%25,+@a?master=m&sentinel_password=a/b%3Fc%23d%40e:f%25%26,+=", result{"a:26379", "m", "", "a/b?c#d@e:f%,+", "", "a/b?c#d@e:f%&,+=", 0}},
		"SentinelDB":      {"A database may be in the query, as in a socket's URL.", "redis+sentinel://a?db=2&master=m", result{Addresses: "a:26379", Master: "m", DB: 2}},
		"SentinelTLS":     {"The form is the same.", "rediss+sentinel://:p@a,b?master=m", result{Addresses: "a:26379,b:26379", Master: "m", Password: "p"}},
		"SentinelIPv6":    {"An address in brackets.", "redis+sentinel://[::1],[2001:db8:0::2]:7000?master=m", result{Addresses: "[::1]:26379,[2001:db8::2]:7000", Master: "m"}},
		"Cluster":         {"The port has a default.", "redis+cluster://a", result{Addresses: "a:6379"}},
		"ClusterFull":     {"Every part is used.", "redis+cluster://u:p@a:1,b,10.0.0.1:2,a:2", result{Addresses: "a:1,b:6379,10.0.0.1:2,a:2", User: "u", Password: "p"}},
		"ClusterTLS":      {"The form is the same.", "rediss+cluster://:p@a,b:7000", result{Addresses: "a:6379,b:7000", Password: "p"}},
		"ClusterIPv6":     {"An address in brackets.", "redis+cluster://[::1]:7000,[::1]", result{Addresses: "[::1]:7000,[::1]:6379"}},
		"ClusterSlash":    {"A slash without a database is none.", "redis+cluster://a/", result{Addresses: "a:6379"}},
		"UpperCase":       {"A scheme may be written in capitals.", "REDIS+CLUSTER://a", result{Addresses: "a:6379"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client := must(NewClient(tc.url))(t)
			defer client.Close()
			target := must(parseURL(tc.url))(t)
			if err := target.prepare(); err != nil {
				t.Fatal(err)
			}
			got := result{Addresses: Addresses(tc.url)}
			tls := false
			switch c := client.(type) {
			case *redis.ClusterClient:
				o := c.Options()
				got.User, got.Password, tls = o.Username, o.Password, o.Dialer != nil
				if addresses := strings.Join(o.Addrs, ","); addresses != got.Addresses {
					t.Errorf("the client has %s", addresses)
				}
			case *redis.Client:
				// The client hides its Sentinels, and what it has of its own is the same.
				o := target.failoverOptions()
				got.Master, got.User, got.Password, got.DB = o.MasterName, o.Username, o.Password, o.DB
				got.SentinelUser, got.SentinelPassword, tls = o.SentinelUsername, o.SentinelPassword, o.Dialer != nil
				if addresses := strings.Join(o.SentinelAddrs, ","); addresses != got.Addresses {
					t.Errorf("the client has %s", addresses)
				}
				if own := c.Options(); own.Username != got.User || own.Password != got.Password || own.DB != got.DB || own.Addr != "FailoverClient" {
					t.Errorf("the client has %s %s %s %d", own.Addr, own.Username, own.Password, own.DB)
				}
			}
			if difference := cmp.Diff(tc.want, got); difference != "" {
				t.Errorf("%s (-want +got)\n%s", tc.reason, difference)
			}
			if want := strings.HasPrefix(tc.url, "rediss"); tls != want {
				t.Errorf("%s TLS is %v", tc.reason, tls)
			}
		})
	}
}

// TestSettingsOfEveryForm sets each parameter that go-redis has for a single server, and expects it
// in the others.
func TestSettingsOfEveryForm(t *testing.T) {
	const parameters = "protocol=2&client_name=n&max_retries=7&min_retry_backoff=1ms&max_retry_backoff=2ms&dial_timeout=3s&read_timeout=4s&write_timeout=5s" +
		"&pool_fifo=true&pool_size=8&pool_timeout=6s&min_idle_conns=0&max_idle_conns=9&max_active_conns=10&max_concurrent_dials=6" +
		"&pipeline_pool_size=-1&pipeline_read_buffer_size=1024&pipeline_write_buffer_size=2048&conn_max_idle_time=7s&conn_max_lifetime=9s&conn_max_lifetime_jitter=8s"
	cases := map[string]struct {
		reason, parameters string
		dial, read, ask    time.Duration
		retries, pool      int
	}{
		"Defaults": {"The deadline of the check decides.", "", time.Second, MaxTimeout, askTimeout, -1, 0},
		"Given":    {"The URL goes first.", parameters, 3 * time.Second, 4 * time.Second, 4 * time.Second, 7, 8},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			prepared := func(url string) *target {
				p := must(parseURL(url))(t)
				if err := p.prepare(); err != nil {
					t.Fatal(err)
				}
				return p
			}
			want := prepared("redis://u:p@a?" + tc.parameters).options
			failover := prepared("redis+sentinel://u:p@a?master=m&" + tc.parameters).failoverOptions()
			cluster := prepared("redis+cluster://u:p@a?" + tc.parameters).clusterOptions()
			if want.DialTimeout != tc.dial || want.ReadTimeout != tc.read || want.MaxRetries != tc.retries || want.PoolSize != tc.pool {
				t.Errorf("%s got %+v", tc.reason, want)
			}
			if !want.ContextTimeoutEnabled || !want.DisableIdentity || want.DialerRetries != 1 || cluster.MaintNotificationsConfig.Mode != "disabled" {
				t.Errorf("the settings of a check are missing: %+v", want)
			}
			if want := max(tc.retries, 0); cluster.MaxRedirects != want { // 0 is go-redis's default
				t.Errorf("%d redirections, want %d", cluster.MaxRedirects, want)
			}
			sameFields(t, want, failover, "ReadTimeout", "WriteTimeout")
			sameFields(t, want, cluster, "ReadTimeout", "WriteTimeout", "MaxRetries") // MaxRedirects counts both
			if failover.ReadTimeout != tc.ask || cluster.ReadTimeout != tc.ask {
				t.Errorf("%s where the primary is may be asked for longer than %v", tc.reason, tc.ask)
			}
			if failover.ReplicaOnly || failover.RouteByLatency || failover.RouteRandomly || cluster.ReadOnly || cluster.RouteByLatency || cluster.RouteRandomly {
				t.Error("a replica may be asked")
			}
		})
	}
}

// sameFields expects that every field of want that got has too is equal, except some.
func sameFields(t *testing.T, want *redis.Options, got any, except ...string) {
	t.Helper()
	w, g := reflect.ValueOf(want).Elem(), reflect.ValueOf(got).Elem()
	for i := range w.NumField() {
		field := w.Type().Field(i)
		other := g.FieldByName(field.Name)
		if !field.IsExported() || !other.IsValid() || field.Type.Kind() == reflect.Func || slices.Contains(except, field.Name) {
			continue
		}
		if difference := cmp.Diff(w.Field(i).Interface(), other.Interface()); difference != "" {
			t.Errorf("%T.%s (-want +got)\n%s", got, field.Name, difference)
		}
	}
}

func TestAddresses(t *testing.T) {
	for url, want := range map[string]string{
		"redis://u:hunter@redis":             "redis:6379",
		"unix://u:hunter@/run/redis.sock":    "/run/redis.sock",
		"rediss://redis?tls_ca_file=/none":   "redis:6379", // no file is read
		"redis://redis:hunter":               "",
		"rediss+cluster://:hunter@a,[::1]:1": "a:6379,[::1]:1",
	} {
		if got := Addresses(url); got != want {
			t.Errorf("%s: got %q, want %q", url, got, want)
		}
	}
}
