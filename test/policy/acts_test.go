package policy

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"sigs.k8s.io/yaml"
)

// act contains kubectl's part of a row of api/testdata/acts.yaml. The file explains the fields.
type act struct {
	Act, Judge, Policy, Kubectl, Rest, Why string
	Old, Object                            json.RawMessage
	Params                                 []json.RawMessage
}

// resourceOf returns the resource of an object, as a request names it.
func resourceOf(t *testing.T, text string) schema.GroupVersionResource {
	t.Helper()
	all := map[string]string{
		"Volume": "volumes", "Replica": "replicas", "Engine": "engines", "InstanceManager": "instancemanagers",
		"VolumeAttachment": "volumeattachments", "Setting": "settings", "Node": "nodes",
	}
	kind := object(t, text).GetKind()
	require.Contains(t, all, kind)
	return ours(all[kind])
}

// policiesWithoutARow are the policies for requests that REST has no act for, each with the reason.
var policiesWithoutARow = map[string]string{
	"longhorn-no-adoption":       "objects of another installation: REST changes none",
	"longhorn-keep-installation": "definitions and policies: REST cannot reach them",
	"longhorn-node-scope":        "what the account of a node may write",
	"longhorn-leader-scope":      "what the account of the leader may write",
}

// TestEveryPolicyHasARow makes sure that a developer who adds a policy also defines how REST answers the same act.
func TestEveryPolicyHasARow(t *testing.T) {
	has := map[string]bool{}
	for _, a := range readActs(t) {
		has[a.Policy] = true
	}
	for name := range policies(t) {
		_, isExempt := policiesWithoutARow[name]
		assert.True(t, has[name] != isExempt, "%s: a row of api/testdata/acts.yaml, or a reason why it needs none", name)
	}
}

func readActs(t *testing.T) []act {
	t.Helper()
	text, err := os.ReadFile("../../api/testdata/acts.yaml")
	require.NoError(t, err)
	var acts []act
	require.NoError(t, yaml.Unmarshal(text, &acts))
	require.NotEmpty(t, acts)
	return acts
}

// TestKubectlIsAnsweredAsTheTableOfActsSays tests kubectl's side of the table. The tests of package api test the side
// of REST. If the table says that the API server judges REST too, the account of REST must get the same answer.
func TestKubectlIsAnsweredAsTheTableOfActsSays(t *testing.T) {
	all, kinds := policies(t), definitions(t)
	for _, a := range readActs(t) {
		t.Run(a.Act, func(t *testing.T) {
			old, after := string(a.Old), string(a.Object)
			if a.Policy == "" {
				var got string
				for _, e := range kinds[object(t, after).GetKind()].refusals(t, old, after) {
					got += e.Error() + "\n"
				}
				assert.Equal(t, a.Kubectl == "", got == "", got)
				assert.Contains(t, got, a.Kubectl)
				return
			}
			require.Contains(t, all, a.Policy)
			by := func(user string) string {
				r := request{operation: admission.Update, old: old, object: after, user: user, groups: []string{"system:authenticated"}}
				if after == "" {
					r.operation = admission.Delete
				}
				r.resource = resourceOf(t, old)
				for _, p := range a.Params {
					r.params = append(r.params, string(p))
				}
				return refusal(t, all[a.Policy], r)
			}
			assert.Equal(t, a.Kubectl, by("admin"))
			if a.Judge == "api-server" {
				assert.Equal(t, a.Kubectl, by("system:serviceaccount:longhorn-system:longhorn-manager-leader"), "by the account of REST")
			}
		})
	}
}
