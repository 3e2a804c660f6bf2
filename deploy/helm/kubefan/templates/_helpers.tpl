{{- define "kubefan.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if contains "kubefan" .Release.Name -}}
{{ .Release.Name }}
{{- else -}}
{{ printf "%s-kubefan" .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "kubefan.selectorLabels" -}}
app.kubernetes.io/name: kubefan
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kubefan.labels" -}}
{{ include "kubefan.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* The metadata of an object; the argument is a list of the context and the name's suffix. */ -}}
{{- define "kubefan.metadata" -}}
{{- $context := index . 0 -}}
name: {{ include "kubefan.fullname" $context }}{{ index . 1 }}
namespace: {{ $context.Release.Namespace }}
labels:
  {{- include "kubefan.labels" $context | nindent 2 }}
{{- end }}

{{- define "kubefan.clusterMetadata" -}}
{{- $context := index . 0 -}}
name: {{ include "kubefan.fullname" $context }}{{ index . 1 }}
labels:
  {{- include "kubefan.labels" $context | nindent 2 }}
{{- end }}

{{- define "kubefan.serviceAccountName" -}}
{{ .Values.serviceAccount.name | default (include "kubefan.fullname" .) }}
{{- end }}

{{- define "kubefan.tlsSecretName" -}}
{{ .Values.tls.secretName | default (printf "%s-tls" (include "kubefan.fullname" .)) }}
{{- end }}

{{- define "kubefan.host" -}}
{{ include "kubefan.fullname" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{- /* Where clients connect: by the Service's address if it is fixed, because then DNS is not needed. */ -}}
{{- define "kubefan.url" -}}
{{- $address := .Values.service.clusterIP -}}
{{- $host := ternary (printf "[%s]" $address) $address (contains ":" $address) | default (include "kubefan.host" .) -}}
https://{{ $host }}:{{ .Values.service.port }}
{{- end }}

{{- /* kubefan's configuration, with what the chart adds to the value config. */ -}}
{{- define "kubefan.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- if ne .Values.kind "Sidecar" -}}
{{- if dig "listen" "tls" "selfSigned" false $config -}}
{{- fail "config.listen.tls.selfSigned: the value tls says which certificate is served" -}}
{{- end -}}
{{- $tls := dict "certFile" "/etc/kubefan/tls/tls.crt" "keyFile" "/etc/kubefan/tls/tls.key" -}}
{{- $authentication := dict "mode" "caller" "clientCertificates" false -}}
{{- $added := dict "listen" (dict "address" "[::]:8443" "tls" $tls) "authentication" $authentication "shutdown" (dict "delay" "5s") -}}
{{- $config = mergeOverwrite $added $config -}}
{{- else if not (dig "admin" "insecureExposeToNetwork" false $config) -}}
{{- $config = mergeOverwrite (dict "admin" (dict "tls" (dict "selfSigned" (empty (dig "admin" "tls" "certFile" "" $config))))) $config -}}
{{- end -}}
{{- $address := dig "admin" "address" "127.0.0.1:8002" $config -}}
{{- if regexMatch "^(localhost|127\\.|\\[::1\\])" $address -}}
{{- fail (printf "config.admin.address: probes do not reach %s; use an address of the pod, such as [::]:8002" $address) -}}
{{- end -}}
{{ toYaml $config }}
{{- end }}

{{- /* How callers are authenticated: none, caller or delegated. */ -}}
{{- define "kubefan.mode" -}}
{{- $config := include "kubefan.config" . | fromYaml -}}
{{- $tls := dig "listen" "tls" dict $config -}}
{{- $default := ternary "caller" "none" (or (not (empty $tls.certFile)) (eq $tls.selfSigned true)) -}}
{{ dig "authentication" "mode" "" $config | default $default }}
{{- end }}

{{- /* ClientIP if the configuration has the freshness session, for all resources or for one. */ -}}
{{- define "kubefan.sessionAffinity" -}}
{{- $cache := dig "cache" dict .Values.config -}}
{{- $policies := get $cache "freshness" | default list -}}
{{- range get $cache "resources" | default list -}}
{{- if kindIs "map" . -}}
{{- $policies = append $policies (get . "freshness" | default "") -}}
{{- end -}}
{{- end -}}
{{- range $policies -}}
{{- if regexMatch "(^|=)session$" . }}ClientIP{{ break }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /* A duration of the configuration, such as 1m 30s, in seconds. */ -}}
{{- define "kubefan.seconds" -}}
{{- $units := dict "ms" 0.001 "s" 1 "sec" 1 "m" 60 "min" 60 "h" 3600 "d" 86400 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+ ?[A-Za-z]+" . -1 -}}
{{- $unit := get $units (regexFind "[A-Za-z]+$" .) | default 0 | float64 -}}
{{- $sum = addf $sum (mulf (regexFind "^[0-9.]+" . | float64) $unit) -}}
{{- end -}}
{{ $sum }}
{{- end }}

{{- /* Fails if the kubelet would end kubefan before it has ended all watches. */ -}}
{{- define "kubefan.checkGracePeriod" -}}
{{- $config := include "kubefan.config" . | fromYaml -}}
{{- $delay := include "kubefan.seconds" (dig "shutdown" "delay" "0s" $config) | float64 -}}
{{- $grace := include "kubefan.seconds" (dig "shutdown" "gracePeriod" "10s" $config) | float64 -}}
{{- $needed := addf $delay $grace -}}
{{- if le (float64 .Values.terminationGracePeriodSeconds) $needed -}}
{{- fail (printf "terminationGracePeriodSeconds: %v must be longer than config.shutdown.delay and config.shutdown.gracePeriod together, which are %v s" .Values.terminationGracePeriodSeconds $needed) -}}
{{- end -}}
{{- end }}

{{- define "kubefan.adminPort" -}}
{{ regexFind "[0-9]+$" (dig "admin" "address" "127.0.0.1:8002" .Values.config) }}
{{- end }}

{{- /* HTTPS, unless the configuration exposes the admin listener without TLS. */ -}}
{{- define "kubefan.adminScheme" -}}
{{- $admin := (include "kubefan.config" . | fromYaml).admin | default dict -}}
{{- $tls := $admin.tls | default dict -}}
{{- $isPlain := and $admin.insecureExposeToNetwork (empty $tls.certFile) (not $tls.selfSigned) -}}
{{ ternary "HTTP" "HTTPS" ($isPlain | default false) }}
{{- end }}

{{- /* A probe; the argument is a list of the context, the path and the timing. */ -}}
{{- define "kubefan.probe" -}}
httpGet:
  path: {{ index . 1 }}
  port: admin
  scheme: {{ include "kubefan.adminScheme" (index . 0) }}
{{ toYaml (index . 2) }}
{{- end }}

{{- /* The container; other charts add it to their pods, with the volumes below. */ -}}
{{- define "kubefan.container" -}}
{{- $config := include "kubefan.config" . | fromYaml -}}
{{- $isSidecar := eq .Values.kind "Sidecar" -}}
name: kubefan
image: {{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- if $isSidecar }}
restartPolicy: Always
{{- end }}
args:
  - serve
  - --config
  - /etc/kubefan/config/kubefan.yaml
  {{- with .Values.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  - name: NODE_NAME
    valueFrom:
      fieldRef:
        fieldPath: spec.nodeName
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  {{- if not $isSidecar }}
  - name: https
    containerPort: {{ regexFind "[0-9]+$" $config.listen.address }}
  {{- end }}
  - name: admin
    containerPort: {{ include "kubefan.adminPort" . }}
startupProbe:
  {{- include "kubefan.probe" (list . "/readyz" .Values.probes.startup) | nindent 2 }}
livenessProbe:
  {{- include "kubefan.probe" (list . "/livez" .Values.probes.liveness) | nindent 2 }}
readinessProbe:
  {{- include "kubefan.probe" (list . "/readyz" .Values.probes.readiness) | nindent 2 }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  runAsUser: 65532
  runAsGroup: 65532
  runAsNonRoot: true
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
  seccompProfile:
    type: RuntimeDefault
volumeMounts:
  - name: kubefan-config
    {{- if $isSidecar }}
    mountPath: /etc/kubefan/config
    {{- else }}
    # Only new pods get a changed configuration: a running kubefan would apply it at once, so that all
    # pods could become unready together.
    mountPath: /etc/kubefan/config/kubefan.yaml
    subPath: kubefan.yaml
    {{- end }}
    readOnly: true
  {{- if $isSidecar }}
  - name: kubefan-credentials
    mountPath: /var/run/secrets/kubernetes.io/serviceaccount
    readOnly: true
  {{- else }}
  - name: tls
    mountPath: /etc/kubefan/tls
    readOnly: true
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- /* The volumes of the container; for a sidecar also that of the client's kubeconfig. */ -}}
{{- define "kubefan.volumes" -}}
- name: kubefan-config
  configMap:
    name: {{ include "kubefan.fullname" . }}
{{- if eq .Values.kind "Sidecar" }}
- name: kubefan-client
  configMap:
    name: {{ include "kubefan.fullname" . }}-client
- name: kubefan-credentials
  projected:
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3607
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
      - downwardAPI:
          items:
            - path: namespace
              fieldRef:
                fieldPath: metadata.namespace
{{- else }}
- name: tls
  secret:
    secretName: {{ include "kubefan.tlsSecretName" . }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Rules to list and watch resources, a list of RESOURCE or RESOURCE.GROUP. */ -}}
{{- define "kubefan.readRules" -}}
{{- $groups := dict -}}
{{- $core := list "componentstatuses" "configmaps" "endpoints" "events" "limitranges" "namespaces" "nodes" "persistentvolumeclaims" "persistentvolumes" "pods" "podtemplates" "replicationcontrollers" "resourcequotas" "secrets" "serviceaccounts" "services" -}}
{{- range . -}}
{{- $parts := splitn "." 2 . -}}
{{- $group := $parts._1 | default "" -}}
{{- if or (regexMatch "^v[0-9]+((alpha|beta)[0-9]+)?(\\.|$)" $group) (not (or $group (has . $core))) -}}
{{- fail (printf "%s: name a resource by its plural and its group, such as pods or deployments.apps" .) -}}
{{- end -}}
{{- $_ := set $groups $group (append (get $groups $group | default list) $parts._0) -}}
{{- end -}}
{{- range $group, $resources := $groups -}}
{{ "\n" -}}
- apiGroups: [{{ $group | quote }}]
  resources: {{ $resources | uniq | sortAlpha | toJson }}
  verbs: [list, watch]
{{- end -}}
{{- end }}
