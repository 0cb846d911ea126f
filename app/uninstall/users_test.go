package uninstall

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
)

// claimed binds the PersistentVolume of volume v to claim shop/data.
func (c *cluster) claimed(phase string) {
	c.t.Helper()
	pv := c.get(persistentVolumes, "pv").Object
	require.NoError(c.t, unstructured.SetNestedStringMap(pv, map[string]string{"namespace": "shop", "name": "data"}, "spec", "claimRef"))
	require.NoError(c.t, unstructured.SetNestedField(pv, phase, "status", "phase"))
}

// addUser adds a pod with a claim.
func (c *cluster) addUser(name, namespace, claim, phase string) {
	volume := map[string]any{"name": "x", "persistentVolumeClaim": map[string]any{"claimName": claim}}
	c.add(pods, name, map[string]any{
		"spec":   map[string]any{"nodeName": "a", "volumes": []any{map[string]any{"name": "empty", "emptyDir": map[string]any{}}, volume}},
		"status": map[string]any{"phase": phase},
	}).SetNamespace(namespace)
}

// TestNothingIsRemovedWhileAPodUsesAVolume: the installation stays complete until the pod is gone.
func TestNothingIsRemovedWhileAPodUsesAVolume(t *testing.T) {
	c := newCluster(t)
	c.install(true, "a", "b")
	c.confirm()
	c.claimed("Bound")
	c.addUser("db-0", "shop", "data", "Running")
	c.addUser("done", "shop", "data", "Succeeded")
	c.addUser("web", "shop", "other", "Running")
	c.addUser("elsewhere", "store", "data", "Running")

	s, err := observe(t.Context(), c.options(false))
	require.NoError(t, err)
	p := plan(s)
	assert.Empty(t, p.Actions)
	assert.Equal(t, []string{"pods shop/db-0, which use volume shop/data (v)"}, p.Waits)
}

// TestAFormerClaimHasNoUsers: a claim with the name of a Released volume's claim belongs to another volume.
func TestAFormerClaimHasNoUsers(t *testing.T) {
	c := newCluster(t)
	c.install(true, "a", "b")
	c.confirm()
	c.claimed("Released")
	c.addUser("db-0", "shop", "data", "Running")
	s, err := observe(t.Context(), c.options(false))
	require.NoError(t, err)
	assert.Empty(t, s.Users)
}

// TestItRefusesIfUsersCannotBeSeen: without the right to read pods, a volume in use would be deleted.
func TestItRefusesIfUsersCannotBeSeen(t *testing.T) {
	c := newCluster(t)
	c.install(true, "a", "b")
	c.confirm()
	c.claimed("Bound")
	c.client.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.GetNamespace() == "", nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no right"))
	})
	err := Run(t.Context(), c.options(false))
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	assert.Contains(t, refused.Reason, "may not list the pods of all namespaces")
	assert.Equal(t, []string{"v"}, c.names(volumes))
}

func TestClaimsOf(t *testing.T) {
	claimed := map[string]any{"name": "x", "persistentVolumeClaim": map[string]any{"claimName": "data"}}
	ephemeral := map[string]any{"name": "scratch", "ephemeral": map[string]any{}}
	for name, tc := range map[string]struct {
		volume      map[string]any
		node, phase string
		want        []string
	}{
		"a running pod":              {claimed, "a", "Running", []string{"data"}},
		"a pod that starts":          {claimed, "a", "Pending", []string{"data"}},
		"a pod without a node":       {claimed, "", "Pending", nil},
		"a pod that has ended":       {claimed, "a", "Failed", nil},
		"a generic ephemeral volume": {ephemeral, "a", "Running", []string{"web-scratch"}},
		"another volume":             {map[string]any{"emptyDir": map[string]any{}}, "a", "Running", nil},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &unstructured.Unstructured{Object: map[string]any{
				"metadata": map[string]any{"name": "web"},
				"spec":     map[string]any{"nodeName": tc.node, "volumes": []any{tc.volume}},
				"status":   map[string]any{"phase": tc.phase},
			}}
			assert.Equal(t, tc.want, claimsOf(pod))
		})
	}
}
