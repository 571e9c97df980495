{{- define "sublet.labels" -}}
app: sublet
release: {{ .Release.Name }}
{{- end }}
{{- define "sublet.cluster" -}}
sublet-{{ .Release.Name }}-{{ .Release.Namespace }}
{{- end }}
{{- define "sublet.image" -}}
{{- $own := dig "controlPlane" "statefulSet" "image" "" (fromJson (toJson .Values)) -}}
{{- required "image: the tenant image, made by sublet image save" (.Values.image | default $own) -}}
{{- end }}
{{- define "sublet.container" -}}
{{- $v := fromJson (toJson .Values) -}}
image: {{ include "sublet.image" . }}
imagePullPolicy: IfNotPresent
command: ["/sublet"]
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources:
  requests:
    cpu: {{ dig "controlPlane" "statefulSet" "resources" "requests" "cpu" "20m" $v | quote }}
    memory: {{ dig "controlPlane" "statefulSet" "resources" "requests" "memory" "64Mi" $v | quote }}
  limits:
    memory: {{ dig "controlPlane" "statefulSet" "resources" "limits" "memory" "1Gi" $v | quote }}
volumeMounts:
- {name: data, mountPath: /data}
- {name: config, mountPath: /etc/sublet, readOnly: true}
{{- end }}
