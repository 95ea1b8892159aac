{{/* What a schema cannot say, or not so that it helps. All that is wrong is said at once. No message repeats a URL,
which may hold a password. */}}
{{- define "tierlimit.validate" -}}
{{- $errors := list }}
{{- range list "install" "admin" "tiers" "redis" "scale" "identity" "network" "sources" "names" }}
{{- $errors = concat $errors (include (printf "tierlimit.validate.%s" .) $ | fromYamlArray) }}
{{- end }}
{{- if $errors }}
{{- fail (printf "the values cannot be used:\n- %s" (join "\n- " $errors)) }}
{{- end }}
{{- end }}

{{- define "tierlimit.validate.install" -}}
{{- if not .Values.image.repository }}
- 'image.repository is not set: build and push the image (make image, then make image-push IMAGE=registry.example/tierlimit:{{ .Chart.AppVersion }}), and give its name without the tag'
{{- else if regexMatch "@|:[^/]*$" .Values.image.repository }}
- 'image.repository has a tag or a digest: give the name alone, such as registry.example/tierlimit, the tag in image.tag and a digest in image.digest'
{{- end }}
{{- if and .Values.image.digest (not (regexMatch "^sha256:[0-9a-f]{64}$" .Values.image.digest)) }}
- 'image.digest is not a digest: write sha256: and 64 hexadecimal digits, or use image.tag'
{{- end }}
{{- if and .Values.killSwitch.engaged (not (trim .Values.killSwitch.reason)) }}
- 'killSwitch.engaged needs killSwitch.reason: say why limiting is off for everybody'
{{- end }}
{{- if not (include "tierlimit.isTierName" .Values.defaultTier) }}
- 'defaultTier cannot be the name of a RateLimitTier: use up to 63 small letters, digits, "-" and ".", with a letter or a digit at both ends and beside each "."'
{{- end }}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}
- 'serviceAccount.create is false: name the service account that is there, in serviceAccount.name'
{{- end }}
{{- with .Values.podSecurityContext.seccompProfile }}
{{- if ne (eq .type "Localhost") (ne .localhostProfile "") }}
- 'podSecurityContext.seccompProfile: localhostProfile goes with type Localhost, and only with that'
{{- end }}
{{- end }}
{{- if not .Values.metrics.enabled }}
{{- range $name, $on := dict "metrics.serviceMonitor.enabled" .Values.metrics.serviceMonitor.enabled "profiling.enabled" .Values.profiling.enabled }}
{{- if $on }}
- '{{ $name }} needs metrics.enabled: both are served on the port of the metrics'
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* "true" if a RateLimitTier may have this name: a DNS-1123 subdomain that can be a label. */}}
{{- define "tierlimit.isTierName" -}}
{{- if and (le (len .) 63) (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$" .) }}true{{ end }}
{{- end }}

{{- define "tierlimit.validate.admin" -}}
{{- if and .Values.admin.bindings (not .Values.admin.enabled) }}
- 'admin.bindings needs admin.enabled: nothing would be answered to whom they are for'
{{- end }}
{{- if and .Values.admin.bindings (not .Values.rbac.create) }}
- 'admin.bindings needs rbac.create: without it the chart makes no roles that could be bound'
{{- end }}
{{- range .Values.admin.bindings }}
{{- range .subjects }}
{{- if and (eq .kind "ServiceAccount") (not .namespace) }}
- {{ printf "admin.bindings: the ServiceAccount %s has no namespace: add it" .name | toJson }}
{{- else if and (ne .kind "ServiceAccount") .namespace }}
- {{ printf "admin.bindings: the %s %s has a namespace, which only a ServiceAccount has: leave it out" .kind .name | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The rules of the CustomResourceDefinition that a schema cannot say. Without them the API server would refuse a tier
when other objects have been changed already. */}}
{{- define "tierlimit.validate.tiers" -}}
{{- range $name, $spec := .Values.tiers }}
{{- if $spec }}
{{- $tier := printf "tiers.%s" $name }}
{{- if not (include "tierlimit.isTierName" $name) }}
- {{ printf "%s cannot be the name of a RateLimitTier: use up to 63 small letters, digits, \"-\" and \".\", with a letter or a digit at both ends and beside each \".\"" $tier | toJson }}
{{- end }}
{{- $minute := dig "requests" "perMinute" nil $spec }}
{{- $day := dig "requests" "perDay" nil $spec }}
{{- if and (kindIs "invalid" $minute) (kindIs "invalid" $day) }}
- {{ printf "%s has no budget: set requests.perMinute, requests.perDay or both; to take the tier out, set %s to null" $tier $tier | toJson }}
{{- else if not (or (kindIs "invalid" $minute) (kindIs "invalid" $day)) }}
{{- if lt (int64 $day) (int64 $minute) }}
- {{ printf "%s: requests.perDay (%d) is below requests.perMinute (%d), which could never be used up: raise perDay or lower perMinute" $tier (int64 $day) (int64 $minute) | toJson }}
{{- end }}
{{- end }}
{{- $killSwitch := $spec.killSwitch | default dict }}
{{- if and $killSwitch.engaged (not (regexMatch "\\S" ($killSwitch.reason | default ""))) }}
- {{ printf "%s.killSwitch.engaged needs killSwitch.reason: say why limiting is off" $tier | toJson }}
{{- end }}
{{- with $killSwitch.expiresAt }}
{{- if or (not (regexMatch "^[2-9][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9:]{8}([.][0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$" .)) (toDate "2006-01-02T15:04:05Z07:00" .).IsZero }}
- {{ printf "%s.killSwitch.expiresAt is no time: write it like 2030-01-31T06:00:00Z" $tier | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tierlimit.validate.redis" -}}
{{- $redis := .Values.redis }}
{{- $chosen := list }}
{{- if $redis.url }}{{ $chosen = append $chosen "redis.url" }}{{ end }}
{{- if $redis.existingSecret.name }}{{ $chosen = append $chosen "redis.existingSecret.name" }}{{ end }}
{{- if $redis.trial.enabled }}{{ $chosen = append $chosen "redis.trial.enabled" }}{{ end }}
{{- if not $chosen }}
- 'no Redis: set redis.existingSecret.name to a Secret with the URL of yours, or redis.url; for trying out redis.trial.enabled=true'
{{- else if gt (len $chosen) 1 }}
- '{{ join " and " $chosen }} are set: only one Redis can be used, leave one of them'
{{- end }}
{{- if and $redis.existingSecret.name (not $redis.existingSecret.key) }}
- 'redis.existingSecret.key is empty: name the key with the URL, usually url'
{{- end }}
{{- if and $redis.url (not (regexMatch "^(rediss?([+](sentinel|cluster))?|unix)://." $redis.url)) }}
- 'redis.url does not begin with redis://, rediss://, redis+sentinel://, rediss+sentinel://, redis+cluster:// or rediss+cluster:// (docs/redis.md)'
{{- end }}
{{- if and $redis.tls.existingSecret (or $redis.trial.enabled (and $redis.url (not (hasPrefix "rediss" $redis.url)))) }}
- 'redis.tls.existingSecret has no effect: only a redis.url that begins with rediss uses TLS'
{{- end }}
{{- if and $redis.url (not $redis.tls.existingSecret) (contains (printf "_file=%s/" $redis.tls.mountPath) $redis.url) }}
- 'redis.url names files in {{ $redis.tls.mountPath }}: set redis.tls.existingSecret to the Secret with them'
{{- end }}
{{- range list (list "redis.timeout" $redis.timeout 1 60000 "1ms to 1m") (list "denyMemory" .Values.denyMemory 0 60000 "0ms to 1m") (list "identity.authService.timeout" .Values.identity.authService.timeout 1 10000 "1ms to 10s") }}
{{- if not (kindIs "string" (index . 1)) }}
- '{{ index . 0 }} is {{ index . 1 }}, without a unit: write {{ index . 1 }}s for seconds or {{ index . 1 }}ms for milliseconds, from {{ index . 4 }}'
{{- continue }}
{{- end }}
{{- $milliseconds := include "tierlimit.milliseconds" (index . 1) | atoi }}
{{- if or (lt $milliseconds (index . 2)) (gt $milliseconds (index . 3)) }}
- '{{ index . 0 }} is {{ index . 1 | squote | replace "'" "''" }}: use a whole number and ms, s or m, from {{ index . 4 }}'
{{- end }}
{{- end }}
{{- end }}

{{- define "tierlimit.validate.scale" -}}
{{- if .Values.autoscaling.enabled }}
{{- if .Values.replicas }}
- 'replicas and autoscaling.enabled are set: the autoscaler chooses the number, so leave replicas out and set autoscaling.minReplicas'
{{- end }}
{{- if lt (int .Values.autoscaling.maxReplicas) (int .Values.autoscaling.minReplicas) }}
- 'autoscaling.maxReplicas is below autoscaling.minReplicas: raise it'
{{- end }}
{{- if not (dig "requests" "cpu" "" .Values.resources) }}
- 'autoscaling.enabled needs resources.requests.cpu: the target is a percentage of it'
{{- end }}
{{- end }}
{{- range .Values.errorBackends }}
{{- if has (int .port) (list 8080 8081 8443 8444 9001) }}
- 'errorBackends: port {{ .port }} is used by Tierlimit itself, take another'
{{- end }}
{{- if not (regexMatch "^[a-z0-9]+(-[a-z0-9]+)*$" .name) }}
- 'errorBackends: a name is part of the name of a Service: use up to 8 small letters and digits, with "-" only between them'
{{- end }}
{{- end }}
{{- end }}

{{- define "tierlimit.validate.identity" -}}
{{- range .Values.identity.sources }}
{{- if not (regexMatch "^(address|authorization|anonymous|jwt|(address|header|api-key|jwt):[!#$%&'*+.^_`|~0-9A-Za-z-]+|forwarded-for:([1-9]|1[0-6]))$" .) }}
- 'identity.sources: {{ . | quote | replace "'" "''" }} is no source: use address, address:HEADER, forwarded-for:N, header:NAME, authorization, api-key:NAME, jwt, jwt:NAME or anonymous'
{{- end }}
{{- end }}
{{- $usesJWT := include "tierlimit.usesJWT" . }}
{{- range $field := list "jwksURL" "issuer" "audience" "userClaim" }}
{{- if and $usesJWT (not (get $.Values.identity.jwt $field)) }}
- 'identity.sources has jwt: set identity.jwt.{{ $field }}'
{{- end }}
{{- end }}
{{- range $field := list "jwksURL" "issuer" "audience" "tenantClaim" "tierClaim" }}
{{- if and (not $usesJWT) (get $.Values.identity.jwt $field) }}
- 'identity.jwt.{{ $field }} has no effect: add jwt to identity.sources'
{{- end }}
{{- end }}
{{- range $name, $url := dict "identity.jwt.jwksURL" .Values.identity.jwt.jwksURL "identity.authService.url" .Values.identity.authService.url "tracing.endpoint" .Values.tracing.endpoint }}
{{- if and $url (not (regexMatch "^https?://[^/@]+(/.*)?$" $url)) }}
- '{{ $name }} is not a URL: use http://host[:port]/path or https://, without a user'
{{- end }}
{{- end }}
{{- range $field := list "tenantHeader" "tierHeader" }}
{{- if and (not $.Values.identity.authService.url) (get $.Values.identity.authService $field) }}
- 'identity.authService.{{ $field }} has no effect: set identity.authService.url'
{{- end }}
{{- end }}
{{- end }}

{{- define "tierlimit.validate.sources" -}}
{{- $seen := list }}
{{- range .Values.identity.sources }}
{{- $source := . | quote | replace "'" "''" }}
{{- if has (lower .) $seen }}
- 'identity.sources: {{ $source }} is listed twice: leave one'
{{- else if or (has "address" $seen) (has "anonymous" $seen) }}
- 'identity.sources: {{ $source }} is never reached: address and anonymous find a caller in every request, so put the one of them that you want last'
{{- end }}
{{- if regexMatch "(?i):(host|authorization)$" . }}
- 'identity.sources: {{ $source }}: Host says where a request goes, not who sends it; for Authorization use jwt or authorization'
{{- end }}
{{- $seen = append $seen (lower .) }}
{{- end }}
{{- with .Values.identity.hashKey.existingSecret }}
{{- if and .name (not .key) }}
- 'identity.hashKey.existingSecret.key is empty: name the key in the Secret, usually hash-key'
{{- end }}
{{- end }}
{{- end }}

{{- define "tierlimit.validate.network" -}}
{{- if and .Values.networkPolicy.enabled .Values.identity.authService.url (not .Values.networkPolicy.authService.ports) }}
- 'identity.authService.url: the NetworkPolicy would keep Tierlimit from it; list the ports of its Pods in networkPolicy.authService.ports, for oauth2-proxy [4180]'
{{- end }}
{{- end }}

{{- define "tierlimit.validate.names" -}}
{{- $fullname := include "tierlimit.fullname" . }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $fullname) }}
- '{{ $fullname | quote | replace "'" "''" }} cannot be the name of a Service: set fullnameOverride to a name that begins with a letter, of small letters, digits and "-"'
{{- end }}
{{- range $label := list "app.kubernetes.io/name" "app.kubernetes.io/instance" }}
{{- range $field := list "commonLabels" "podLabels" }}
{{- if hasKey (get $.Values $field) $label }}
- '{{ $field }}: {{ $label }} is what the Services select by, and is set by the chart: take another label'
{{- end }}
{{- end }}
{{- end }}
{{- $names := list }}
{{- $ports := list }}
{{- range .Values.errorBackends }}
{{- if has .name $names }}
- 'errorBackends: the name {{ .name | quote | replace "'" "''" }} is used twice, and each has a Service of its own: take another'
{{- end }}
{{- if has (int .port) $ports }}
- 'errorBackends: port {{ .port }} is used twice: take another'
{{- end }}
{{- $names = append $names .name }}
{{- $ports = append $ports (int .port) }}
{{- end }}
{{- $variables := list }}
{{- range include "tierlimit.env" . | fromYamlArray }}
{{- if has .name $variables }}
- 'extraEnv: {{ .name | quote | replace "'" "''" }} is there twice, or is set by the chart: take it out, and use the value for it'
{{- end }}
{{- $variables = append $variables .name }}
{{- end }}
{{- end }}
