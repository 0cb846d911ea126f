package engine

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

type modes = map[string]longhorn.ReplicaMode

type addresses = map[string]string

func TestMembersFollowTheSpec(t *testing.T) {
	const rw, wo, failed = longhorn.ReplicaModeRW, longhorn.ReplicaModeWO, longhorn.ReplicaModeERR
	for _, tc := range []struct {
		name        string
		spec, tried addresses
		modes       modes
		proposed    *longhorn.Epoch
		phase       types.Phase
		want        Action
		wantReplica string
	}{
		{name: "all asked for are members → nothing", spec: addresses{"a": "1", "b": "2"}, tried: addresses{"a": "1", "b": "2"}, modes: modes{"a": rw, "b": rw}},
		{name: "asked for and unknown to the engine → added", spec: addresses{"a": "1", "b": "2"}, tried: addresses{"a": "1"}, modes: modes{"a": rw}, want: ActionAdd, wantReplica: "b"},
		{name: "asked for after it had failed → added", spec: addresses{"a": "1", "b": "2"}, tried: addresses{"a": "1"}, modes: modes{"a": rw, "b": failed}, want: ActionAdd, wantReplica: "b"},
		{name: "tried and failed → not tried again until asked for again", spec: addresses{"a": "1", "b": "2"}, tried: addresses{"a": "1", "b": "2"}, modes: modes{"a": rw, "b": failed}},
		{name: "tried at another address → added", spec: addresses{"a": "1", "b": "2"}, tried: addresses{"a": "1", "b": "9"}, modes: modes{"a": rw, "b": failed}, want: ActionAdd, wantReplica: "b"},
		{name: "being rebuilt → nothing", spec: addresses{"a": "1", "b": "2"}, tried: addresses{"a": "1"}, modes: modes{"a": rw, "b": wo}},
		{name: "another one is being rebuilt → waits", spec: addresses{"a": "1", "b": "2", "c": "3"}, tried: addresses{"a": "1", "b": "2"}, modes: modes{"a": rw, "b": wo}},
		{name: "two asked for → one after the other", spec: addresses{"a": "1", "c": "3", "b": "2"}, tried: addresses{"a": "1"}, modes: modes{"a": rw}, want: ActionAdd, wantReplica: "b"},
		{name: "a member at another address than asked for → it is the member that counts", spec: addresses{"a": "9"}, tried: addresses{"a": "1"}, modes: modes{"a": rw}},
		{name: "a rebuild is not asked for any more → ended", spec: addresses{"a": "1"}, modes: modes{"a": rw, "b": wo}, want: ActionRemove, wantReplica: "b"},
		{name: "a member is not asked for any more → expelled", spec: addresses{"a": "1"}, modes: modes{"a": rw, "b": rw}, want: ActionRemove, wantReplica: "b"},
		{name: "the only member is not asked for → kept", spec: addresses{"b": "2"}, tried: addresses{"b": "2"}, modes: modes{"a": rw, "b": failed}},
		{name: "no member is asked for → all kept", modes: modes{"a": rw, "b": rw}},
		{name: "one that failed is not asked for → nothing", spec: addresses{"a": "1"}, tried: addresses{"a": "1"}, modes: modes{"a": rw, "b": failed}},
		{
			name: "an epoch is proposed → recorded before anything else", spec: addresses{"a": "1", "b": "2"}, modes: modes{"a": rw},
			proposed: &longhorn.Epoch{Generation: 4, Counter: 2, Members: []string{"r"}}, want: ActionRecord,
		},
		{name: "starting → nothing", spec: addresses{"a": "1", "b": "2"}, modes: modes{"a": rw}, phase: types.PhaseStarting},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := engine(state{longhorn.DesireStateRunning, longhorn.InstanceStateRunning, "s", "p", false})
			e.Spec.ReplicaAddressMap, e.Status.CurrentReplicaAddressMap = tc.spec, tc.tried
			o := Observed{Phase: types.PhaseRunning, Generation: 4, Session: "s", Modes: tc.modes, Proposed: tc.proposed}
			if tc.phase != "" {
				o.Phase = tc.phase
			}
			p := plan(Input{Engine: e, Observed: o, Owner: "n", Now: now})
			assert.Equal(t, tc.want, p.Action)
			assert.Equal(t, tc.wantReplica, p.Replica)
		})
	}
}

// running is an engine that serves with vol-r-1, and its spec also lists vol-r-2.
func running(changes ...func(*longhorn.Engine)) runtime.Object {
	return wantedEngine(append([]func(*longhorn.Engine){func(e *longhorn.Engine) {
		e.Spec.ReplicaAddressMap["vol-r-2"] = "10.0.0.9:8500"
		e.Status.Generation, e.Status.Session, e.Status.CurrentState = 1, "s", longhorn.InstanceStateRunning
		e.Status.CurrentReplicaAddressMap = addresses{"vol-r-1": "10.0.0.8:8500"}
		e.Status.ReplicaModeMap = modes{"vol-r-1": longhorn.ReplicaModeRW}
		e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1, Members: []string{"vol-r-1"}}
	}}, changes...)...)
}

func TestRebuildFromBeginningToEnd(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseRunning, Generation: 1, Session: "s", Modes: modes{"vol-r-1": longhorn.ReplicaModeRW}}}
	h, c := begin(t, plane, running())
	syncOf(t, c, nil)
	plane.expect(t, "add s uid-vol-r-2 10.0.0.9:8500 3145728")
	h.ExpectEvents("Normal Rebuilding vol-e-0: replica vol-r-2 is being rebuilt")
	h.CatchUp()
	e, _ := c.Engines.GetRO("vol-e-0")
	assert.Equal(t, longhorn.ReplicaModeWO, e.Status.ReplicaModeMap["vol-r-2"])
	assert.NotEmpty(t, e.Status.CurrentReplicaAddressMap["vol-r-2"], "a try that just began is not told from one that failed")
	plane.observed.Modes = modes{"vol-r-1": longhorn.ReplicaModeRW, "vol-r-2": longhorn.ReplicaModeWO}
	plane.observed.Rebuilds = map[string]longhorn.RebuildStatus{"vol-r-2": {
		IsRebuilding: true, Progress: 40, State: "in_progress", CopyBytes: 8<<20 - 512, Partial: true,
	}}
	syncOf(t, c, nil)
	h.ExpectEvents("Normal Rebuilding vol-e-0: replica vol-r-2 receives only the data that it lacks")
	h.CatchUp()
	e, _ = c.Engines.GetRO("vol-e-0")
	assert.Equal(t, 40, e.Status.RebuildStatus["vol-r-2"].Progress)

	plane.observed.Proposed = &longhorn.Epoch{Generation: 1, Counter: 2, Members: []string{"vol-r-1", "vol-r-2"}}
	syncOf(t, c, nil)
	plane.expect(t, "record 1.2")
	h.CatchUp()
	plane.observed.Proposed, plane.observed.Rebuilds = nil, nil
	plane.observed.Modes = modes{"vol-r-1": longhorn.ReplicaModeRW, "vol-r-2": longhorn.ReplicaModeRW}
	syncOf(t, c, nil)
	h.ExpectEvents("Normal Rebuilt vol-e-0: replica vol-r-2 is rebuilt and is a member again; it received only the data that it lacks, 8 MiB including holes")
	h.CatchUp()
	h.Writes()
	syncOf(t, c, nil)
	h.ExpectWrites() // at rest, it writes nothing
	plane.expect(t)
	complete := longhorn.RebuildStatus{Progress: 100, State: "complete", CopyBytes: 8<<20 - 512, Partial: true}
	e, _ = c.Engines.GetRO("vol-e-0")
	assert.Equal(t, map[string]longhorn.RebuildStatus{"vol-r-2": complete}, e.Status.RebuildStatus, "clients that ask later see that it is complete")

	plane.observed.Modes["vol-r-2"] = longhorn.ReplicaModeERR
	plane.observed.Rebuilds = map[string]longhorn.RebuildStatus{"vol-r-2": {Error: "gone"}}
	syncOf(t, c, nil)
	h.CatchUp()
	e, _ = c.Engines.GetRO("vol-e-0")
	assert.Equal(t, plane.observed.Rebuilds, e.Status.RebuildStatus, "of a replica that failed it is complete no more")
}

func TestRebuildThatFailsAtOnceIsTriedOnce(t *testing.T) {
	plane := &fakePlane{observed: Observed{Phase: types.PhaseRunning, Generation: 1, Session: "s", Modes: modes{"vol-r-1": longhorn.ReplicaModeRW}}}
	h, c := begin(t, plane, running())
	syncOf(t, c, nil)
	plane.expect(t, "add s uid-vol-r-2 10.0.0.9:8500 3145728")
	plane.observed.Modes = modes{"vol-r-1": longhorn.ReplicaModeRW, "vol-r-2": longhorn.ReplicaModeERR}
	plane.observed.Rebuilds = map[string]longhorn.RebuildStatus{"vol-r-2": {Error: "connection refused", State: "error"}}
	h.Recorder.Take()
	for range 3 {
		h.CatchUp()
		syncOf(t, c, nil)
	}
	plane.expect(t)
	h.ExpectEvents("Warning FailedRebuilding vol-e-0: replica vol-r-2 could not be rebuilt: connection refused")
}

func TestMemberIsExpelledOnlyWhereTheServerSaysSo(t *testing.T) {
	both := Observed{Phase: types.PhaseRunning, Generation: 1, Session: "s", Modes: modes{"vol-r-1": longhorn.ReplicaModeRW, "vol-r-2": longhorn.ReplicaModeRW}}
	onlyFirst := func(e *longhorn.Engine) { delete(e.Spec.ReplicaAddressMap, "vol-r-2") }
	t.Run("not asked for → expelled", func(t *testing.T) {
		plane := &fakePlane{observed: both}
		_, c := begin(t, plane, running(onlyFirst))
		syncOf(t, c, nil)
		plane.expect(t, "remove s vol-r-2")
	})
	t.Run("the cache is old, the server asks for it → kept", func(t *testing.T) {
		plane := &fakePlane{observed: both}
		h, c := begin(t, plane, running(onlyFirst, func(e *longhorn.Engine) { e.Status.ReplicaModeMap, e.Status.OwnerID = both.Modes, "n" }))
		syncOf(t, c, nil)
		plane.calls = nil
		h.CatchUp()
		h.Overwrite(running())
		syncOf(t, c, queue.ErrStale)
		plane.expect(t)
	})
	for name, change := range map[string]func(*longhorn.Engine){
		"is a later one of the name": func(e *longhorn.Engine) { e.UID = "later" },
		"has another session":        func(e *longhorn.Engine) { e.Status.Session = "another" },
		"shall stop":                 func(e *longhorn.Engine) { e.Spec.DesireState = longhorn.DesireStateStopped },
	} {
		t.Run("the server's engine "+name+" → kept", func(t *testing.T) {
			plane := &fakePlane{observed: both}
			asShown := func(e *longhorn.Engine) { e.Status.ReplicaModeMap, e.Status.OwnerID = both.Modes, "n" }
			h, c := begin(t, plane, running(onlyFirst, asShown))
			syncOf(t, c, nil)
			plane.calls = nil
			h.CatchUp()
			h.Overwrite(running(onlyFirst, asShown, change))
			syncOf(t, c, queue.ErrStale)
			plane.expect(t)
		})
	}
	t.Run("the server does not answer → kept", func(t *testing.T) {
		plane := &fakePlane{observed: both}
		h, c := begin(t, plane, running(onlyFirst))
		h.Fail("get", "engines", errors.New("the API server is away"))
		_, err := c.sync(t.Context(), "vol-e-0")
		assert.Error(t, err, "the failure was swallowed")
		plane.expect(t)
	})
}

func TestAMemberThatWasToLeaveHasNotFailed(t *testing.T) {
	removed := map[string]longhorn.RebuildStatus{"vol-r-2": {Error: "it was removed from the volume"}}
	both := func(e *longhorn.Engine) {
		e.Status.ReplicaModeMap = modes{"vol-r-1": longhorn.ReplicaModeRW, "vol-r-2": longhorn.ReplicaModeRW}
		e.Status.CurrentReplicaAddressMap["vol-r-2"] = "10.0.0.9:8500"
	}
	plane := func() *fakePlane {
		return &fakePlane{observed: Observed{
			Phase: types.PhaseRunning, Generation: 1, Session: "s", Rebuilds: removed,
			Modes: modes{"vol-r-1": longhorn.ReplicaModeRW, "vol-r-2": longhorn.ReplicaModeERR},
		}}
	}
	t.Run("not asked for any more → told as what it is", func(t *testing.T) {
		h, c := begin(t, plane(), running(both, func(e *longhorn.Engine) { delete(e.Spec.ReplicaAddressMap, "vol-r-2") }))
		syncOf(t, c, nil)
		h.ExpectEvents("Normal Left vol-e-0: replica vol-r-2 is no longer a member because the volume does not need it: it was removed from the volume")
	})
	t.Run("still asked for → it failed", func(t *testing.T) {
		h, c := begin(t, plane(), running(both))
		syncOf(t, c, nil)
		h.ExpectEvents("Warning Failed vol-e-0: replica vol-r-2 failed: it was removed from the volume")
	})
}
