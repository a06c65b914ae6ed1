{{- define "cluster.name" -}}
{{- $name := .Values.nameOverride | default .Release.Name -}}
{{- if or (gt (len $name) 32) (not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name)) -}}
{{- fail (printf "%q cannot be the name of a cluster: it has to begin with a letter and to have at most 32 lower case letters, digits and '-'. Set nameOverride, or choose another release name." $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* For what stays when it leaves the release: cluster, pools, topics, users, records and exports. */}}
{{- define "cluster.metadata" -}}
{{ include "cluster.passing" . }}
{{- if .Values.keep }}
annotations:
  helm.sh/resource-policy: keep
{{- end }}
{{- end -}}

{{/* For what ends with its value. Each label once: those of values go before ours. */}}
{{- define "cluster.passing" -}}
{{- $common := .Values.commonLabels | default dict -}}
{{- if hasKey $common "fairlead.io/cluster" -}}
{{- fail "commonLabels: fairlead.io/cluster says whose it is: leave it out" -}}
{{- end -}}
{{- $own := dict
  "app.kubernetes.io/instance" (include "cluster.name" .)
  "app.kubernetes.io/managed-by" .Release.Service
  "app.kubernetes.io/name" "fairlead"
  "app.kubernetes.io/part-of" "fairlead"
  "fairlead.io/cluster" (include "cluster.name" .)
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version)
-}}
namespace: {{ .Release.Namespace | quote }}
labels: {{- merge (dict) $common $own | toYaml | nindent 2 }}
{{- end -}}

{{/* Settings. Helm reads numbers as floats; large ones must not come out as 6.048e+08. */}}
{{- define "cluster.config" -}}
{{- range $key, $value := . }}
{{ $key | quote }}: {{ if kindIs "float64" $value }}{{ if eq $value (floor $value) }}{{ printf "%.0f" $value }}{{ else }}{{ $value }}{{ end }}{{ else }}{{ toJson $value }}{{ end }}
{{- end }}
{{- end -}}

{{/* The LogCluster that is there already, with its namespace asked: {} for a new one, and for `helm template`. */}}
{{- define "cluster.present" -}}
{{- $found := dict -}}
{{- if .Capabilities.APIVersions.Has "fairlead.io/v1alpha1/LogCluster" -}}
{{- $found = lookup "fairlead.io/v1alpha1" "LogCluster" .Release.Namespace (include "cluster.name" .) -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{/* "true" where clients are asked who they are, else "". What is there is not changed by a default. */}}
{{- define "cluster.secure" -}}
{{- $secure := .Values.cluster.secure -}}
{{- if kindIs "invalid" $secure -}}
{{- $secure = true -}}
{{- with include "cluster.present" . | fromJson -}}
{{- $secure = false -}}
{{- range dig "spec" "listeners" list . -}}
{{- if and (eq .name "tls") (eq .type "Internal") .tls .authentication -}}{{- $secure = true -}}{{- end -}}
{{- end -}}
{{- if not $secure -}}
{{- fail (printf "LogCluster %s is there already, without the listener that this chart gives new clusters: one that encrypts and asks clients who they are. Set cluster.secure=false to keep it as it is, or cluster.secure=true to let clients inside Kubernetes in by that listener only, at port 9093: those that come to 9092 are cut off, and who has no rights may do nothing." .metadata.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $secure -}}true{{- end -}}
{{- end -}}

{{/* "true" where brokers speak TLS with each other and with the controller, else "". */}}
{{- define "cluster.peers" -}}
{{- $tls := (.Values.cluster.interBroker | default dict).tls -}}
{{- $given := not (kindIs "invalid" $tls) -}}
{{- $present := include "cluster.present" . | fromJson -}}
{{- if $present -}}
{{- $has := dig "spec" "interBroker" "tls" false $present -}}
{{- if and $given (ne $tls $has) -}}
{{- fail (printf "cluster.interBroker.tls: brokers of LogCluster %s were made with %t, and that is fixed while the cluster is there. Leave the value out, or set it to %t." $present.metadata.name $has $has) -}}
{{- end -}}
{{- $tls = $has -}}
{{- else if not $given -}}
{{- $tls = include "cluster.secure" . -}}
{{- end -}}
{{- if $tls -}}true{{- end -}}
{{- end -}}

{{/* How clients come in, as {"listeners": […]}. */}}
{{- define "cluster.listeners" -}}
{{- $listeners := .Values.cluster.listeners | default list -}}
{{- if include "cluster.secure" . -}}
{{- range $listeners -}}
{{- if not (hasKey . "tls") -}}
{{- fail (printf "listener %s of cluster.listeners does not say whether it encrypts: give it tls: {enabled: true} and an authentication, or tls: {enabled: false}; cluster.secure=false makes a cluster in clear." .name) -}}
{{- end -}}
{{- end -}}
{{- $listeners = prepend $listeners (dict "name" "tls" "type" "Internal" "port" 9093 "tls" (dict "enabled" true) "authentication" (dict "type" "scram-sha-512")) -}}
{{- end -}}
{{- dict "listeners" $listeners | toJson -}}
{{- end -}}
