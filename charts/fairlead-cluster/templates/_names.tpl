{{- define "cluster.name" -}}
{{- $name := .Values.nameOverride | default .Release.Name -}}
{{- if or (gt (len $name) 32) (not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name)) -}}
{{- fail (printf "%q cannot be the name of a cluster: it has to begin with a letter and to have at most 32 lower case letters, digits and '-'. Set nameOverride, or choose another release name." $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- define "cluster.metadata" -}}
namespace: {{ .Release.Namespace }}
labels:
  app.kubernetes.io/instance: {{ include "cluster.name" . }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  app.kubernetes.io/name: fairlead
  app.kubernetes.io/part-of: fairlead
  fairlead.io/cluster: {{ include "cluster.name" . }}
  helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
  {{- with .Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if .Values.keep }}
annotations:
  helm.sh/resource-policy: keep
{{- end }}
{{- end -}}

{{/* Settings. Helm reads numbers as floats; large ones must not come out as 6.048e+08. */}}
{{- define "cluster.config" -}}
{{- range $key, $value := . }}
{{ $key | quote }}: {{ if kindIs "float64" $value }}{{ if eq $value (floor $value) }}{{ printf "%.0f" $value }}{{ else }}{{ $value }}{{ end }}{{ else }}{{ toJson $value }}{{ end }}
{{- end }}
{{- end -}}
