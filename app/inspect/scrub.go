package inspect

import (
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// removed replaces text that a bundle must not contain.
const removed = "[removed]"

// tokens are the forms of credentials that a log or a message may quote: a JSON Web Token, such as a service
// account's; the text after the word Bearer, or Authorization: Basic; a password in a URL; a PEM block of a private
// key.
var tokens = []struct {
	form *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*`), removed},
	{regexp.MustCompile(`(?i)\b(bearer|authorization:[ \t]*basic)[ \t]+[A-Za-z0-9._~+/=-]{8,}`), "$1 " + removed},
	{regexp.MustCompile(`://([^/\s:@]+):[^/\s@]+@`), "://$1:" + removed + "@"},
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----`), removed},
	{regexp.MustCompile(`(?i)\b((?:[a-z0-9_-]*(?:password|passwd|secret|token|api_?key|access_?key))["']?[ \t]*[:=][ \t]*["']?)[^\s"',}\[]{8,}`), "${1}" + removed},
}

// scrubText removes credentials from a text.
func scrubText(text []byte) []byte {
	for _, t := range tokens {
		text = t.form.ReplaceAll(text, []byte(t.by))
	}
	return text
}

// bulky are annotations and fields that repeat the object. They may contain values that were removed from it.
var bulky = [][]string{
	{"metadata", "managedFields"},
	{"metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"},
}

// scrubObject removes repetitions from an object, and the values of environment variables from pods and pod
// templates. Users put passwords there. The names suffice to see which variables are set.
func scrubObject(o *unstructured.Unstructured) {
	for _, path := range bulky {
		unstructured.RemoveNestedField(o.Object, path...)
	}
	scrubEnv(o.Object)
}

func scrubEnv(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if list, ok := inner.([]any); ok && key == "env" {
				for _, entry := range list {
					if variable, ok := entry.(map[string]any); ok && variable["value"] != nil {
						variable["value"] = removed
					}
				}
				continue
			}
			scrubEnv(inner)
		}
	case []any:
		for _, inner := range v {
			scrubEnv(inner)
		}
	}
}
