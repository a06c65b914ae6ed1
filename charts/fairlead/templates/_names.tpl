{{/* The StatefulSet, its Service, its pods: brokers are told this name. */}}
{{- define "fairlead.name" -}}
{{- .Values.nameOverride | default "fairlead-operator" -}}
{{- end -}}

{{/* Names of cluster-wide objects: two releases in two namespaces must not meet. */}}
{{- define "fairlead.clusterWideName" -}}
{{- $name := include "fairlead.name" . -}}
{{- if eq .Release.Namespace "fairlead" -}}{{ $name }}{{- else -}}{{ printf "%s-%s" $name .Release.Namespace | trunc 63 | trimSuffix "-" }}{{- end -}}
{{- end -}}

{{- define "fairlead.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "fairlead.name" .) -}}
{{- end -}}

{{- define "fairlead.priorityClassName" -}}
{{- if .Values.priorityClass.create -}}{{ include "fairlead.clusterWideName" . }}{{- else -}}{{ .Values.priorityClass.name }}{{- end -}}
{{- end -}}

{{- define "fairlead.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "fairlead.selectorLabels" -}}
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/name: fairlead
{{- end -}}

{{- define "fairlead.labels" -}}
{{ include "fairlead.selectorLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: fairlead
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The objects of a generated file, with this chart's labels. Takes a list: the root, the path. */}}
{{- define "fairlead.generated" -}}
{{- $root := first . -}}
{{- range splitList "\n---\n" ($root.Files.Get (last .)) }}
{{- $object := fromYaml . }}
---
apiVersion: {{ $object.apiVersion }}
kind: {{ $object.kind }}
metadata:
  name: {{ $object.metadata.name }}
  labels:
    {{- include "fairlead.labels" $root | nindent 4 }}
    {{- with $object.metadata.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $object.metadata.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{ omit $object "apiVersion" "kind" "metadata" | toYaml }}
{{- end }}
{{- end -}}
