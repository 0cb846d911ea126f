package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"sigs.k8s.io/yaml"
)

// neutralFields are the fields of a Volume for features that are not offered. Each has values that request nothing, a
// value that requests something, and the rule. First come the fields that REST and StorageClasses have too, then
// kubectl's own.
func neutralFields() []neutralField {
	text, err := os.ReadFile("../../api/testdata/neutral.yaml")
	if err != nil {
		panic(err)
	}
	var fields []neutralField
	if err := yaml.Unmarshal(text, &fields); err != nil {
		panic(err)
	}
	return append(fields,
		neutralField{"backendStoreDriver", "", []any{"", "v1"}, "v2", "backendStoreDriver must be v1 or left out"},
		neutralField{"image", "", []any{""}, "longhornio/longhorn-engine", "image must be empty or left out: every volume is served by the image of the daemons"},
		neutralField{"migrationNodeID", "", []any{""}, "node-1", "migrationNodeID must be empty or left out: live migration is not offered"},
		neutralField{"offlineReplicaRebuilding", "", []any{"", "ignored", "disabled"}, "enabled", "offlineReplicaRebuilding must be ignored, disabled or left out: replicas are rebuilt when the volume is attached"},
	)
}

type neutralField struct {
	Field, Kubectl string
	Nothing        []any
	Asks           any
	Rule           string
}

// These cases are part of TestTheRulesOfTheDefinitions, too.
func init() {
	for _, f := range neutralFields() {
		name := cmp.Or(f.Kubectl, f.Field)
		rule := "Volume spec." + name + ": " + f.Rule
		with := func(value any) string {
			text, err := json.Marshal(value)
			if err != nil {
				panic(err)
			}
			return of("v", "size: '2097152', "+name+": "+string(text), "")
		}
		for _, value := range f.Nothing {
			crdCases = append(crdCases, crdCase{rule: rule, name: fmt.Sprintf("%v → accepted", value), object: with(value)})
		}
		crdCases = append(crdCases, crdCase{rule: rule, name: fmt.Sprintf("%v → refused", f.Asks), object: with(f.Asks), refused: true})
	}
}

// TestObjectsKeptInGitAreTakenAsTheyAre checks that the API server neither drops nor refuses a field of the objects
// that Longhorn's users keep in Git.
func TestObjectsKeptInGitAreTakenAsTheyAre(t *testing.T) {
	for file, kind := range map[string]string{"testdata/volume-in-git.yaml": "Volume", "testdata/node-in-git.yaml": "Node"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		d := definitions(t)[kind]
		given := object(t, string(text))
		kept := given.DeepCopy()
		pruning.Prune(kept.Object, d.defaults, true)
		assert.Equal(t, given.Object, kept.Object, "%s: fields that the definition does not have", file)
		assert.Empty(t, d.refusals(t, "", string(text)), file)
	}
}
