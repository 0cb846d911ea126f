package api

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/api/client"
	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const volURL = "http://example.com/v1/volumes/vol"

func TestSnapshotsOnTheWire(t *testing.T) {
	b := newBench(t, withSnapshot()...)
	list := decoded[v1.Collection[v1.Snapshot]](t, do(t, b.server, "POST", "/v1/volumes/vol?action=snapshotList", ""))
	want := v1.Collection[v1.Snapshot]{
		Type: "collection", ResourceType: "snapshot", Actions: map[string]string{}, Links: map[string]string{"self": volURL + "?action=snapshotList"},
		Data: []v1.Snapshot{
			{
				Resource: v1.Resource{ID: "s", Type: "snapshot", Links: map[string]string{"self": "http://example.com/v1/snapshotcrs/s"}, Actions: map[string]string{}},
				Name:     "s", Parent: "p", Children: map[string]bool{"volume-head": true}, UserCreated: true, Created: "2030-01-01T00:00:00Z",
				Size: "4096", Labels: map[string]string{"app": "db"}, Checksum: "c",
			},
			{
				Resource: v1.Resource{ID: "volume-head", Type: "snapshot", Links: map[string]string{"self": "http://example.com/v1/snapshotcrs/volume-head"}, Actions: map[string]string{}},
				Name:     "volume-head", Parent: "s", Children: map[string]bool{}, Size: "0", Labels: map[string]string{},
			},
		},
	}
	assert.Equal(t, want, list)
	for i, name := range []string{"s", "volume-head"} {
		assert.Equal(t, want.Data[i], decoded[v1.Snapshot](t, do(t, b.server, "POST", "/v1/volumes/vol?action=snapshotGet", `{"name":"`+name+`"}`)))
	}
	cr := v1.SnapshotCR{
		Resource: v1.Resource{
			ID: "s", Type: "snapshotCR", Links: map[string]string{"self": "http://example.com/v1/snapshotcrs/s", "volume": volURL}, Actions: map[string]string{},
		},
		Name: "s", Volume: "vol", CreateSnapshot: true, Parent: "p", Children: map[string]bool{"volume-head": true}, UserCreated: true,
		CreationTime: "2030-01-01T00:00:00Z", Size: 4096, RestoreSize: 1 << 30, Labels: map[string]string{"app": "db"}, ReadyToUse: true, Checksum: "c",
		Conditions: map[string]v1.Condition{"Ready": {Type: "Ready", Status: "True"}},
	}
	got := decoded[v1.SnapshotCR](t, do(t, b.server, "POST", "/v1/volumes/vol?action=snapshotCRGet", `{"name":"s"}`))
	cr.CRCreationTime = got.CRCreationTime
	assert.NotEmpty(t, got.CRCreationTime)
	assert.Equal(t, cr, got)
	for _, answer := range []string{"/v1/volumes/vol?action=snapshotCRList", "/v1/snapshotcrs"} {
		method := map[bool]string{true: "GET", false: "POST"}[answer == "/v1/snapshotcrs"]
		c := decoded[v1.Collection[v1.SnapshotCR]](t, do(t, b.server, method, answer, ""))
		assert.Equal(t, "snapshotCR", c.ResourceType)
		assert.Equal(t, []v1.SnapshotCR{cr}, c.Data)
	}
}

func TestActionsOfSnapshots(t *testing.T) {
	b := newBench(t, withSnapshot()...)
	created := decoded[v1.SnapshotCR](t, do(t, b.server, "POST", "/v1/volumes/vol?action=snapshotCRCreate", `{"labels":{"a":"b"}}`))
	assert.Regexp(t, "^snap-[0-9a-f]{16}$", created.Name)
	assert.Equal(t, map[string]string{"a": "b"}, created.Labels)
	assert.False(t, created.ReadyToUse)
	b.ExpectWrites("create snapshots/" + created.Name)

	w := do(t, b.server, "POST", "/v1/volumes/vol?action=snapshotGet", `{"name":"nix"}`)
	assert.Equal(t, 404, w.Code)
	assert.Equal(t, "cannot find snapshot 'nix' for volume 'vol'", decoded[v1.Error](t, w).Message)
	w = do(t, b.server, "POST", "/v1/volumes/vol?action=snapshotCRDelete", `{"name":"nix"}`)
	assert.Equal(t, 204, w.Code, "it is not an error")
	assert.Empty(t, w.Body.String())
	assert.Equal(t, 404, do(t, b.server, "POST", "/v1/volumes/vol?action=snapshotDelete", `{"name":"nix"}`).Code)

	reverted := decoded[v1.Snapshot](t, do(t, b.server, "POST", "/v1/volumes/vol?action=snapshotRevert", `{"name":"s"}`))
	assert.Equal(t, "s", reverted.Name)
	b.ExpectWrites("update engines/vol-e-0/status")
	v := decoded[v1.Volume](t, do(t, b.server, "POST", "/v1/volumes/vol?action=snapshotDelete", `{"name":"s"}`))
	assert.Equal(t, "vol", v.Name)
	b.ExpectWrites("delete snapshots/s")
}

func TestSnapshotActionsAreShownInLonghornsStates(t *testing.T) {
	crs := []string{"snapshotCRCreate", "snapshotCRList", "snapshotCRGet", "snapshotCRDelete"}
	others := []string{"snapshotCreate", "snapshotList", "snapshotGet", "snapshotDelete", "snapshotPurge"}
	for name, c := range map[string]struct {
		change              func(*longhorn.Volume)
		cr, others, reverts bool
	}{
		"detached":  {asIs, true, false, true},
		"attached":  {attached, true, true, true},
		"attaching": {func(v *longhorn.Volume) { v.Status.State = longhorn.VolumeStateAttaching }, true, false, false},
		"faulted":   {func(v *longhorn.Volume) { v.Status.Robustness = longhorn.VolumeRobustnessFaulted }, false, false, false},
	} {
		v := volumeWith(t, c.change)
		for _, a := range crs {
			assert.Equal(t, c.cr, v.Actions[a] != "", "%s: %s", name, a)
		}
		for _, a := range others {
			assert.Equal(t, c.others, v.Actions[a] != "", "%s: %s", name, a)
		}
		assert.Equal(t, c.reverts, v.Actions["snapshotRevert"] != "", "%s: snapshotRevert", name)
	}
}

func TestPurgeStatusReportsDeletedSnapshots(t *testing.T) {
	engine := ownEngine(func(e *longhorn.Engine) {
		e.Status.Line = &longhorn.Line{Counter: 1}
		e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{"vol-r-1": longhorn.ReplicaModeRW}
	})
	s := completeSnapshot("vol", "s")
	assert.Equal(t, []v1.PurgeStatus{{Replica: "vol-r-1", Progress: 100, State: "complete"}}, volumeWith(t, attached, engine, s).PurgeStatus)
	now := metav1.Now()
	s.DeletionTimestamp, s.Finalizers = &now, []string{types.Finalizer}
	assert.Equal(t, []v1.PurgeStatus{{Replica: "vol-r-1", IsPurging: true, State: "in_progress"}}, volumeWith(t, attached, engine, s).PurgeStatus)
}

func TestSnapshotsNeedTheRightToVolumes(t *testing.T) {
	route := attributesOf(httptest.NewRequestWithContext(t.Context(), "GET", "/v1/snapshotcrs/s", nil))
	assert.Equal(t, Attributes{Verb: "list", Resource: "volumes"}, route)
	require.Equal(t, Attributes{Verb: "list", Resource: "volumes"}, attributesOf(httptest.NewRequestWithContext(t.Context(), "GET", "/v1/ws/1s/snapshotcrs", nil)))
}

func TestTheClientLeadsASnapshotThroughItsLife(t *testing.T) {
	b := newBench(t, withSnapshot()...)
	c, ctx := newClient(t, b.server), t.Context()
	created, err := c.CreateSnapshot(ctx, "vol", v1.SnapshotCRInput{Name: "new", Labels: map[string]string{"a": "b"}})
	require.NoError(t, err)
	assert.Equal(t, "new", created.Name)
	_, err = c.CreateSnapshot(ctx, "vol", v1.SnapshotCRInput{Name: "new"})
	require.ErrorIs(t, err, client.ErrConflict)
	b.CatchUp()
	list, err := c.Snapshots(ctx, "vol")
	require.NoError(t, err)
	require.Len(t, list, 2)
	one, err := c.Snapshot(ctx, "vol", "s")
	require.NoError(t, err)
	assert.Equal(t, list[0], *one)
	_, err = c.Snapshot(ctx, "vol", "nix")
	require.ErrorIs(t, err, client.ErrNotFound)
	reverted, err := c.RevertSnapshot(ctx, "vol", "s")
	require.NoError(t, err)
	assert.Equal(t, "s", reverted.Name)
	require.NoError(t, c.DeleteSnapshot(ctx, "vol", "s"))
	require.NoError(t, c.DeleteSnapshot(ctx, "vol", "s"), "it may be repeated")
	require.ErrorIs(t, c.DeleteSnapshot(ctx, "nix", "s"), client.ErrNotFound)
	b.ExpectWrites("create snapshots/new", "create snapshots/new", "update engines/vol-e-0/status", "delete snapshots/s")
}
