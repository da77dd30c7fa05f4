{{- define "gateway.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "gateway.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "gateway.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "gateway.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "gateway.selector" -}}
app.kubernetes.io/name: {{ include "gateway.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gateway.labels" -}}
{{ include "gateway.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "gateway.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest | quote -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) | quote -}}
{{- end -}}
{{- end -}}

{{- define "gateway.secret" -}}
{{- default (include "gateway.fullname" .) .Values.secret.existingSecret -}}
{{- end -}}

{{- define "gateway.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "gateway.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* config.yaml: what the operator says, and what the chart has to say whatever that is. */}}
{{- define "gateway.config" -}}
{{- $said := deepCopy .Values.config -}}
{{- $server := dict "host" "0.0.0.0" "port" 8000 "shutdown_grace" .Values.shutdownGrace -}}
{{- $ours := dict "server" $server "storage" (dict "auto_migrate" false) -}}
{{- $defaults := dict "server" (dict "log_format" "json") -}}
{{- toYaml (mergeOverwrite $defaults $said $ours) -}}
{{- end -}}

{{/* Several processes need one PostgreSQL. A secret of the operator's cannot be looked into. */}}
{{- define "gateway.checked" -}}
{{- $named := or (hasKey .Values.secret.values "GATEWAY_STORAGE_URL") (hasKey .Values.secret.values "DATABASE_URL") -}}
{{- $said := dig "storage" "url" "" .Values.config -}}
{{- if not (or .Values.secret.existingSecret $named $said) -}}
{{- fail "secret.values.GATEWAY_STORAGE_URL is missing: replicas need one PostgreSQL (or name secret.existingSecret)" -}}
{{- end -}}
{{- range $name := list "host" "port" "shutdown_grace" -}}
{{- if hasKey (dig "server" dict $.Values.config) $name -}}
{{- fail (printf "config.server.%s is the chart's: host and port are fixed, shutdown_grace is the value shutdownGrace" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "gateway.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "gateway.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
