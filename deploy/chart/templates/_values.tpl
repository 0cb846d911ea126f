{{- /* longhorn.text is a value as text. A number of a values file is a float: without this, a million and more would be in exponents. */ -}}
{{- define "longhorn.text" -}}
{{- if kindIs "invalid" . -}}
{{- else if and (kindIs "float64" .) (eq . (floor .)) -}}
{{ printf "%.0f" . }}
{{- else -}}
{{ toString . }}
{{- end -}}
{{- end -}}

{{- /* longhorn.settings are the lines of a map of settings. The camel case names of Longhorn's chart are those of settings, too. */ -}}
{{- define "longhorn.settings" -}}
{{- $settings := dict -}}
{{- range $given, $value := . -}}
{{- $name := regexReplaceAll "([a-z0-9])([A-Z])" $given "${1}-${2}" | lower -}}
{{- if hasKey $settings $name -}}
{{- fail (printf "defaultSettings.%s: setting %s is given twice, by its own name and by that of Longhorn's chart" $given $name) -}}
{{- end -}}
{{- $_ := set $settings $name (include "longhorn.text" $value) -}}
{{- end -}}
{{- range $name, $value := $settings -}}
{{ printf "%s: %s\n" $name (quote $value) }}
{{- end -}}
{{- end -}}
