{{/* Short enough for the suffixes of other objects. */}}
{{- define "tierlimit.fullname" -}}
{{- $name := .Values.fullnameOverride }}
{{- if not $name }}
{{- $name = contains "tierlimit" .Release.Name | ternary .Release.Name (printf "%s-tierlimit" .Release.Name) }}
{{- end }}
{{- $name | trunc 40 | regexFind ".*[^-]" }}
{{- end }}

{{/* No value may change them: the selector of a Deployment is immutable, those of Services and NetworkPolicies are not. */}}
{{- define "tierlimit.selectorLabels" -}}
app.kubernetes.io/name: tierlimit
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "tierlimit.commonLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tierlimit.labels" -}}
{{ include "tierlimit.selectorLabels" . }}
{{ include "tierlimit.commonLabels" . }}
{{- end }}

{{- define "tierlimit.serviceAccountName" -}}
{{- default (include "tierlimit.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "tierlimit.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{/* The Redis for trying out is no replica of Tierlimit: it has a name of its own in its labels. */}}
{{- define "tierlimit.trialRedis.selectorLabels" -}}
app.kubernetes.io/name: tierlimit-trial-redis
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* "true" if callers may be identified by tokens. */}}
{{- define "tierlimit.usesJWT" -}}
{{- range .Values.identity.sources }}{{ if or (eq . "jwt") (hasPrefix "jwt:" .) }}true{{ break }}{{ end }}{{ end }}
{{- end }}

{{/* The milliseconds of a time such as 250ms, 1s or 1m; -1 if it is none. */}}
{{- define "tierlimit.milliseconds" -}}
{{- if not (regexMatch "^[0-9]{1,6}(ms|s|m)$" (toString .)) }}-1
{{- else if hasSuffix "ms" . }}{{ trimSuffix "ms" . | atoi }}
{{- else if hasSuffix "s" . }}{{ trimSuffix "s" . | atoi | mul 1000 }}
{{- else }}{{ trimSuffix "m" . | atoi | mul 60000 }}
{{- end }}
{{- end }}

{{/* What a Pod has while it stops: the preStop sleep (5 s), draining (1.25 s), the checks in flight (their deadlines
and 5 s). */}}
{{- define "tierlimit.terminationGracePeriodSeconds" -}}
{{- $deadlines := include "tierlimit.milliseconds" .Values.redis.timeout | atoi }}
{{- if .Values.identity.authService.url }}
{{- $deadlines = include "tierlimit.milliseconds" .Values.identity.authService.timeout | atoi | add $deadlines }}
{{- end }}
{{- max 30 (div $deadlines 1000 | add 13) }}
{{- end }}

{{- define "tierlimit.podSecurityContext" -}}
runAsNonRoot: {{ .runAsNonRoot }}
{{- range $field := list "runAsUser" "runAsGroup" "fsGroup" }}
{{- with get $ $field }}
{{ $field }}: {{ int64 . }}
{{- end }}
{{- end }}
seccompProfile:
  type: {{ .seccompProfile.type }}
  {{- with .seccompProfile.localhostProfile }}
  localhostProfile: {{ . | quote }}
  {{- end }}
{{- end }}
