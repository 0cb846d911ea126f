package trim

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/manager"
)

// TestChecked: the node's daemon checks the volume itself.
func TestChecked(t *testing.T) {
	attached := func(v *longhorn.Volume) {
		v.Status.State, v.Status.CurrentNodeID = longhorn.VolumeStateAttached, "node-1"
	}
	for name, c := range map[string]struct {
		change func(*longhorn.Volume)
		err    error // of the read
		class  error // nil: it is trimmed
		text   string
	}{
		"attached here → trimmed": {func(*longhorn.Volume) {}, nil, nil, ""},
		"being deleted → refused": {
			func(v *longhorn.Volume) { v.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e9, 0)} }, nil,
			manager.ErrConflict, `volume "vol" cannot be trimmed: it is being deleted`,
		},
		"attached to another node → refused": {
			func(v *longhorn.Volume) { v.Status.CurrentNodeID = "node-2" }, nil,
			manager.ErrConflict, `volume "vol" cannot be trimmed: it is attached to node "node-2", and not to node "node-1"`,
		},
		"being detached → refused": {
			func(v *longhorn.Volume) { v.Status.State = longhorn.VolumeStateDetaching }, nil,
			manager.ErrConflict, `volume "vol" cannot be trimmed: it is detaching, and only a mounted file system can be trimmed`,
		},
		"without a block device → refused": {
			func(v *longhorn.Volume) { v.Status.FrontendDisabled = true }, nil,
			manager.ErrConflict, `volume "vol" cannot be trimmed: it is attached without a block device`,
		},
		"there is none": {nil, apierrors.NewNotFound(longhorn.Resource("volumes"), "vol"), manager.ErrNotFound, `volume "vol" does not exist`},
		"the API server does not answer → not trimmed": {
			nil, errors.New("timeout"),
			manager.ErrUnavailable, `volume "vol" was not trimmed: the API server did not return the volume; try again`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			live := func(_ context.Context, volume string) (*longhorn.Volume, error) {
				assert.Equal(t, "vol", volume)
				if c.err != nil {
					return nil, c.err
				}
				return build.Volume(volume, attached, c.change), nil
			}
			trimmed := 0
			run := Checked("node-1", live, func(context.Context, string) (int64, error) {
				trimmed++
				return 4096, nil
			})
			n, err := run(t.Context(), "vol")
			if c.class == nil {
				require.NoError(t, err)
				assert.EqualValues(t, 4096, n)
				assert.Equal(t, 1, trimmed)
				return
			}
			require.ErrorIs(t, err, c.class)
			assert.EqualError(t, err, c.text)
			assert.Zero(t, trimmed)
		})
	}
}
