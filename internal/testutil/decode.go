package testutil

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	kubescheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/longhorn-lep/longhorn-manager/k8s/client/clientset/versioned/scheme"
)

// Decode returns the typed object of a JSON text: an object of the core group, version v1, or an object of Longhorn.
func Decode(t *testing.T, text []byte) runtime.Object {
	t.Helper()
	decoder := scheme.Codecs.UniversalDeserializer()
	if strings.Contains(string(text), `"apiVersion":"v1"`) {
		decoder = kubescheme.Codecs.UniversalDeserializer()
	}
	o, _, err := decoder.Decode(text, nil, nil)
	require.NoError(t, err, string(text))
	return o
}
