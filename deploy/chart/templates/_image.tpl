{{- /* longhorn.image is the one image of all pods. */ -}}
{{- define "longhorn.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end -}}
