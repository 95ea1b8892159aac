{{/* The flags, as a YAML list. What has the program's default is left out, so that the Pod shows what was chosen. */}}
{{- define "tierlimit.args" -}}
{{- $args := list (printf "--service=%s" (include "tierlimit.fullname" .)) (printf "--default-tier=%s" .Values.defaultTier) }}
{{- if .Values.grpc.enabled }}{{ $args = append $args "--ext-authz-bind-address=:9001" }}{{ end }}
{{- if not .Values.metrics.enabled }}{{ $args = append $args "--metrics-bind-address=0" }}{{ end }}
{{- if not .Values.admin.enabled }}{{ $args = append $args "--admin-bind-address=0" }}{{ end }}
{{- if .Values.profiling.enabled }}{{ $args = append $args "--pprof" }}{{ end }}
{{- $args = append $args (printf "--redis-timeout=%s" .Values.redis.timeout) }}
{{- $args = append $args (printf "--deny-memory=%s" .Values.denyMemory) }}
{{- $args = append $args (printf "--rate-limit-headers=%s" (join "," .Values.responseHeaders | default "none")) }}
{{- range .Values.errorBackends }}{{ $args = append $args (printf "--error-backend=:%d?%s" (int .port) .parameters) }}{{ end }}
{{- $args = append $args (printf "--identity=%s" (join "," .Values.identity.sources)) }}
{{- with .Values.identity.jwt }}
{{- if include "tierlimit.usesJWT" $ }}
{{- $args = concat $args (list (printf "--jwt-jwks-url=%s" .jwksURL) (printf "--jwt-issuer=%s" .issuer) (printf "--jwt-audience=%s" .audience) (printf "--jwt-user-claim=%s" .userClaim)) }}
{{- with .tenantClaim }}{{ $args = append $args (printf "--jwt-tenant-claim=%s" .) }}{{ end }}
{{- with .tierClaim }}{{ $args = append $args (printf "--jwt-tier-claim=%s" .) }}{{ end }}
{{- end }}
{{- end }}
{{- with .Values.identity.authService }}
{{- if .url }}
{{- $args = concat $args (list (printf "--auth-url=%s" .url) (printf "--auth-timeout=%s" .timeout)) }}
{{- with .userHeader }}{{ $args = append $args (printf "--auth-user-header=%s" .) }}{{ end }}
{{- with .tenantHeader }}{{ $args = append $args (printf "--auth-tenant-header=%s" .) }}{{ end }}
{{- with .tierHeader }}{{ $args = append $args (printf "--auth-tier-header=%s" .) }}{{ end }}
{{- end }}
{{- end }}
{{- $args = concat $args (list (printf "--log-level=%s" .Values.log.level) (printf "--log-format=%s" .Values.log.format)) }}
{{- concat $args .Values.extraArgs | toYaml }}
{{- end }}
