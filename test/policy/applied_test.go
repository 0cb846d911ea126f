package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// TestASecondApplyChangesNothing checks that the API server stores every value of a manifest. If it dropped a value,
// such as an empty list, every server-side apply would see a difference and change the object again.
func TestASecondApplyChangesNothing(t *testing.T) {
	known := runtime.NewScheme()
	require.NoError(t, scheme.AddToScheme(known))
	require.NoError(t, apiextensionsv1.AddToScheme(known))
	for _, file := range []string{"../../deploy/longhorn.yaml", "../../deploy/uninstall.yaml"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			given := object(t, doc)
			if given.GetKind() == "" {
				continue // a comment
			}
			assert.Empty(t, lost("", given.Object, stored(t, known, given)), "%s: %s %s", file, given.GetKind(), given.GetName())
		}
	}
}

func TestWhatAnAPIServerDoesNotKeepIsFound(t *testing.T) {
	known := runtime.NewScheme()
	require.NoError(t, scheme.AddToScheme(known))
	for spec, want := range map[string][]string{
		"podSelector: {}, policyTypes: [Ingress]":                                                nil,
		"podSelector: {}, policyTypes: [Ingress], ingress: []":                                   {".spec.ingress: [] is not kept"},
		"podSelector: {}, ingress: [{from: []}]":                                                 {".spec.ingress.0.from: [] is not kept"},
		"podSelector: {matchLabels: {}}":                                                         {".spec.podSelector.matchLabels: map[] is not kept"},
		"podSelector: {}, egress: [{ports: [{protocol: TCP, port: 53, endPort: 54}]}]":           nil,
		"podSelector: {matchExpressions: [{key: a, operator: In, values: [b]}]}, ingress: [{}]":  nil,
		"podSelector: {matchExpressions: [{key: a, operator: Exists, values: []}]}, ingress: []": {".spec.ingress: [] is not kept", ".spec.podSelector.matchExpressions.0.values: [] is not kept"},
	} {
		given := object(t, "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: policy}, spec: {"+spec+"}}")
		assert.Equal(t, want, lost("", given.Object, stored(t, known, given)), spec)
	}
}

// stored returns an object as it comes back from the API server's store.
func stored(t *testing.T, known *runtime.Scheme, given *unstructured.Unstructured) map[string]any {
	t.Helper()
	typed, err := known.New(given.GroupVersionKind())
	require.NoError(t, err)
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(given.Object, typed, true), "%s %s", given.GetKind(), given.GetName())
	store := protobuf.NewSerializer(known, known)
	var kept strings.Builder
	require.NoError(t, store.Encode(typed, &kept))
	back, _, err := store.Decode([]byte(kept.String()), nil, nil)
	require.NoError(t, err)
	text, err := json.Marshal(back)
	require.NoError(t, err)
	return object(t, string(text)).Object
}

// lost lists the values of given that are missing or different in kept.
func lost(path string, given, kept any) []string {
	switch g := given.(type) {
	case map[string]any:
		k, ok := kept.(map[string]any)
		if !ok {
			break
		}
		var all []string
		for _, name := range slices.Sorted(maps.Keys(g)) {
			below, there := k[name]
			if !there {
				all = append(all, fmt.Sprintf("%s.%s: %v is not kept", path, name, g[name]))
				continue
			}
			all = append(all, lost(path+"."+name, g[name], below)...)
		}
		return all
	case []any:
		k, ok := kept.([]any)
		if !ok || len(k) != len(g) {
			break
		}
		var all []string
		for i := range g {
			all = append(all, lost(fmt.Sprintf("%s.%d", path, i), g[i], k[i])...)
		}
		return all
	}
	if reflect.DeepEqual(given, kept) {
		return nil
	}
	return []string{fmt.Sprintf("%s: %v is kept as %v", path, given, kept)}
}
