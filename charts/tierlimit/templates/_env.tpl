{{/* The environment, as a YAML list. */}}
{{- define "tierlimit.env" -}}
- name: POD_NAMESPACE # of the Service
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: POD_NAME # which of the Service's endpoints a replica is itself
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: REDIS_URL
{{- if .Values.redis.trial.enabled }}
  value: redis://{{ include "tierlimit.fullname" . }}-trial-redis:6379
{{- else }}
  valueFrom:
    secretKeyRef:
      {{- if .Values.redis.url }}
      name: {{ include "tierlimit.fullname" . }}-redis
      key: url
      {{- else }}
      name: {{ .Values.redis.existingSecret.name | quote }}
      key: {{ .Values.redis.existingSecret.key | quote }}
      {{- end }}
{{- end }}
- name: RATE_LIMIT_DISABLED # the global kill switch
  value: {{ .Values.killSwitch.engaged | quote }}
{{- with .Values.identity.hashKey.existingSecret }}
{{- if .name }}
- name: IDENTITY_HASH_KEY
  valueFrom:
    secretKeyRef:
      name: {{ .name | quote }}
      key: {{ .key | quote }}
{{- end }}
{{- end }}
{{- if .Values.tracing.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ .Values.tracing.endpoint | quote }}
- name: OTEL_EXPORTER_OTLP_PROTOCOL
  value: {{ .Values.tracing.protocol }}
- name: OTEL_TRACES_SAMPLER
  value: parentbased_traceidratio
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ .Values.tracing.sampleRatio | toString | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}
