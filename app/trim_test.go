package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/manager"
)

// TestANodesDaemonLooksAtTheVolumeFirst: it also does so without a check by the leader, because a client may send it a
// request directly.
func TestANodesDaemonLooksAtTheVolumeFirst(t *testing.T) {
	h := testutil.New(t, build.Volume("vol", func(v *longhorn.Volume) {
		v.Status.State, v.Status.CurrentNodeID = longhorn.VolumeStateAttached, "node-2"
	}))
	d := &daemon{node: "node-1", env: h.Env()}
	trims := d.newTrims(h.Datastore(datastore.Options{}))
	defer trims.Close()
	isDone, err := trims.Trim(t.Context(), "vol")
	assert.True(t, isDone)
	require.ErrorIs(t, err, manager.ErrConflict)
	assert.EqualError(t, err, `volume "vol" cannot be trimmed: it is attached to node "node-2", and not to node "node-1"`)
}
