{{- /* longhorn.image is the one image of all pods, by tag, by digest or by both. */ -}}
{{- define "longhorn.image" -}}
{{- if and .Values.image.digest (contains "@" .Values.image.tag) -}}
{{- fail "image.digest: image.tag has a digest too; give one of them" -}}
{{- end -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end -}}
