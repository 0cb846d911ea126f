package node

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
)

func TestARefusedNodeIsAnEventOfItsKubernetesNodeOnce(t *testing.T) {
	f := newFixture(t, build.KubeNode("node-1"))
	refused := apierrors.NewForbidden(schema.GroupResource{Group: "longhorn.io", Resource: "nodes"}, "node-1", errors.New("exceeded quota"))
	f.Fail("create", "nodes", refused, refused)
	for range 2 {
		_, err := f.sync(t.Context(), "node-1")
		require.ErrorIs(t, err, refused)
	}
	f.ExpectEvents(`Warning ChildRefused node-1: create nodes.longhorn.io node-1: nodes.longhorn.io "node-1" is forbidden: exceeded quota`)
	f.mustSync()
	f.ExpectEvents()
}
