{{/* The StatefulSet, its Service, its pods, its Lease: brokers are told this name. */}}
{{- define "fairlead.name" -}}
{{- .Values.nameOverride | default "fairlead-operator" -}}
{{- end -}}

{{/* Names of cluster-wide objects: two releases in two namespaces must not meet. They may have 253 characters. */}}
{{- define "fairlead.clusterWideName" -}}
{{- $name := include "fairlead.name" . -}}
{{- if eq .Release.Namespace "fairlead" -}}{{ $name }}{{- else -}}{{ printf "%s-%s" $name .Release.Namespace }}{{- end -}}
{{- end -}}

{{- define "fairlead.serviceAccountName" -}}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.create: false makes none: say in serviceAccount.name which account of this namespace the operator's pods have" -}}
{{- end -}}
{{- .Values.serviceAccount.name | default (include "fairlead.name" .) -}}
{{- end -}}

{{/* The namespaces that are served, with commas between them; empty for all. */}}
{{- define "fairlead.watched" -}}
{{- if and .Values.watchNamespace .Values.watchNamespaces -}}
{{- fail "watchNamespace and watchNamespaces: set one of them; a list of one does the same" -}}
{{- end -}}
{{- .Values.watchNamespaces | default (compact (list .Values.watchNamespace)) | sortAlpha | join "," -}}
{{- end -}}

{{/* What drivers of StreamJobs may do: Roles where namespaces are named, else a ClusterRole. */}}
{{- define "fairlead.driverRoleKind" -}}
{{- ternary "Role" "ClusterRole" (ne (include "fairlead.watched" .) "") -}}
{{- end -}}
{{- define "fairlead.driverRole" -}}
{{- ternary (include "fairlead.name" .) (include "fairlead.clusterWideName" .) (ne (include "fairlead.watched" .) "") }}-spark-driver
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
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/name: fairlead
{{- end -}}

{{- define "fairlead.labels" -}}
{{- include "fairlead.labelsWith" (list . "" dict) -}}
{{- end -}}

{{/* Labels, each key once: those of values go before ours, but for what the pods are found by.
Takes a list: the root, the name of a value with more labels, these. */}}
{{- define "fairlead.labelsWith" -}}
{{- $root := index . 0 -}}
{{- $common := $root.Values.commonLabels | default dict -}}
{{- $more := index . 2 | default dict -}}
{{- $fixed := include "fairlead.selectorLabels" $root | fromYaml -}}
{{- range $value, $labels := dict "commonLabels" $common (index . 1) $more -}}
{{- range $key, $_ := $labels -}}
{{- if hasKey $fixed $key -}}
{{- fail (printf "%s: the operator's pods are found by the label %s: leave it out" $value $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $own := dict
  "app.kubernetes.io/managed-by" $root.Release.Service
  "app.kubernetes.io/part-of" "fairlead"
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version)
-}}
{{- merge (dict) $more $common $own $fixed | toYaml -}}
{{- end -}}

{{/* What the containers of the operator's pod share. Takes a list: the root, the container's name. */}}
{{- define "fairlead.container" -}}
{{- $root := first . -}}
{{- $name := last . -}}
image: {{ include "fairlead.image" $root | quote }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
command: [python, -m, fairlead_pod.{{ $name }}]
env:
  - name: POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  - name: POD_NAMESPACE
    valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
  - name: POD_IP
    valueFrom: {fieldRef: {fieldPath: status.podIP}}
  - name: NODE_NAME
    valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
  - name: FAIRLEAD_LEASE
    value: {{ include "fairlead.name" $root | quote }}
  - name: FAIRLEAD_WATCH_NAMESPACE
    value: {{ include "fairlead.watched" $root | quote }}
  - name: FAIRLEAD_CONTROLLER_DRILLS
    value: {{ $root.Values.drills.controller | quote }}
  - name: FAIRLEAD_OPERATOR_LOG_LEVEL
    value: {{ $root.Values.logLevel }}
  {{- if eq $name "operator" }}
  - name: FAIRLEAD_BROKER_IMAGE
    value: {{ include "fairlead.image" $root | quote }}
  {{- with $root.Values.spark.image }}
  - name: FAIRLEAD_SPARK_IMAGE
    value: {{ . | quote }}
  {{- end }}
  {{- if $root.Values.spark.driverAccounts }}
  - name: FAIRLEAD_SPARK_DRIVER_ROLE
    value: {{ include "fairlead.driverRoleKind" $root }}/{{ include "fairlead.driverRole" $root }}
  {{- end }}
  {{- if $root.Values.refusePlaintext }}
  - name: FAIRLEAD_REFUSE_PLAINTEXT
    value: "true"
  {{- end }}
  - name: FAIRLEAD_OPERATOR_SERVICE
    value: {{ include "fairlead.name" $root | quote }}
  - name: FAIRLEAD_OPERATOR_REPLICAS
    value: {{ $root.Values.replicas | quote }}
  {{- end }}
  {{- with $root.Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
resources: {{- toYaml (index $root.Values.resources $name) | nindent 2 }}
terminationMessagePolicy: FallbackToLogsOnError
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
  readOnlyRootFilesystem: true
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
  name: {{ $object.metadata.name | quote }}
  labels: {{- include "fairlead.labelsWith" (list $root $object.kind $object.metadata.labels) | nindent 4 }}
  {{- with $object.metadata.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{ omit $object "apiVersion" "kind" "metadata" | toYaml }}
{{- end }}
{{- end -}}
