package inspect

import (
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// removed stands where something was that a bundle must not have.
const removed = "[removed]"

// tokens are the forms of credentials that a log or a message may quote: a JSON Web Token, such as a service account's; what
// follows the word Bearer, or Authorization: Basic; a password in a URL; a PEM block of a private key.
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

// scrubText takes credentials out of a text.
func scrubText(text []byte) []byte {
	for _, t := range tokens {
		text = t.form.ReplaceAll(text, []byte(t.by))
	}
	return text
}

// bulky are annotations and fields that repeat the object, and may have in them what was taken out of it.
var bulky = [][]string{
	{"metadata", "managedFields"},
	{"metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"},
}

// scrubObject takes out of an object what repeats it, and the values of environment variables in pods and pod templates: people put
// passwords there, and the names are enough to see what was set.
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
