package volume

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func shared(v *longhorn.Volume) { v.Spec.AccessMode = longhorn.AccessModeReadWriteMany }

// serving is the share manager of a volume, running.
func serving() *longhorn.ShareManager {
	s := newShareManager(build.Volume("vol"), "image:1")
	s.OwnerReferences = owner()
	s.Status.State, s.Status.Endpoint = longhorn.ShareManagerStateRunning, "nfs://10.0.0.9/vol"
	return s
}

func TestShare(t *testing.T) {
	deleted := serving()
	deleted.DeletionTimestamp = build.Volume("vol", deletedVolume).DeletionTimestamp
	for name, tc := range map[string]struct {
		volume   *longhorn.Volume
		share    *longhorn.ShareManager
		image    string
		want     string // create, update, remove or ""
		state    longhorn.ShareManagerState
		endpoint string
	}{
		"not shared → nothing":                        {volume: build.Volume("vol")},
		"shared → made":                               {volume: build.Volume("vol", shared), want: "create"},
		"served → shown":                              {volume: build.Volume("vol", shared), share: serving(), state: "running", endpoint: "nfs://10.0.0.9/vol"},
		"another image → for its next pod":            {volume: build.Volume("vol", shared), share: serving(), image: "image:2", want: "update", state: "running", endpoint: "nfs://10.0.0.9/vol"},
		"shared no more → removed, nothing is shown":  {volume: build.Volume("vol"), share: serving(), want: "remove"},
		"shared no more, removed already → waits":     {volume: build.Volume("vol"), share: deleted},
		"shared anew while the last one goes → waits": {volume: build.Volume("vol", shared), share: deleted, image: "image:2", state: "running", endpoint: "nfs://10.0.0.9/vol"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.image == "" {
				tc.image = "image:1"
			}
			p := Plan{Status: longhorn.VolumeStatus{ShareState: "error", ShareEndpoint: "nfs://old/vol"}}
			share(Input{Facts: copies.Facts{Volume: tc.volume}, Share: tc.share, ShareImage: tc.image}, &p)
			got := ""
			switch {
			case p.share.create != nil:
				got = "create"
			case p.share.update != nil:
				got = "update"
				assert.Equal(t, tc.image, p.share.update.Spec.Image)
			case p.share.remove != nil:
				got = "remove"
			}
			assert.Equal(t, tc.want, got)
			assert.Equal(t, tc.state, p.Status.ShareState)
			assert.Equal(t, tc.endpoint, p.Status.ShareEndpoint)
		})
	}
}

// Clients have mounted the address, so the next share's Service must have it.
func TestTheNextShareManagerKnowsTheEndpointOfOneThatWasDeletedWhileItServed(t *testing.T) {
	v := build.Volume("vol", shared)
	assert.Empty(t, newShareManager(v, "image:1").Annotations, "the first one has any address")
	v.Status.ShareEndpoint = "nfs://10.0.0.9/vol"
	var p Plan
	share(Input{Facts: copies.Facts{Volume: v}, ShareImage: "image:1"}, &p)
	require.NotNil(t, p.share.create)
	assert.Equal(t, map[string]string{"longhorn.io/share-endpoint": "nfs://10.0.0.9/vol"}, p.share.create.Annotations)
	assert.Empty(t, p.Status.ShareEndpoint, "it does not serve yet")
}

func TestARequestOfTheShareIsShown(t *testing.T) {
	for name, tc := range map[string]struct{ had, share, want string }{
		"none → none":            {},
		"the first → shown":      {share: "2030-01-02T03:04:05Z", want: "2030-01-02T03:04:05Z"},
		"a later one → shown":    {had: "2030-01-02T03:04:05Z", share: "2030-01-02T03:04:06Z", want: "2030-01-02T03:04:06Z"},
		"an earlier one → stays": {had: "2030-01-02T03:04:05Z", share: "2030-01-02T03:04:04Z", want: "2030-01-02T03:04:05Z"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving()
			s.Status.RemountRequestedAt = tc.share
			p := Plan{Status: longhorn.VolumeStatus{RemountRequestedAt: tc.had}}
			share(Input{Facts: copies.Facts{Volume: build.Volume("vol", shared)}, Share: s, ShareImage: "image:1"}, &p)
			assert.Equal(t, tc.want, p.Status.RemountRequestedAt)
		})
	}
}

func TestShareManagerIsMadeAndRemoved(t *testing.T) {
	h, c := begin(t, build.Volume("vol", finalized, shared), build.Engine("vol", owned),
		build.VolumeAttachment("vol", func(va *longhorn.VolumeAttachment) { va.OwnerReferences = owner() }))
	syncOf(t, h, c, nil)
	assert.Contains(t, h.Writes(), "create sharemanagers/vol")
	h.CatchUp()
	s, err := c.deps.Shares.GetRO("vol")
	require.NoError(t, err)
	assert.Equal(t, owner(), s.OwnerReferences, "it goes with the volume")

	v, err := c.deps.Volumes.Get("vol")
	require.NoError(t, err)
	v.Spec.AccessMode = longhorn.AccessModeReadWriteOnce
	h.Overwrite(v)
	h.CatchUp()
	syncOf(t, h, c, nil)
	assert.Contains(t, h.Writes(), "delete sharemanagers/vol")
}

func TestTheShareManagerOfAnEarlierVolumeIsNotShown(t *testing.T) {
	old := serving()
	old.OwnerReferences[0].UID = "an earlier one"
	h, c := begin(t, build.Volume("vol", finalized, shared), build.Engine("vol", owned), old)
	in, err := c.gather(build.Volume("vol", shared))
	require.NoError(t, err)
	assert.Nil(t, in.Share)
	h.ExpectWrites()
}
