package app

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/controller/engine"
	"github.com/longhorn-lep/longhorn-manager/controller/replica"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/client"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	dataplane "github.com/longhorn-lep/longhorn-manager/dataplane/replica"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// The data plane implements the interfaces of the controllers.
var (
	_ engine.DataPlane  = enginePlane{}
	_ replica.DataPlane = (*dataPlane)(nil)
)

func TestNothingIsConcludedWhileTheInstanceManagerDoesNotAnswer(t *testing.T) {
	d := &dataPlane{}
	_, known := d.Engines()
	assert.False(t, known, "the engines are said to be known")
	_, known = d.Replicas()
	assert.False(t, known, "the replicas are said to be known")
	_, known = d.Snapshot()
	assert.False(t, known, "the process is said to be known")
	assert.Equal(t, types.PhaseUnknown, d.ObserveEngine("e").Phase)
	assert.Equal(t, types.PhaseUnknown, d.ObserveReplica("r").Phase)
}

func TestWhetherThereIsTLSIsHandedOn(t *testing.T) {
	for _, tls := range []bool{false, true} {
		d := &dataPlane{}
		d.update(&proto.State{Info: &proto.InfoReply{Uuid: "process", Tls: tls}, Replicas: []*proto.ReplicaState{{Name: "r", Phase: proto.Phase_PHASE_RUNNING}}}, client.Change{All: true})
		assert.Equal(t, tls, d.ObserveReplica("r").Secure, "a process with TLS: %v", tls)
		m := memberToWire(engine.Member{Name: "r", UID: "uid", Address: "10.0.0.8:8500", TLS: tls})
		assert.Equal(t, []any{"r", "uid", "10.0.0.8:8500", tls}, []any{m.GetName(), m.GetUid(), m.GetAddress(), m.GetTls()})
	}
}

func TestWhatTheInstanceManagerShowsIsHandedOn(t *testing.T) {
	d := &dataPlane{}
	told := 0
	d.changed = func(stateDiff) { told++ }
	d.update(&proto.State{
		Info: &proto.InfoReply{Uuid: "process", Port: 10809},
		Replicas: []*proto.ReplicaState{
			{Name: "r-1", Phase: proto.Phase_PHASE_RUNNING, Generation: 7},
			{Name: "r-2", Phase: proto.Phase_PHASE_ERROR, Reason: "MetadataTorn", Message: "torn"},
		},
		Engines: []*proto.EngineState{{
			Name: "e-0", Phase: proto.Phase_PHASE_RUNNING, Generation: 7, Session: "s", Endpoint: "/dev/longhorn/vol", SizeBytes: 512,
			ProposedEpoch: &proto.Epoch{Generation: 7, Counter: 2, Members: []string{"r-1"}},
			Members: []*proto.MemberState{
				{Name: "r-1", Mode: "RW", Progress: 100},
				{Name: "r-2", Mode: "WO", Rebuilding: true, Progress: 40},
				{Name: "r-3", Mode: "ERR", Error: "the connection to it was lost", Progress: 12},
			},
		}},
	}, client.Change{All: true})
	assert.Equal(t, 1, told)
	names, known := d.Engines()
	assert.True(t, known)
	assert.Equal(t, []string{"e-0"}, names)
	names, known = d.Replicas()
	assert.True(t, known)
	assert.Equal(t, []string{"r-1", "r-2"}, names)
	for name, want := range map[string]replica.Observed{
		"r-1": {Phase: types.PhaseRunning, Generation: 7, Process: "process"},
		"r-2": {Phase: types.PhaseError, Reason: "MetadataTorn", Message: "torn", Process: "process"},
		"r-9": {Phase: types.PhaseAbsent, Process: "process"},
	} {
		assert.Equal(t, want, d.ObserveReplica(name), "replica %s", name)
	}
	want := engine.Observed{
		Phase: types.PhaseRunning, Generation: 7, Session: "s", Endpoint: "/dev/longhorn/vol", SizeBytes: 512, Process: "process",
		Proposed: &longhorn.Epoch{Generation: 7, Counter: 2, Members: []string{"r-1"}},
		Modes:    map[string]longhorn.ReplicaMode{"r-1": "RW", "r-2": "WO", "r-3": "ERR"},
		Rebuilds: map[string]longhorn.RebuildStatus{
			"r-2": {IsRebuilding: true, Progress: 40, State: "in_progress"},
			"r-3": {Error: "the connection to it was lost", Progress: 12, State: "error"},
		},
	}
	assert.Equal(t, want, d.ObserveEngine("e-0"))
	d.update(nil, client.Change{All: true})
	_, known = d.Engines()
	assert.False(t, known)
	assert.Equal(t, 2, told, "after the process has gone")
}

func TestARefusalKeepsItsReason(t *testing.T) {
	detailed, err := status.New(codes.FailedPrecondition, "text").WithDetails(&errdetails.ErrorInfo{Reason: "OtherReplica"})
	require.NoError(t, err)
	for _, tc := range []struct {
		name string
		err  error
		want string // "": not a refusal
	}{
		{"success stays success", nil, ""},
		{"an error that may go away is no refusal", status.Error(codes.Unavailable, "away"), ""},
		{"a refusal with a reason", detailed.Err(), "OtherReplica"},
		{"a refusal without one", status.Error(codes.FailedPrecondition, "text"), "Refused"},
		{"a disk that fails is a refusal", status.Error(codes.Internal, "read-only file system"), "IOError"},
		{"a request that makes no sense is one", status.Error(codes.InvalidArgument, "no size"), "InvalidSpec"},
		{"a call that took too long is none", status.Error(codes.DeadlineExceeded, "late"), ""},
	} {
		got := refusalFromWire(tc.err)
		var refusal *types.Refusal
		assert.Equal(t, tc.want != "", errors.As(got, &refusal), "%s: %v", tc.name, got)
		if refusal != nil {
			assert.Equal(t, tc.want, refusal.Reason)
		}
		assert.Equal(t, tc.err == nil, got == nil)
	}
}

func TestACallAboutAReplicaThatTakesTooLongIsShown(t *testing.T) {
	var refusal *types.Refusal
	err := unlessInTime(refusalFromWire(status.Error(codes.DeadlineExceeded, "context deadline exceeded")))
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, "TimedOut", refusal.Reason)
	assert.Equal(t, "no answer in time: context deadline exceeded", refusal.Message)
	for _, other := range []error{nil, status.Error(codes.Unavailable, "away"), status.Error(codes.Canceled, "the daemon stops")} {
		assert.ErrorIs(t, unlessInTime(other), other)
	}
}

// The controllers have constants of their own for some reasons of the data plane.
func TestTheReasonsOfALostDiskAreTheDataPlanes(t *testing.T) {
	for is, want := range map[string]dataplane.Reason{
		types.ReasonDiskUnmounted:  dataplane.DiskUnmounted,
		types.ReasonDiskReplaced:   dataplane.DiskReplaced,
		types.ReasonDataDeleted:    dataplane.DataDeleted,
		types.ReasonDataMissing:    dataplane.DataMissing,
		types.ReasonReplicaMissing: dataplane.ReplicaMissing,
	} {
		assert.Equal(t, string(want), is, "%q is %q in the data plane", is, want)
	}
}

func TestAReplicaIsAskedForWithItsDisk(t *testing.T) {
	got := replicaToWire(replica.Spec{
		Name: "r", Volume: "v", UID: "u", Directory: "/d/replicas/r", DiskPath: "/d", DiskUUID: "disk", SizeBytes: 512, Secret: []byte("s"),
	})
	want := &proto.ReplicaSpec{
		Name: "r", Volume: "v", Uid: "u", Directory: "/d/replicas/r", DiskPath: "/d", DiskUuid: "disk", SizeBytes: 512, Secret: []byte("s"),
	}
	assert.Equal(t, want.String(), got.String())
}
