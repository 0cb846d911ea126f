package datastore_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestChildrenAreFoundByTheirVolumeWhateverTheirLabelSays(t *testing.T) {
	for name, labels := range map[string]map[string]string{
		"label → found":                     {types.LabelVolume: "vol"},
		"no label → found":                  nil,
		"label of another volume → found":   {types.LabelVolume: "other"},
		"empty label → found":               {types.LabelVolume: ""},
		"other labels, not the one → found": {types.LabelNode: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			h := testutil.New(t,
				build.Engine("vol", func(e *longhorn.Engine) { e.Labels = labels }),
				build.Replica("vol-r-1", "vol", func(r *longhorn.Replica) { r.Labels = labels }),
				build.VolumeAttachment("vol", func(va *longhorn.VolumeAttachment) { va.Labels = labels }))
			d := h.Datastore(datastore.Options{})
			engines, err := d.Engines.ByIndex(datastore.IndexVolume, "vol")
			require.NoError(t, err)
			assert.Len(t, engines, 1)
			replicas, err := d.Replicas.ByIndex(datastore.IndexVolume, "vol")
			require.NoError(t, err)
			assert.Len(t, replicas, 1)
			attachments, err := d.VolumeAttachments.ByIndex(datastore.IndexVolume, "vol")
			require.NoError(t, err)
			assert.Len(t, attachments, 1)
			replicas, err = d.Replicas.ByIndex(datastore.IndexVolume, "other")
			require.NoError(t, err)
			assert.Empty(t, replicas, "a wrong label gives a replica to no other volume")
		})
	}
}
