package sharemanager

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// A pod reports later that its server cannot record its clients. Nothing is lost yet, but the next server will not know
// them.
func TestWhatAPodSaysLater(t *testing.T) {
	unusable := types.ShareRecovery{Incident: "two", Reason: types.ReasonRecoveryDataUnusable, Message: "it is full", FoundAt: now}
	lost := types.ShareRecovery{Incident: "two", Reason: types.ReasonRecoveryDataMissing, Message: "the server before this one was not recorded", FoundAt: now.Add(-time.Minute)}
	asked := func() *situation { return serves().after("pod").clientState("True", types.ReasonRecoveryDataKept) }
	for name, c := range map[string]struct {
		in       *situation
		reason   string
		requests int
		events   []string
	}{
		"nothing new → stays": {asked().says(types.ShareRecovery{}), types.ReasonRecoveryDataKept, 0, nil},
		"no answer → stays":   {asked(), types.ReasonRecoveryDataKept, 0, nil},
		"it cannot record → told, no restart yet": {
			asked().says(unusable), types.ReasonRecoveryDataUnusable, 0,
			[]string{"ClientStateNotRecorded The volume's clients lose their open files and locks when the share's pod stops: it is full"},
		},
		"the same again → nothing": {asked().knows("two").says(unusable), types.ReasonRecoveryDataKept, 0, nil},
		"its next server did not know them → restarts": {
			asked().says(lost), types.ReasonRecoveryDataMissing, 1,
			[]string{"ClientStateLost The volume's clients have lost their open files and locks: the server before this one was not recorded (incident two). The manager has requested a restart of the pods that use the volume and started before " + types.Timestamp(now.Add(-time.Minute))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan(c.in.Input)
			assert.Equal(t, c.reason, types.FindCondition(p.Status.Conditions, types.ConditionClientStateKept).Reason)
			assert.Len(t, p.Status.RemountRequests, c.requests)
			var events []string
			for _, e := range p.Events {
				events = append(events, e.Reason+" "+e.Message)
			}
			assert.Equal(t, c.events, events)
		})
	}
	p := plan(asked().says(unusable).Input)
	next := serves().says(types.ShareRecovery{})
	next.Share.Status = p.Status
	next.Share.Status.ServedBy = "an earlier pod"
	assert.Len(t, plan(next.Input).Status.RemountRequests, 1, "the next server restarts the pods that use the volume")
}

func TestAFileSystemThatCouldNotGrowIsTold(t *testing.T) {
	s := serves().after("pod").says(types.ShareRecovery{NotGrown: "the kernel refuses"})
	p := plan(s.Input)
	c := types.FindCondition(p.Status.Conditions, types.ConditionExpanded)
	assert.Equal(t, longhorn.ConditionFalse, c.Status)
	assert.Equal(t, types.ReasonFilesystemNotGrown, c.Reason)
	assert.Contains(t, c.Message, "the file system does not fill its device: the kernel refuses. The next pod of the share grows the file system before it is mounted")
	require.Len(t, p.Events, 1)
	assert.Equal(t, types.EventFailedExpansion, p.Events[0].Reason)
	s.Share.Status = p.Status
	assert.Empty(t, plan(s.Input).Events, "once")
	s.says(types.ShareRecovery{})
	assert.Empty(t, types.FindCondition(plan(s.Input).Status.Conditions, types.ConditionExpanded).Reason, "it has grown")
}

func TestAKernelThatDoesNotLimitClientsIsReported(t *testing.T) {
	listed := map[string]string{types.ShareClientsKey: "192.0.2.1/32"}
	s := serves().after("pod").says(types.ShareRecovery{NotLimited: "no nftables"})
	s.Clients = listed
	s.Pod.Spec.Volumes = append(s.Pod.Spec.Volumes, corev1.Volume{Name: clientsVolume})
	limited := func(p Plan) longhorn.Condition {
		return types.FindCondition(p.Status.Conditions, types.ConditionClientsLimited)
	}
	p := plan(s.Input)
	c := limited(p)
	assert.Equal(t, longhorn.ConditionFalse, c.Status)
	assert.Equal(t, types.ReasonClientsNotLimited, c.Reason)
	assert.Equal(t, "the kernel of node "+s.Pod.Spec.NodeName+" cannot limit clients to the listed ones: no nftables", c.Message)
	require.Len(t, p.Events, 1)
	assert.Equal(t, types.EventClientsNotLimited, p.Events[0].Reason)

	s.Share.Status, s.Recovery = p.Status, nil
	p = plan(s.Input)
	assert.Equal(t, c, limited(p), "between two answers the last one counts")
	assert.Empty(t, p.Events, "once")
	s.says(types.ShareRecovery{})
	assert.Equal(t, longhorn.ConditionTrue, limited(plan(s.Input)).Status, "the kernel took the list")

	s.says(types.ShareRecovery{NotLimited: "no nftables"})
	s.Clients = map[string]string{types.ShareClientsKey: types.ShareClientsAny, types.ShareClientsReasonKey: types.ReasonClientsAllowedBySetting}
	assert.Equal(t, types.ReasonClientsAllowedBySetting, limited(plan(s.Input)).Reason, "a setting lets any client in")
}

// A pod that has answered is asked now and then. A pod that does not answer then is asked more rarely.
func TestAPodThatHasAnsweredIsAskedNowAndThen(t *testing.T) {
	h, c := start(t)
	asks, silent := 0, false
	c.Ask = func(context.Context, string) (types.ShareRecovery, error) {
		asks++
		if silent {
			return types.ShareRecovery{}, errors.New("no answer")
		}
		return types.ShareRecovery{}, nil
	}
	serve(t, h, c, "pod")
	syncs(t, h, c, nil)
	h.CatchUp()
	asks = 0
	h.Writes()
	look := func(want int, again time.Duration) {
		t.Helper()
		result, err := c.sync(t.Context(), "vol")
		require.NoError(t, err)
		assert.Equal(t, want, asks)
		assert.Equal(t, again, result.RequeueAfter)
		h.ExpectWrites() // at rest nothing is written
	}
	look(0, 5*time.Minute)
	h.Clock.Step(4 * time.Minute)
	look(0, time.Minute)
	h.Clock.Step(time.Minute)
	look(1, 5*time.Minute)
	look(1, 5*time.Minute)
	silent = true
	h.Clock.Step(5 * time.Minute)
	look(2, time.Hour)
	h.Clock.Step(time.Hour)
	silent = false
	look(3, 5*time.Minute)
	c.asked.forget("vol")
	look(3, 5*time.Minute) // like a new leader
}
