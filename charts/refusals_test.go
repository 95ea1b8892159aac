// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"strings"
	"testing"
)

// TestRefusals looks at what somebody is told who gives a wrong value.
func TestRefusals(t *testing.T) {
	const secret = "redis.existingSecret.name=tierlimit-redis"
	for name, tc := range map[string]struct {
		reason string
		set    []string // beside an image
		says   []string
	}{
		// By the schema.
		"Misspelt":         {"it would have no effect, in silence", []string{secret, "replicaCount=3"}, []string{"additional properties 'replicaCount' not allowed"}},
		"MisspeltBelow":    {"on every level", []string{"redis.existingsecret.name=a"}, []string{"'/redis'", "additional properties 'existingsecret' not allowed"}},
		"MisspeltInTier":   {"a budget that is not there", []string{secret, "tiers.free.requests.perHour=1"}, []string{"'/tiers/free/requests'", "'perHour'"}},
		"TextForNumber":    {"not a number", []string{secret, "replicas=two"}, []string{"'/replicas'", "got string, want", "integer"}},
		"NoReplicas":       {"nobody would answer", []string{secret, "replicas=0"}, []string{"'/replicas'", "minimum: got 0, want 1"}},
		"TextForYes":       {"yes is a text", []string{secret, "killSwitch.engaged=yes"}, []string{"'/killSwitch/engaged'", "got string, want boolean"}},
		"Enumeration":      {"a list of what there is", []string{secret, "log.level=warn"}, []string{"'/log/level'", "'debug', 'info', 'error'"}},
		"HeaderSet":        {"the same in a list", []string{secret, "responseHeaders={ratelimits}"}, []string{"'/responseHeaders/0'", "'x-ratelimit', 'ratelimit', 'retry-after-ms'"}},
		"TierMode":         {"by the schema of the CustomResourceDefinition", []string{secret, "tiers.free.mode=Dry"}, []string{"'/tiers/free/mode'", "'Enforce', 'DryRun'"}},
		"TierLimit":        {"the same for a number", []string{secret, "tiers.free.requests.perMinute=1000001"}, []string{"'/tiers/free/requests/perMinute'", "maximum: got 1.000001×10"}},
		"TierWithout":      {"a tier without a budget", []string{secret, "tiers.team.mode=DryRun"}, []string{"'/tiers/team'", "missing property 'requests'"}},
		"Root":             {"the Pod stays restricted", []string{secret, "podSecurityContext.runAsNonRoot=false"}, []string{"'/podSecurityContext/runAsNonRoot'", "must be true"}},
		"UserRoot":         {"the same", []string{secret, "podSecurityContext.runAsUser=0"}, []string{"'/podSecurityContext/runAsUser'", "minimum: got 0, want 1"}},
		"Writable":         {"the same", []string{secret, "securityContext.readOnlyRootFilesystem=false"}, []string{"'/securityContext/readOnlyRootFilesystem'", "must be true"}},
		"Capability":       {"the same", []string{secret, "securityContext.capabilities.drop={NET_RAW}"}, []string{"'/securityContext/capabilities/drop'"}},
		"SampleRatio":      {"it is a part", []string{secret, "tracing.sampleRatio=10"}, []string{"'/tracing/sampleRatio'", "maximum: got 10, want 1"}},
		"ReasonTooLong":    {"an annotation is no novel", []string{secret, "killSwitch.engaged=true", "killSwitch.reason=" + strings.Repeat("x", 257)}, []string{"'/killSwitch/reason'", "maxLength: got 257, want 256"}},
		"ResourcesSection": {"on the level of requests and limits", []string{secret, "resources.request.cpu=1"}, []string{"'/resources'", "'request'"}},
		"NameOverride":     {"it would change the selectors, of which only some can be changed", []string{secret, "nameOverride=limit"}, []string{"additional properties 'nameOverride' not allowed"}},
		"NullAtAll":        {"the Pod stays restricted", []string{secret, "securityContext=null"}, []string{"missing property 'securityContext'"}},
		"NullBelow":        {"the same", []string{secret, "podSecurityContext.runAsNonRoot=null"}, []string{"'/podSecurityContext'", "missing property 'runAsNonRoot'"}},
		"NullInList":       {"the same", []string{secret, "securityContext.capabilities.drop=null"}, []string{"'/securityContext/capabilities'", "missing property 'drop'"}},
		"NullOther":        {"it would be an error of the template", []string{secret, "identity.authService=null"}, []string{"'/identity'", "missing property 'authService'"}},
		"NullTiers":        {"each can be null by itself", []string{secret, "tiers=null"}, []string{"missing property 'tiers'"}},
		"DrainNumber":      {"less than none", []string{secret, "podDisruptionBudget.maxUnavailable=-1"}, []string{"'/podDisruptionBudget/maxUnavailable'", "minimum: got -1, want 0"}},
		"DrainText":        {"no percentage", []string{secret, "podDisruptionBudget.maxUnavailable=one"}, []string{"'/podDisruptionBudget/maxUnavailable'", "'one' does not match pattern '^([0-9]{1,2}|100)%$'"}},
		"SampleRatioText":  {"not a number", []string{secret, "tracing.sampleRatio=1.5"}, []string{"'/tracing/sampleRatio'", "'1.5' does not match pattern"}},
		"VariableNameless": {"a variable of no name", []string{secret, "extraEnv[0].value=x"}, []string{"'/extraEnv/0'", "missing property 'name'"}},

		// By the template.
		"NoImage":          {"there is no public image", []string{secret, "image.repository="}, []string{"image.repository is not set: build and push the image"}},
		"Tag":              {"r/t:v1:v0.1.0 is no image", []string{secret, "image.repository=registry.example/tierlimit:v1"}, []string{"image.repository has a tag or a digest: give the name alone", "the tag in image.tag"}},
		"TagAfterPort":     {"the same behind a port", []string{secret, "image.repository=localhost:5000/tierlimit:v1"}, []string{"image.repository has a tag or a digest"}},
		"DigestInName":     {"the same for a digest", []string{secret, "image.repository=localhost:5000/tierlimit@sha256:abc"}, []string{"image.repository has a tag or a digest"}},
		"TierName":         {"the API server would refuse it after other changes", []string{secret, "tiers.Free_1.requests.perDay=1"}, []string{"tiers.Free_1 cannot be the name of a RateLimitTier: use up to 63 small letters"}},
		"TierNameDots":     {"an empty part", []string{secret, `tiers.a\.\.b.requests.perDay=1`}, []string{"tiers.a..b cannot be the name"}},
		"TierNameLong":     {"it is a label of metrics", []string{secret, "tiers." + strings.Repeat("x", 64) + ".requests.perDay=1"}, []string{"x cannot be the name"}},
		"TierNameQuotes":   {"a quote in a name does not break the message", []string{secret, `tiers.a'".requests.perDay=1`}, []string{`tiers.a'" cannot be the name`}},
		"TierNoBudget":     {"a tier without limits", []string{secret, "tiers.free.requests.perMinute=null", "tiers.free.requests.perDay=null"}, []string{"tiers.free has no budget: set requests.perMinute, requests.perDay or both"}},
		"TierDayBelow":     {"the minute could never be used up", []string{secret, "tiers.free.requests.perMinute=200"}, []string{"tiers.free: requests.perDay (100) is below requests.perMinute (200)", "raise perDay"}},
		"TierNoReason":     {"somebody will ask why", []string{secret, "tiers.free.killSwitch.engaged=true"}, []string{"tiers.free.killSwitch.engaged needs killSwitch.reason"}},
		"TierBlankReason":  {"the same", []string{secret, "tiers.free.killSwitch.engaged=true", "tiers.free.killSwitch.reason= "}, []string{"tiers.free.killSwitch.engaged needs killSwitch.reason"}},
		"TierExpiry":       {"not a time", []string{secret, "tiers.free.killSwitch.engaged=false", "tiers.free.killSwitch.expiresAt=tomorrow"}, []string{"tiers.free.killSwitch.expiresAt is no time: write it like 2030-01-31T06:00:00Z"}},
		"TierNoSuchDay":    {"a day that no calendar has", []string{secret, "tiers.free.killSwitch.engaged=false", "tiers.free.killSwitch.expiresAt=2030-02-31T06:00:00Z"}, []string{"tiers.free.killSwitch.expiresAt is no time"}},
		"NoUnit":           {"5 of what", []string{secret, "redis.timeout=5"}, []string{"redis.timeout is 5, without a unit: write 5s for seconds or 5ms for milliseconds, from 1ms to 1m"}},
		"NoUnitDeny":       {"the same", []string{secret, "denyMemory=250"}, []string{"denyMemory is 250, without a unit: write 250s for seconds or 250ms"}},
		"NoUnitAuth":       {"the same", []string{secret, "identity.authService.timeout=2"}, []string{"identity.authService.timeout is 2, without a unit: write 2s"}},
		"Digest":           {"it would only show at the nodes", []string{secret, "image.digest=abc"}, []string{"image.digest is not a digest: write sha256:"}},
		"NoRedis":          {"one is needed", nil, []string{"no Redis: set redis.existingSecret.name"}},
		"TwoRedis":         {"only one can be used", []string{secret, "redis.url=redis://:SESAME@redis"}, []string{"redis.url and redis.existingSecret.name are set", "leave one"}},
		"ThreeRedis":       {"the same with the one for trying out", []string{secret, "redis.trial.enabled=true"}, []string{"redis.existingSecret.name and redis.trial.enabled are set"}},
		"NotRedis":         {"not a scheme of Redis; nothing of the URL is repeated", []string{"redis.url=http://:SESAME@redis"}, []string{"redis.url does not begin with redis://"}},
		"TLSWithout":       {"files that nothing reads", []string{"redis.url=redis://:SESAME@redis", "redis.tls.existingSecret=tls"}, []string{"redis.tls.existingSecret has no effect"}},
		"TLSFiles":         {"files that are not there", []string{"redis.url=rediss://:SESAME@redis?tls_ca_file=/etc/redis/ca.crt"}, []string{"set redis.tls.existingSecret"}},
		"NoKey":            {"a Secret and no key", []string{secret, "redis.existingSecret.key="}, []string{"redis.existingSecret.key is empty"}},
		"Timeout":          {"not a time", []string{secret, "redis.timeout=fast"}, []string{"redis.timeout is 'fast': use a whole number and ms, s or m, from 1ms to 1m"}},
		"TimeoutTooLong":   {"the program would refuse it at its start", []string{secret, "redis.timeout=61s"}, []string{"redis.timeout is '61s'"}},
		"DenyMemory":       {"the same", []string{secret, "denyMemory=2m"}, []string{"denyMemory is '2m'", "0ms to 1m"}},
		"Quotes":           {"a quote in a value does not break the message", []string{secret, "denyMemory='"}, []string{"denyMemory is '''"}},
		"KillSwitch":       {"somebody will ask why", []string{secret, "killSwitch.engaged=true"}, []string{"killSwitch.engaged needs killSwitch.reason"}},
		"KillSwitchBlank":  {"the same", []string{secret, "killSwitch.engaged=true", "killSwitch.reason= "}, []string{"killSwitch.engaged needs killSwitch.reason"}},
		"BothScales":       {"the autoscaler chooses", []string{secret, "autoscaling.enabled=true", "replicas=3"}, []string{"replicas and autoscaling.enabled are set", "leave replicas out"}},
		"Scale":            {"fewest above most", []string{secret, "autoscaling.enabled=true", "autoscaling.maxReplicas=1"}, []string{"autoscaling.maxReplicas is below"}},
		"ScaleOfWhat":      {"a percentage of nothing", []string{secret, "autoscaling.enabled=true", "resources.requests.cpu=null"}, []string{"autoscaling.enabled needs resources.requests.cpu"}},
		"Source":           {"a source that does not exist", []string{secret, "identity.sources={cookie:id}"}, []string{`"cookie:id" is no source: use address`}},
		"SourceInjected":   {"a source cannot bring another", []string{secret, `identity.sources={address\,anonymous}`}, []string{`"address,anonymous" is no source`}},
		"JWTWithoutKeys":   {"tokens could not be verified", []string{secret, "identity.sources={jwt}"}, []string{"set identity.jwt.jwksURL", "set identity.jwt.issuer", "set identity.jwt.audience"}},
		"JWTUnused":        {"whoever sets it believes that tokens are verified", []string{secret, "identity.jwt.issuer=https://issuer.example"}, []string{"identity.jwt.issuer has no effect: add jwt to identity.sources"}},
		"AuthUnused":       {"the same", []string{secret, "identity.authService.tierHeader=X-Plan"}, []string{"identity.authService.tierHeader has no effect"}},
		"AuthNotReached":   {"every check would be answered with 503", []string{secret, "identity.authService.url=http://oauth2-proxy.auth/oauth2/auth"}, []string{"networkPolicy.authService.ports, for oauth2-proxy [4180]"}},
		"AuthTimeout":      {"the program would refuse it", []string{secret, "identity.authService.timeout=11s"}, []string{"identity.authService.timeout is '11s'", "1ms to 10s"}},
		"URLWithPassword":  {"the header is the client's; nothing of the URL is repeated", []string{secret, "identity.authService.url=http://a:SESAME@auth", "networkPolicy.authService.ports={80}"}, []string{"identity.authService.url is not a URL"}},
		"Account":          {"no right for the account default", []string{secret, "serviceAccount.create=false"}, []string{"name the service account that is there"}},
		"Profile":          {"a profile without its file", []string{secret, "podSecurityContext.seccompProfile.type=Localhost"}, []string{"localhostProfile goes with type Localhost"}},
		"MonitorOfWhat":    {"nothing to scrape", []string{secret, "metrics.enabled=false", "metrics.serviceMonitor.enabled=true"}, []string{"metrics.serviceMonitor.enabled needs metrics.enabled"}},
		"ProfilesOfWhat":   {"served with the metrics", []string{secret, "metrics.enabled=false", "profiling.enabled=true"}, []string{"profiling.enabled needs metrics.enabled"}},
		"BackendPort":      {"a port that is taken", []string{secret, "errorBackends[0].name=free", "errorBackends[0].port=8081", "errorBackends[0].parameters=tier=free"}, []string{"port 8081 is used by Tierlimit itself"}},
		"BackendName":      {"a name that no Service can have", []string{secret, "errorBackends[0].name=Free", "errorBackends[0].port=8082", "errorBackends[0].parameters=tier=free"}, []string{"a name is part of the name of a Service"}},
		"DefaultTier":      {"a name that no tier can have", []string{secret, "defaultTier=Free"}, []string{"defaultTier cannot be the name"}},
		"AllAtOnce":        {"one look is enough", []string{"image.repository=", "killSwitch.engaged=true"}, []string{"image.repository is not set", "no Redis", "killSwitch.engaged needs"}},
		"Fullname":         {"no Service could have it", []string{secret, "fullnameOverride=Foo_Bar"}, []string{`"Foo_Bar" cannot be the name of a Service: set fullnameOverride`}},
		"FullnameDashes":   {"the same", []string{secret, "fullnameOverride=--"}, []string{`"" cannot be the name of a Service`}},
		"FullnameDigit":    {"the same", []string{secret, "fullnameOverride=1e3-tierlimit"}, []string{`"1e3-tierlimit" cannot be the name of a Service`}},
		"BackendDashes":    {"no port could have it", []string{secret, "errorBackends[0].name=a--b", "errorBackends[0].port=8082", "errorBackends[0].parameters=tier=free"}, []string{"a name is part of the name of a Service"}},
		"BackendTwice":     {"one Service would replace the other", []string{secret, "errorBackends[0].name=a", "errorBackends[0].port=8082", "errorBackends[0].parameters=x", "errorBackends[1].name=a", "errorBackends[1].port=8082", "errorBackends[1].parameters=x"}, []string{`the name "a" is used twice`, "port 8082 is used twice"}},
		"BackendMetrics":   {"a port that is taken", []string{secret, "errorBackends[0].name=a", "errorBackends[0].port=8443", "errorBackends[0].parameters=x"}, []string{"port 8443 is used by Tierlimit itself"}},
		"BackendAdmin":     {"the same", []string{secret, "errorBackends[0].name=a", "errorBackends[0].port=8444", "errorBackends[0].parameters=x"}, []string{"port 8444 is used by Tierlimit itself"}},
		"BindingsToWhat":   {"no roles to bind", []string{secret, "rbac.create=false", "admin.bindings[0].verbs={get}", "admin.bindings[0].subjects[0].kind=User", "admin.bindings[0].subjects[0].name=a"}, []string{"admin.bindings needs rbac.create"}},
		"BindingsOfWhat":   {"nothing to be allowed", []string{secret, "admin.enabled=false", "admin.bindings[0].verbs={get}", "admin.bindings[0].subjects[0].kind=User", "admin.bindings[0].subjects[0].name=a"}, []string{"admin.bindings needs admin.enabled"}},
		"BindingNamespace": {"an account is of a namespace", []string{secret, "admin.bindings[0].verbs={get}", "admin.bindings[0].subjects[0].kind=ServiceAccount", "admin.bindings[0].subjects[0].name=a"}, []string{"the ServiceAccount a has no namespace: add it"}},
		"BindingNobody":    {"a user is of none", []string{secret, "admin.bindings[0].verbs={get}", "admin.bindings[0].subjects[0].kind=User", "admin.bindings[0].subjects[0].name=a", "admin.bindings[0].subjects[0].namespace=b"}, []string{"the User a has a namespace"}},
		"BindingVerb":      {"a verb that does not exist", []string{secret, "admin.bindings[0].verbs={delete}", "admin.bindings[0].subjects[0].kind=User", "admin.bindings[0].subjects[0].name=a"}, []string{"'get', 'explain', 'reset', 'grant', 'top', 'watch', 'simulate'"}},
		"BackendGRPC":      {"the same", []string{secret, "errorBackends[0].name=a", "errorBackends[0].port=9001", "errorBackends[0].parameters=x"}, []string{"port 9001 is used by Tierlimit itself"}},
		"HashKey":          {"a Secret and no key", []string{secret, "identity.hashKey.existingSecret.name=a", "identity.hashKey.existingSecret.key="}, []string{"identity.hashKey.existingSecret.key is empty"}},
		"SourceTwice":      {"the program would refuse it", []string{secret, "identity.sources={api-key:X-Key,api-key:x-key}"}, []string{`"api-key:x-key" is listed twice`}},
		"SourceNotReached": {"the same", []string{secret, "identity.sources={address,jwt:X}"}, []string{`"jwt:X" is never reached`}},
		"SourceAnonymous":  {"the same", []string{secret, "identity.sources={anonymous,authorization}"}, []string{`"authorization" is never reached`}},
		"SourceProxies":    {"the same", []string{secret, "identity.sources={forwarded-for:17}"}, []string{`"forwarded-for:17" is no source`}},
		"SourceHost":       {"the same", []string{secret, "identity.sources={header:host}"}, []string{`"header:host": Host says where`}},
		"Variable":         {"only one of the two would hold", []string{secret, "extraEnv[0].name=RATE_LIMIT_DISABLED", "extraEnv[0].value=x"}, []string{`extraEnv: "RATE_LIMIT_DISABLED" is there twice, or is set by the chart`}},
		"VariableTwice":    {"the same", []string{secret, "extraEnv[0].name=A", "extraEnv[1].name=A"}, []string{`extraEnv: "A" is there twice`}},
		"LabelName":        {"the Services would find nobody", []string{secret, `commonLabels.app\.kubernetes\.io/name=a`}, []string{"commonLabels: app.kubernetes.io/name is what the Services select by"}},
		"LabelInstance":    {"the same", []string{secret, `podLabels.app\.kubernetes\.io/instance=a`}, []string{"podLabels: app.kubernetes.io/instance is what"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"template", release, chart, "--set", "image.repository=registry.example/tierlimit"}
			for _, set := range tc.set {
				args = append(args, "--set", set)
			}
			_, message, err := helm(t, "", args...)
			if err == nil {
				t.Fatalf("%s: %v is not refused", tc.reason, tc.set)
			}
			for _, says := range tc.says {
				if !strings.Contains(message, says) {
					t.Errorf("%s: %q is not in\n%s", tc.reason, says, message)
				}
			}
			if strings.Contains(message, "SESAME") {
				t.Errorf("the message repeats a password:\n%s", message)
			}
		})
	}
}

// TestNotRefused looks at values that are close to wrong ones.
func TestNotRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		set    []string
		want   string
	}{
		"Port":       {"the port of a registry is no tag", []string{"image.repository=localhost:5000/tierlimit"}, "image: localhost:5000/tierlimit:v"},
		"LongName":   {"63 characters, with dots", []string{"tiers." + strings.Repeat("x", 61) + `\.x.requests.perDay=1`}, "name: " + strings.Repeat("x", 61) + ".x"},
		"DayAlone":   {"one window is enough", []string{"tiers.free.requests.perMinute=null"}, "perDay: 100"},
		"Nobody":     {"0 is a budget", []string{"tiers.free.requests.perMinute=0", "tiers.free.requests.perDay=0"}, "perDay: 0"},
		"Same":       {"perDay may be perMinute", []string{"tiers.free.requests.perMinute=100"}, "perMinute: 100"},
		"Expiry":     {"fractions and an offset", []string{"tiers.free.killSwitch.engaged=true", "tiers.free.killSwitch.reason=a", "tiers.free.killSwitch.expiresAt=2030-01-31T06:00:00.5+01:00"}, "2030-01-31T06:00:00.5+01:00"},
		"Disengaged": {"what is not engaged needs no reason", []string{"tiers.free.killSwitch.engaged=false"}, "engaged: false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"template", release, chart, "--set", "image.repository=registry.example/tierlimit", "--set", "redis.existingSecret.name=tierlimit-redis"}
			for _, set := range tc.set {
				args = append(args, "--set", set)
			}
			stdout, message, err := helm(t, "", args...)
			if err != nil || !strings.Contains(strings.ReplaceAll(stdout, `"`, ""), tc.want) {
				t.Errorf("%s: %v %s; want %q in\n%s", tc.reason, err, message, tc.want, stdout)
			}
		})
	}
}
