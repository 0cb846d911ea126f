package engineteardown_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/longhorn-lep/longhorn-manager/controller/engineteardown"
	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// server holds one engine or none, and records the last write.
type server struct{ engine, written *longhorn.Engine }

func (s *server) Live(_ context.Context, name string) (*longhorn.Engine, error) {
	if s.engine == nil || s.engine.Name != name {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "engines"}, name)
	}
	return s.engine.DeepCopy(), nil
}

func (s *server) Update(_ context.Context, e *longhorn.Engine) (*longhorn.Engine, error) {
	s.written = e
	return e, nil
}

func TestTheFinalizerIsDroppedOnlyIfALiveReadShowsTheSameEngine(t *testing.T) {
	ended := func(e *longhorn.Engine) {
		e.Spec.NodeID, e.Status.CurrentState = "n", longhorn.InstanceStateStopped
		e.DeletionTimestamp = &metav1.Time{Time: testutil.Now}
		types.AddFinalizer(e)
	}
	for _, tc := range []struct {
		name   string
		change func(*longhorn.Engine) // in the API server; nil: none
		want   error
	}{
		{"as it was at the decision → dropped", nil, nil},
		{"never started → dropped", func(e *longhorn.Engine) { e.Status.CurrentState = "" }, nil},
		{"on another node → kept", func(e *longhorn.Engine) { e.Spec.NodeID = "another" }, queue.ErrStale},
		{"on no node → kept, until the decision was based on that", func(e *longhorn.Engine) { e.Spec.NodeID = "" }, queue.ErrStale},
		{"running → kept", func(e *longhorn.Engine) { e.Status.CurrentState = longhorn.InstanceStateRunning }, queue.ErrStale},
		{"stopping → kept", func(e *longhorn.Engine) { e.Status.CurrentState = longhorn.InstanceStateStopping }, queue.ErrStale},
		{"failed → kept", func(e *longhorn.Engine) { e.Status.CurrentState = longhorn.InstanceStateError }, queue.ErrStale},
		{"a later one of the name → kept", func(e *longhorn.Engine) { e.UID = "later" }, queue.ErrStale},
		{"not deleted → kept", func(e *longhorn.Engine) { e.DeletionTimestamp = nil }, queue.ErrStale},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &server{engine: build.Engine("vol", ended, func(e *longhorn.Engine) { e.ResourceVersion = "7" })}
			if tc.change != nil {
				tc.change(s.engine)
			}
			require.ErrorIs(t, engineteardown.DropFinalizer(t.Context(), s, build.Engine("vol", ended)), tc.want)
			if tc.want != nil {
				assert.Nil(t, s.written)
				return
			}
			require.NotNil(t, s.written)
			assert.False(t, types.HasFinalizer(s.written))
			assert.Equal(t, "7", s.written.ResourceVersion, "it must be refused if the engine has changed since the read")
		})
	}
	t.Run("it is gone → not found", func(t *testing.T) {
		assert.True(t, apierrors.IsNotFound(engineteardown.DropFinalizer(t.Context(), &server{}, build.Engine("vol"))))
	})
}

func TestWhenAnEngineMustStop(t *testing.T) {
	wanted := func(e *longhorn.Engine) { e.Spec.DesireState = longhorn.DesireStateRunning }
	deleted := func(e *longhorn.Engine) { e.DeletionTimestamp = &metav1.Time{Time: testutil.Now} }
	assert.False(t, engineteardown.MustStop(build.Engine("vol", wanted)))
	assert.True(t, engineteardown.MustStop(build.Engine("vol")), "not wanted")
	assert.True(t, engineteardown.MustStop(build.Engine("vol", wanted, deleted)), "wanted, and deleted")
}

func TestADeviceThatWasNeverInUseGetsNoCondition(t *testing.T) {
	e := build.Engine("vol")
	s := e.Status.DeepCopy()
	engineteardown.ClearDeviceInUse(e, s, testutil.Now)
	assert.Empty(t, s.Conditions)
}

func TestWhenDeviceInUseIsCleared(t *testing.T) {
	const run, stop = longhorn.DesireStateRunning, longhorn.DesireStateStopped
	for _, tc := range []struct {
		name   string
		desire longhorn.DesireState
		state  longhorn.InstanceState
		want   longhorn.ConditionStatus
	}{
		{"it must stop and still runs → stays", stop, longhorn.InstanceStateRunning, longhorn.ConditionTrue},
		{"it must stop and is stopping → stays", stop, longhorn.InstanceStateStopping, longhorn.ConditionTrue},
		{"it is stopped → over", stop, longhorn.InstanceStateStopped, longhorn.ConditionFalse},
		{"it has failed → over, its users are not waited for", stop, longhorn.InstanceStateError, longhorn.ConditionFalse},
		{"it must run again → over", run, longhorn.InstanceStateRunning, longhorn.ConditionFalse},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := build.Engine("vol", func(e *longhorn.Engine) {
				e.Spec.DesireState, e.Status.CurrentState = tc.desire, tc.state
				e.Status.Conditions = []longhorn.Condition{{Type: types.ConditionDeviceInUse, Status: longhorn.ConditionTrue}}
			})
			s := e.Status.DeepCopy()
			engineteardown.ClearDeviceInUse(e, s, testutil.Now)
			assert.Equal(t, tc.want, types.FindCondition(s.Conditions, types.ConditionDeviceInUse).Status)
		})
	}
}
