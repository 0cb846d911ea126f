package api

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/api/client"
	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// newClient talks to the bench's server over TCP.
func newClient(t *testing.T, h http.Handler) *client.Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	c, err := client.New(server.URL+"/v1", server.Client())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTheClientLeadsAVolumeThroughItsLife(t *testing.T) {
	b := newBench(t, threeNodes()...)
	c, ctx := newClient(t, b.server), t.Context()
	timeout := 30
	made, err := c.CreateVolume(ctx, v1.VolumeCreate{
		Name: "vol", Size: "10Mi", NumberOfReplicas: 2, StaleReplicaTimeout: &timeout, AccessMode: "rwop",
		DataLocality: "disabled", Frontend: "blockdev", DataEngine: "v1", ReplicaSoftAntiAffinity: "disabled",
	})
	if err != nil || made.Size != "10485760" || made.NumberOfReplicas != 2 || made.StaleReplicaTimeout != 30 || made.AccessMode != "rwop" || made.ReplicaSoftAntiAffinity != "disabled" {
		t.Fatalf("made %+v, %v", made, err)
	}
	seen, err := c.Volume(ctx, "vol") // the caches do not show it yet
	if err != nil || seen.ID != "vol" || seen.Ready {
		t.Errorf("seen %+v, %v", seen, err)
	}
	in := v1.AttachInput{HostID: "node-2", AttachmentID: "csi-1", AttacherType: v1.AttacherTypeCSI, AttachedBy: "pod"}
	attached, err := c.AttachVolume(ctx, "vol", in)
	if err != nil {
		t.Fatal(err)
	}
	got := attached.VolumeAttachment.Attachments["csi-1"]
	if got.NodeID != "node-2" || got.AttachmentType != "csi-attacher" || got.Parameters[v1.ParameterLastAttachedBy] != "pod" || got.Satisfied {
		t.Errorf("attachment %+v", got)
	}
	in.HostID = "node-1"
	if _, err := c.AttachVolume(ctx, "vol", in); !errors.Is(err, client.ErrConflict) {
		t.Errorf("the same ticket for another node: %v", err)
	}
	detached, err := c.DetachVolume(ctx, "vol", v1.DetachInput{AttachmentID: "csi-1"})
	if err != nil || len(detached.VolumeAttachment.Attachments) != 0 {
		t.Errorf("detached %+v, %v", detached, err)
	}
	if err := c.DeleteVolume(ctx, "vol"); err != nil {
		t.Error(err)
	}
	b.ExpectWrites("create volumes/vol", "create volumeattachments/vol", "update volumeattachments/vol", "delete volumes/vol")
}

func TestTheClientReadsNodesAndSettings(t *testing.T) {
	b := newBench(t, append(threeNodes(), build.Setting(types.SettingDefaultReplicaCount, "2"))...)
	c, ctx := newClient(t, b.server), t.Context()
	nodes, err := c.Nodes(ctx)
	if err != nil || len(nodes) != 3 || nodes[0].Name != "node-1" || nodes[0].Disks["disk-1"].StorageMaximum != 100*build.GiB {
		t.Errorf("nodes %+v, %v", nodes, err)
	}
	node, err := c.Node(ctx, "node-3")
	if err != nil || node.Conditions["Ready"].Status != "True" {
		t.Errorf("node %+v, %v", node, err)
	}
	settings, err := c.Settings(ctx)
	if err != nil || len(settings) != 9 {
		t.Errorf("%d settings, %v", len(settings), err)
	}
	setting, err := c.UpdateSetting(ctx, "default-replica-count", "3")
	if err != nil || setting.Value != "3" {
		t.Errorf("setting %+v, %v", setting, err)
	}
	if volumes, err := c.Volumes(ctx); err != nil || len(volumes) != 0 {
		t.Errorf("volumes %v, %v", volumes, err)
	}
}

func TestTheClientTellsRefusalsApart(t *testing.T) {
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
		"no name → not found":             {get(""), client.ErrNotFound, "nothing has this name (404)"},
		"a name made of dots → not found": {get(".."), client.ErrNotFound, "nothing has this name (404)"},
		"a name with slashes → not found": {get("a/../there"), client.ErrNotFound, `volume "a/../there" does not exist (404)`},
		"a taken name → conflict":         {create(v1.VolumeCreate{Name: "there"}), client.ErrConflict, `volume "there" exists already (409)`},
		"a bad size → invalid":            {create(v1.VolumeCreate{Name: "vol", Size: "x"}), client.ErrInvalid, `size: "x" must be a number of bytes, or a quantity such as 10Gi or 100G (422)`},
		"no room → insufficient":          {create(v1.VolumeCreate{Name: "vol", Size: "1Ti"}), client.ErrInsufficient, "insufficient storage (3 disks) (422)"},
	}
	all := []error{client.ErrNotFound, client.ErrConflict, client.ErrInvalid, client.ErrInsufficient, client.ErrUnavailable, client.ErrUnknown}
	for name, k := range cases {
		t.Run(name, func(t *testing.T) {
			if k.err == nil || !strings.HasSuffix(k.err.Error(), k.text) {
				t.Errorf("error %v\nwant ... %s", k.err, k.text)
			}
			for _, class := range all {
				if errors.Is(k.err, class) != errors.Is(class, k.want) {
					t.Errorf("%v is %v: %v", k.err, class, errors.Is(k.err, class))
				}
			}
		})
	}
}

func TestACallWithoutAnswerHasAnUnknownOutcome(t *testing.T) {
	b := newBench(t, detached("vol"))
	b.Fail("get", "volumes", errBehindTheScenes)
	if err := newClient(t, b.server).DeleteVolume(t.Context(), "vol"); !errors.Is(err, client.ErrUnknown) {
		t.Errorf("500: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stuck := newClient(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() }))
	if _, err := stuck.Volume(ctx, "vol"); !errors.Is(err, client.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("no answer: %v", err)
	}
	garbled := newClient(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	if _, err := garbled.Volume(t.Context(), "vol"); !errors.Is(err, client.ErrUnknown) {
		t.Errorf("garbled: %v", err)
	}
	gateway := newClient(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "bad gateway", http.StatusBadGateway) }))
	if _, err := gateway.Volume(t.Context(), "vol"); !errors.Is(err, client.ErrUnknown) || !strings.Contains(err.Error(), "bad gateway (502)") {
		t.Errorf("gateway: %v", err)
	}
}

func TestNewClientRefusesWhatIsNoBaseURL(t *testing.T) {
	for _, base := range []string{"", "longhorn-backend:9500", "ftp://host/v1", "http:///v1", "http://host/v1?x=y", "http://ho st/v1"} {
		if _, err := client.New(base, nil); err == nil {
			t.Errorf("%q was taken", base)
		}
	}
	if _, err := client.New("http://longhorn-backend:9500/v1/", nil); err != nil {
		t.Error(err)
	}
}

// TestAVolumeInUseIsShownWhole: every field that CSI reads survives the way.
func TestAVolumeInUseIsShownWhole(t *testing.T) {
	v := build.Volume("vol", func(v *longhorn.Volume) {
		v.Spec.NodeID, v.Spec.NumberOfReplicas = "node-1", 1
		v.Status = longhorn.VolumeStatus{State: "attached", Robustness: "healthy", CurrentNodeID: "node-1", ActualSize: 4096}
	})
	engine := build.Engine("vol", func(e *longhorn.Engine) {
		e.OwnerReferences = ownedByVol
		e.Spec.NodeID = "node-1"
		e.Status.CurrentState, e.Status.InstanceManagerName, e.Status.IP = "running", "im-1", "10.0.0.1"
		e.Status.CurrentSize, e.Status.Endpoint = build.GiB, "/dev/longhorn/vol"
		e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{"vol-r-1": "RW"}
		e.Status.RebuildStatus = map[string]longhorn.RebuildStatus{"vol-r-2": {Error: "e", IsRebuilding: true, Progress: 7, State: "in_progress"}}
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
	if err != nil {
		t.Fatal(err)
	}
	if !got.Ready || got.State != "attached" || got.Robustness != "healthy" {
		t.Errorf("volume %+v", got)
	}
	if want := (v1.Controller{
		Name: "vol-e-0", HostID: "node-1", Address: "10.0.0.1", Running: true, InstanceManagerName: "im-1",
		Size: "1073741824", ActualSize: "4096", Endpoint: "/dev/longhorn/vol",
	}); len(got.Controllers) != 1 || got.Controllers[0] != want {
		t.Errorf("controllers %+v\nwant %+v", got.Controllers, want)
	}
	if want := (v1.Replica{
		Name: "vol-r-1", HostID: "node-2", Address: "10.0.0.2", Running: true, InstanceManagerName: "im-2", DiskID: "uuid-2",
		DiskPath: "/var/lib/longhorn", DataPath: "/var/lib/longhorn/replicas/vol-0badcafe", Mode: "RW", DataEngine: "v1",
	}); len(got.Replicas) != 1 || got.Replicas[0] != want {
		t.Errorf("replicas %+v\nwant %+v", got.Replicas, want)
	}
	rebuild := v1.RebuildStatus{Replica: "vol-r-2", Error: "e", IsRebuilding: true, Progress: 7, State: "in_progress"}
	if len(got.RebuildStatus) != 1 || got.RebuildStatus[0] != rebuild {
		t.Errorf("rebuilds %+v\nwant %+v", got.RebuildStatus, rebuild)
	}
	ticket := got.VolumeAttachment.Attachments["csi-1"]
	if !ticket.Satisfied || len(ticket.Conditions) != 1 || ticket.Conditions[0].Status != "True" {
		t.Errorf("ticket %+v", ticket)
	}
	if !strings.HasSuffix(got.VolumeAttachment.Links["self"], "/v1/volumeattachments/vol") {
		t.Errorf("links %v", got.VolumeAttachment.Links)
	}
}
