package api

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/api/client"
	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
)

// A client that has no package of the objects compares the type of a ticket with these.
func TestTypesOfTicketsAreThoseOfTheObjects(t *testing.T) {
	assert.Equal(t, []longhorn.AttacherType{longhorn.AttacherTypeAPI, longhorn.AttacherTypeCSI, longhorn.AttacherTypeSnapshot},
		[]longhorn.AttacherType{v1.AttacherTypeAPI, v1.AttacherTypeCSI, v1.AttacherTypeSnapshot})
}

// newClient returns a client that calls the bench's server over TCP.
func newClient(t *testing.T, h http.Handler) *client.Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	c, err := client.New(server.URL+"/v1", server.Client())
	require.NoError(t, err)
	return c
}

func TestTheClientLeadsAVolumeThroughItsLife(t *testing.T) {
	b := newBench(t, threeNodes()...)
	c, ctx := newClient(t, b.server), t.Context()
	timeout := 30
	made, err := c.CreateVolume(ctx, v1.VolumeCreate{
		Name: "vol", Size: "10Mi", NumberOfReplicas: 2, StaleReplicaTimeout: &timeout, AccessMode: "rwop",
		DataLocality: "disabled", Frontend: "blockdev", DataEngine: "v1",
		VolumeCreateOptions: v1.VolumeCreateOptions{ReplicaSoftAntiAffinity: "disabled"},
	})
	require.NoError(t, err)
	require.Equal(t, "10485760", made.Size)
	require.Equal(t, 2, made.NumberOfReplicas)
	require.Equal(t, 30, made.StaleReplicaTimeout)
	require.Equal(t, "rwop", made.AccessMode)
	require.Equal(t, "disabled", made.ReplicaSoftAntiAffinity)
	seen, err := c.Volume(ctx, "vol") // the caches do not contain it yet
	require.NoError(t, err)
	assert.Equal(t, "vol", seen.ID)
	assert.False(t, seen.Ready)
	in := v1.AttachInput{HostID: "node-2", AttachmentID: "csi-1", AttacherType: v1.AttacherTypeCSI, AttachedBy: "pod"}
	_, err = c.AttachVolume(ctx, "vol", in)
	assert.ErrorIs(t, err, client.ErrConflict)
	assert.ErrorContains(t, err, "unable to attach volume")
	b.isPlaced(t, "vol")
	attached, err := c.AttachVolume(ctx, "vol", in)
	require.NoError(t, err)
	got := attached.VolumeAttachment.Attachments["csi-1"]
	assert.Equal(t, "node-2", got.NodeID)
	assert.Equal(t, "csi-attacher", got.AttachmentType)
	assert.Equal(t, "pod", got.Parameters[v1.ParameterLastAttachedBy])
	assert.False(t, got.Satisfied)
	in.HostID = "node-1"
	_, err = c.AttachVolume(ctx, "vol", in)
	assert.ErrorIs(t, err, client.ErrConflict, "the same ticket for another node")
	detached, err := c.DetachVolume(ctx, "vol", v1.DetachInput{AttachmentID: "csi-1"})
	require.NoError(t, err)
	assert.Empty(t, detached.VolumeAttachment.Attachments)
	assert.NoError(t, c.DeleteVolume(ctx, "vol"))
	b.ExpectWrites("create volumes/vol", "update volumes/vol/status", "create volumeattachments/vol", "update volumeattachments/vol", "delete volumes/vol")
}

func TestTheClientReadsNodesAndSettings(t *testing.T) {
	b := newBench(t, append(threeNodes(), build.Setting(settings.DefaultReplicaCount, "2"))...)
	c, ctx := newClient(t, b.server), t.Context()
	nodes, err := c.Nodes(ctx)
	require.NoError(t, err)
	require.Len(t, nodes, 3)
	assert.Equal(t, "node-1", nodes[0].Name)
	assert.Equal(t, int64(100*build.GiB), nodes[0].Disks["disk-1"].StorageMaximum)
	node, err := c.Node(ctx, "node-3")
	require.NoError(t, err)
	assert.Equal(t, "True", node.Conditions["Ready"].Status)
	shown, err := c.Settings(ctx)
	require.NoError(t, err)
	assert.Len(t, shown, len(settings.All()))
	setting, err := c.UpdateSetting(ctx, "default-replica-count", "3")
	require.NoError(t, err)
	assert.Equal(t, `{"v1":"3","v2":"3"}`, setting.Value)
	volumes, err := c.Volumes(ctx)
	require.NoError(t, err)
	assert.Empty(t, volumes)
}

func TestTheClientDistinguishesRefusals(t *testing.T) {
	b := newBench(t, append(threeNodes(), detached("there"))...)
	c, ctx := newClient(t, b.server), t.Context()
	create := func(v v1.VolumeCreate) error { _, err := c.CreateVolume(ctx, v); return err }
	get := func(name string) error { _, err := c.Volume(ctx, name); return err }
	cases := map[string]struct {
		err  error
		want error
		text string
	}{
		"no such volume → not found":      {get("nix"), client.ErrNotFound, `volume "nix" does not exist (404)`},
		"no name → not found":             {get(""), client.ErrNotFound, "no object can have this name (404)"},
		"a name made of dots → not found": {get(".."), client.ErrNotFound, "no object can have this name (404)"},
		"a name with slashes → not found": {get("a/../there"), client.ErrNotFound, `volume "a/../there" does not exist (404)`},
		"a taken name → conflict":         {create(v1.VolumeCreate{Name: "there", Size: "1Gi"}), client.ErrConflict, `volume "there" already exists (409)`},
		"a bad size → invalid":            {create(v1.VolumeCreate{Name: "vol", Size: "x"}), client.ErrInvalid, `size: "x" must be a number of bytes, or a quantity such as 10Gi or 100G (422)`},
		"no room → insufficient":          {create(v1.VolumeCreate{Name: "vol", Size: "1Ti", MustFit: true}), client.ErrInsufficient, "insufficient storage (3 disks) (422)"},
	}
	all := []error{client.ErrNotFound, client.ErrConflict, client.ErrInvalid, client.ErrInsufficient, client.ErrUnavailable, client.ErrUnknown}
	for name, k := range cases {
		t.Run(name, func(t *testing.T) {
			require.Error(t, k.err, "want ... %s", k.text)
			assert.True(t, strings.HasSuffix(k.err.Error(), k.text), "want ... %s", k.text)
			for _, class := range all {
				assert.Equal(t, errors.Is(class, k.want), errors.Is(k.err, class), "%v is %v", k.err, class)
			}
		})
	}
}

func TestACallWithoutAnswerHasAnUnknownOutcome(t *testing.T) {
	b := newBench(t, detached("vol"))
	b.Fail("get", "volumes", errBehindTheScenes)
	assert.ErrorIs(t, newClient(t, b.server).DeleteVolume(t.Context(), "vol"), client.ErrUnknown)
	ctx, cancel := context.WithCancel(t.Context())
	stuck := newClient(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() }))
	_, err := stuck.Volume(ctx, "vol")
	assert.ErrorIs(t, err, client.ErrUnknown)
	assert.ErrorIs(t, err, context.Canceled)
	garbled := newClient(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	_, err = garbled.Volume(t.Context(), "vol")
	assert.ErrorIs(t, err, client.ErrUnknown)
	gateway := newClient(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "bad gateway", http.StatusBadGateway) }))
	_, err = gateway.Volume(t.Context(), "vol")
	assert.ErrorIs(t, err, client.ErrUnknown)
	assert.ErrorContains(t, err, "bad gateway (502)")
}

func TestNewClientRefusesAnInvalidBaseURL(t *testing.T) {
	for _, base := range []string{"", "longhorn-backend:9500", "ftp://host/v1", "http:///v1", "http://host/v1?x=y", "http://ho st/v1"} {
		_, err := client.New(base, nil)
		assert.Error(t, err, "%q was taken", base)
	}
	_, err := client.New("http://longhorn-backend:9500/v1/", nil)
	assert.NoError(t, err)
}

// TestAVolumeInUseIsShownWhole: the client gets every field that CSI reads.
func TestAVolumeInUseIsShownWhole(t *testing.T) {
	v := build.Volume("vol", func(v *longhorn.Volume) {
		v.Spec.NodeID, v.Spec.NumberOfReplicas = "node-1", 1
		v.Status = longhorn.VolumeStatus{State: "attached", Robustness: "healthy", CurrentNodeID: "node-1", ActualSize: 4096}
	})
	engine := build.Engine("vol", func(e *longhorn.Engine) {
		e.OwnerReferences = ownedByVol
		e.Spec.NodeID = "node-1"
		e.Status.CurrentState, e.Status.InstanceManagerName, e.Status.IP = "running", "im-1", "10.0.0.1"
		e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1, Members: []string{"vol-r-1"}}
		e.Status.CurrentSize, e.Status.Endpoint = build.GiB, "/dev/longhorn/vol"
		e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{"vol-r-1": "RW"}
		e.Status.RebuildStatus = map[string]longhorn.RebuildStatus{"vol-r-1": {Error: "e", IsRebuilding: true, Progress: 7, State: "in_progress"}}
	})
	replica := build.PlacedReplica("vol-r-1", "vol", "node-2", "uuid-2", func(r *longhorn.Replica) {
		r.OwnerReferences = ownedByVol
		r.Spec.DataDirectoryName, r.Spec.DataEngine = "vol-0badcafe", "v1"
		r.Status.CurrentState, r.Status.InstanceManagerName, r.Status.IP = "running", "im-2", "10.0.0.2"
	})
	attachment := build.VolumeAttachment("vol", func(va *longhorn.VolumeAttachment) {
		va.OwnerReferences = ownedByVol
		va.Spec.AttachmentTickets = map[string]longhorn.AttachmentTicket{"csi-1": {ID: "csi-1", Type: "csi-attacher", NodeID: "node-1", Generation: 2}}
		va.Status.AttachmentTicketStatuses = map[string]longhorn.AttachmentTicketStatus{"csi-1": {
			ID: "csi-1", Satisfied: true, Generation: 2, Conditions: []longhorn.Condition{{Type: "Satisfied", Status: "True"}},
		}}
	})
	got, err := newClient(t, newBench(t, v, engine, replica, attachment).server).Volume(t.Context(), "vol")
	require.NoError(t, err)
	assert.True(t, got.Ready)
	assert.Equal(t, "attached", got.State)
	assert.Equal(t, "healthy", got.Robustness)
	controller := v1.Controller{
		Name: "vol-e-0", HostID: "node-1", Address: "10.0.0.1", Running: true, InstanceManagerName: "im-1",
		Size: "1073741824", ActualSize: "4096", Endpoint: "/dev/longhorn/vol",
	}
	require.Len(t, got.Controllers, 1)
	assert.Equal(t, controller, got.Controllers[0])
	member := v1.Replica{
		Name: "vol-r-1", HostID: "node-2", Address: "10.0.0.2", Running: true, InstanceManagerName: "im-2", DiskID: "uuid-2",
		DiskPath: "/var/lib/longhorn", DataPath: "/var/lib/longhorn/replicas/vol-0badcafe", Mode: "RW", DataEngine: "v1",
	}
	require.Len(t, got.Replicas, 1)
	assert.Equal(t, member, got.Replicas[0])
	rebuild := v1.RebuildStatus{Replica: "vol-r-1", Error: "e", IsRebuilding: true, Progress: 7, State: "in_progress", FromReplicaList: []string{}}
	require.Len(t, got.RebuildStatus, 1)
	assert.Equal(t, rebuild, got.RebuildStatus[0])
	ticket := got.VolumeAttachment.Attachments["csi-1"]
	assert.True(t, ticket.Satisfied)
	require.Len(t, ticket.Conditions, 1)
	assert.Equal(t, "True", ticket.Conditions[0].Status)
	assert.True(t, strings.HasSuffix(got.VolumeAttachment.Links["self"], "/v1/volumeattachments/vol"), "links %v", got.VolumeAttachment.Links)
}
