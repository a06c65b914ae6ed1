{{/* What the operator may do where it serves LogClusters. Alphabetical by group and resource. */}}
{{- define "fairlead.rules" -}}
- apiGroups: [""]
  resources: [configmaps, services]
  verbs: [create, delete, get, list, patch, watch]
# kopf reports here.
- apiGroups: [""]
  resources: [events]
  verbs: [create]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [""]
  resources: [pods]
  verbs: [create, delete, get, list, patch, watch]
# The clusters' session secrets, which the garbage collector deletes when their LogCluster goes; those
# with access rules and credentials, which the controller writes and deletes like its tables; those
# with certificates of an authority of the operator's own, and those that listeners name; those of
# Users, and the ones that Users name as the source of a password.
# Most are found by their labels; roles cannot say that only those are meant.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create, delete, get, list, patch, update, watch]
{{- if .Values.spark.driverAccounts }}
# Accounts of Spark drivers; they are not watched.
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [create, delete, get]
{{- end }}
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [create, delete, get, list, patch, watch]
# Certificates of listeners with an issuerRef, where cert-manager is installed.
- apiGroups: [cert-manager.io]
  resources: [certificates]
  verbs: [create, get, patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [fairlead.io]
  resources: [brokerpools, logclusters]
  verbs: [get, list, patch, watch]
# Asked for where ownerReferences that block a deletion are checked.
- apiGroups: [fairlead.io]
  resources: [brokerpools/finalizers, failoverdrills/finalizers, logclusters/finalizers, streamjobs/finalizers, topics/finalizers, users/finalizers]
  verbs: [update]
- apiGroups: [fairlead.io]
  resources: [brokerpools/status, consumergroups/status, failoverdrills/status, logclusters/status, streamjobs/status, topics/status, users/status]
  verbs: [patch]
- apiGroups: [fairlead.io]
  resources: [clusterstates]
  verbs: [create, delete, get, list, patch, update]
- apiGroups: [fairlead.io]
  resources: [consumergroups]
  verbs: [get, list, patch, watch]
- apiGroups: [fairlead.io]
  resources: [failoverdrills, streamjobs]
  verbs: [get, list, watch]
- apiGroups: [fairlead.io]
  resources: [partitiontables]
  verbs: [create, delete, get, list, update]
- apiGroups: [fairlead.io]
  resources: [topics]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [fairlead.io]
  resources: [users]
  verbs: [list, patch, watch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [create, delete, get, list, patch, watch]
{{- if .Values.spark.driverAccounts }}
- apiGroups: [rbac.authorization.k8s.io]
  resources: [{{ include "fairlead.driverRoleKind" . | lower }}s]
  resourceNames: [{{ include "fairlead.driverRole" . }}]
  verbs: [bind]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [rolebindings]
  verbs: [create, delete, get]
{{- end }}
{{- end -}}
