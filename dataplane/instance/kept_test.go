package instance

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/device"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// oneKept is a Keeper that holds the device of a process that has exited, until the device is aborted.
type oneKept struct {
	device.Keeper

	mu      sync.Mutex
	held    []device.Held // guarded by mu
	aborted []string      // guarded by mu; volumes
	stays   bool          // guarded by mu; the next Abort will fail
}

func keepsOne() *oneKept {
	return &oneKept{held: []device.Held{{
		Spec: device.Spec{Volume: volume, SizeBytes: testSize, Owner: device.Owner{Engine: volume + "-e-0", Generation: 3, Session: "session-3"}},
		Path: "/dev/longhorn/" + volume,
	}}}
}

func (k *oneKept) List(context.Context) ([]device.Held, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.held), nil
}

func (k *oneKept) Abort(_ context.Context, volume string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stays {
		k.stays = false
		return errors.New("the control file system cannot be mounted")
	}
	k.held = slices.DeleteFunc(k.held, func(h device.Held) bool { return h.Volume == volume })
	k.aborted = append(k.aborted, volume)
	return nil
}

func (k *oneKept) Successions() bool { return true }

func (k *oneKept) MakesNBD() (bool, string) { return false, "a test" }
func (k *oneKept) Resizes() bool            { return true }

func (k *oneKept) isLeft() bool {
	held, _ := k.List(context.Background())
	return len(held) == 1
}

// nodeThatKeeps returns a process whose predecessor left a device behind.
func nodeThatKeeps(t *testing.T) (*node, *oneKept) {
	t.Helper()
	n, k := newNode(t, 1), keepsOne()
	n.stop()
	n.keeper = k
	n.start()
	return n, k
}

func isKept(e *proto.EngineState) bool { return e.GetDeviceKept() }

func TestAKeptDeviceIsShownAsItsEngineThatHasFailed(t *testing.T) {
	n, _ := nodeThatKeeps(t)
	s := n.until("the kept device", func(s *proto.State) bool { return slices.ContainsFunc(s.GetEngines(), isKept) })
	e := s.GetEngines()[0]
	assert.Equal(t, volume+"-e-0", e.GetName())
	assert.Equal(t, volume, e.GetVolume())
	assert.Equal(t, int64(3), e.GetGeneration())
	assert.Equal(t, "session-3", e.GetSession())
	assert.Equal(t, proto.Phase_PHASE_ERROR, e.GetPhase())
	assert.Equal(t, "/dev/longhorn/"+volume, e.GetEndpoint())
	assert.Len(t, s.GetEngines(), 1)
}

func TestAKeptDeviceEndsByForceAlone(t *testing.T) {
	n, k := nodeThatKeeps(t)
	for _, ref := range []*proto.EngineRef{
		{Name: "another-e-0", Force: true},
		{Name: volume + "-e-0", Session: "session-2", Force: true},
	} {
		_, err := n.EngineStop(t.Context(), ref)
		require.NoError(t, err, ref)
		assert.True(t, k.isLeft(), ref)
	}
	_, err := n.EngineStop(t.Context(), &proto.EngineRef{Name: volume + "-e-0"})
	assert.Equal(t, reasonInUse, reason(err), "without force: %v", err)
	assert.True(t, k.isLeft())
	_, err = n.EngineStop(t.Context(), &proto.EngineRef{Name: volume + "-e-0", Session: "session-3", Force: true})
	require.NoError(t, err)
	assert.False(t, k.isLeft(), "by force")
	n.until("no engine", func(s *proto.State) bool { return s != nil && len(s.GetEngines()) == 0 })
}

func TestWhoMayTakeAKeptDeviceOver(t *testing.T) {
	for _, tc := range []struct {
		name        string
		generation  int64
		predecessor string
		noDevice    bool
		size        int64
		wantReason  string // "" means that the engine is started
		wantLeft    bool
	}{
		{name: "an engine that names another session → refused, the device stays", generation: 4, predecessor: "session-2", wantReason: reasonNotHosted, wantLeft: true},
		{name: "an engine of the same generation → refused, the device stays", generation: 3, predecessor: "session-3", wantReason: reasonFenced, wantLeft: true},
		{name: "an engine without a device → refused, the device stays", generation: 4, predecessor: "session-3", noDevice: true, wantReason: reasonNotHosted, wantLeft: true},
		{name: "a smaller engine → refused, the device stays", generation: 4, predecessor: "session-3", size: testSize / 2, wantReason: "InvalidArgument", wantLeft: true},
		{name: "an engine that names none → it starts anew, the device is ended first", generation: 4, wantLeft: false},
		{name: "the engine of the next generation → it starts, the device stays", generation: 4, predecessor: "session-3", wantLeft: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, k := nodeThatKeeps(t)
			n.createReplica()
			s := cluster{n}.engineSpec(tc.generation, nil)
			s.PredecessorSession, s.Frontend = tc.predecessor, proto.Frontend_FRONTEND_BLOCK
			if tc.noDevice {
				s.Frontend = proto.Frontend_FRONTEND_NONE
			}
			if tc.size != 0 {
				s.SizeBytes = tc.size
			}
			// No epoch is ever recorded, so the engine stays in its start and never takes over the device.
			_, err := n.EngineStart(t.Context(), s)
			got := reason(err)
			if err != nil && got == "" {
				got = "InvalidArgument"
			}
			assert.Equal(t, tc.wantReason, got, err)
			assert.Equal(t, tc.wantLeft, k.isLeft())
			if err == nil {
				n.until("one engine, which runs", func(s *proto.State) bool { return len(s.GetEngines()) == 1 && !isKept(s.GetEngines()[0]) })
			}
		})
	}
}

func TestAnEngineThatTakesADeviceOverHasUsers(t *testing.T) {
	n := newNode(t, 1)
	for _, adopts := range []bool{false, true} {
		assert.Equal(t, adopts, n.engines.config(cluster{n}.engineSpec(4, nil), adopts).HasUsers)
	}
}

// Nothing else would end the device, so its users would wait forever.
func TestADeviceEndsWithTheEngineThatWasToTakeItOver(t *testing.T) {
	n, k := nodeThatKeeps(t)
	n.createReplica()
	s := cluster{n}.engineSpec(4, nil)
	s.PredecessorSession, s.Frontend = "session-3", proto.Frontend_FRONTEND_BLOCK
	_, err := n.EngineStart(t.Context(), s)
	require.NoError(t, err)
	require.True(t, k.isLeft())
	_, err = n.EngineStop(t.Context(), &proto.EngineRef{Name: volume + "-e-0", Session: "session-4", Force: true})
	require.NoError(t, err)
	assert.False(t, k.isLeft())
}

// The volume may be written elsewhere before it comes back, so the data in its users' memory may be older.
func TestADeviceThatCouldNotBeEndedIsNotTakenOverLater(t *testing.T) {
	n, k := nodeThatKeeps(t)
	n.createReplica()
	s := cluster{n}.engineSpec(4, nil)
	s.PredecessorSession, s.Frontend = "session-3", proto.Frontend_FRONTEND_BLOCK
	_, err := n.EngineStart(t.Context(), s)
	require.NoError(t, err)
	k.mu.Lock()
	k.stays = true
	k.mu.Unlock()
	_, err = n.EngineStop(t.Context(), &proto.EngineRef{Name: volume + "-e-0", Session: "session-4", Force: true})
	require.NoError(t, err)
	n.until("the kept device", func(s *proto.State) bool { return len(s.GetEngines()) == 1 && isKept(s.GetEngines()[0]) })
	s = cluster{n}.engineSpec(6, nil)
	s.Frontend = proto.Frontend_FRONTEND_BLOCK
	_, err = n.EngineStart(t.Context(), s)
	require.NoError(t, err)
	assert.False(t, k.isLeft(), "an engine that names no predecessor")
}
