package sharemanager

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestWhenAPodThatServedIsReplaced(t *testing.T) {
	const (
		unreadyFor15 = "the share's pod on node a has not answered for 15s"
		notServing   = "the share's pod on node a has not served the volume for 15s"
		silentReady  = "the share's pod on node a has answered none of the leader's questions for 15s, although its kubelet reports the pod as ready"
	)
	for name, tc := range map[string]struct {
		ready   corev1.ConditionStatus
		unready time.Duration // for this long
		silent  time.Duration // for this long; 0: it answers, or this is not known
		said    said
		reached bool
		dead    string        // the reason; "": it serves
		after   time.Duration // the time until the next check
	}{
		"ready, answers → serves":                                                             {ready: "True"},
		"ready, silent for a moment → serves":                                                 {ready: "True", silent: 5 * time.Second, after: 10 * time.Second},
		"ready, silent to the leader's connection, answers when asked → serves":               {ready: "True", silent: 15 * time.Second, said: saidServing, reached: true, after: askAgain},
		"ready, says that it does not serve → the kubelet will report that":                   {ready: "True", silent: 15 * time.Second, said: saidNotServing, reached: true, after: askAgain},
		"ready, silent to all → replaced":                                                     {ready: "True", silent: 15 * time.Second, said: saidNothing, reached: true, dead: silentReady},
		"ready, silent, and the leader reaches no pod of the node → it is the node":           {ready: "True", silent: time.Hour, said: saidNothing, after: askAgainLimit},
		"unready for a moment → serves":                                                       {ready: "False", unready: 5 * time.Second, after: 10 * time.Second},
		"unready, and silent for longer → the earlier time counts":                            {ready: "False", unready: 10 * time.Second, silent: 14 * time.Second, after: time.Second},
		"unready and silent: the pod stands still → replaced after 15 s of silence":           {ready: "False", unready: 10 * time.Second, silent: 15 * time.Second, said: saidNothing, dead: unreadyFor15},
		"unready for long, silent for a moment → the earlier time counts":                     {ready: "False", unready: 15 * time.Second, silent: time.Second, said: saidNothing, dead: unreadyFor15},
		"unready, not known to the leader, says nothing → replaced":                           {ready: "False", unready: 15 * time.Second, said: saidNothing, dead: unreadyFor15},
		"unready, the kubelet's report is late, and the pod answers → serves":                 {ready: "False", unready: time.Hour, said: saidServing, after: askAgainLimit},
		"unready, says that it does not serve → replaced, as its kubelet reports":             {ready: "False", unready: 15 * time.Second, said: saidNotServing, dead: notServing},
		"unready for some time, and the pod answers → asked less often":                       {ready: "False", unready: 40 * time.Second, said: saidServing, after: 10 * time.Second},
		"unready, it has no address to ask → replaced":                                        {ready: "False", unready: 15 * time.Second, dead: unreadyFor15},
		"not known whether it is ready (its node is lost to Kubernetes), says that it serves": {ready: "Unknown", unready: time.Hour, said: saidServing, after: askAgainLimit},
	} {
		t.Run(name, func(t *testing.T) {
			in := used().pod(corev1.PodRunning, is(tc.ready, tc.unready)).was("running").with(func(in *Input) {
				in.Said, in.Reached = tc.said, tc.reached
				if tc.ready != "True" {
					in.Unready = now.Add(-tc.unready)
				}
				if tc.silent > 0 {
					in.Silent = now.Add(-tc.silent)
				}
			}).Input
			p := plan(in)
			c := types.FindCondition(p.Status.Conditions, types.ConditionReady)
			if tc.dead == "" {
				assert.Equal(t, longhorn.ShareManagerStateRunning, p.Status.State)
				assert.Equal(t, "nfs://10.0.0.9/vol", p.Status.Endpoint)
				assert.Equal(t, tc.after, p.After)
				assert.Nil(t, p.DeletePod)
				assert.Equal(t, types.ReasonPodRunning, c.Reason)
				return
			}
			assert.Equal(t, longhorn.ShareManagerStateError, p.Status.State)
			assert.Equal(t, []string{types.ReasonShareNotAnswering, tc.dead}, []string{c.Reason, c.Message})
			require.NotNil(t, p.DeletePod)
			assert.True(t, p.DeletePod.Soon)
			assert.False(t, p.DeletePod.Now, "its kubelet may end it")
			assert.Equal(t, []Event{{"Warning", types.EventShareFailed, "The volume is not served over NFS: " + tc.dead}}, p.Events)
		})
	}
}

// inError is a share with a pod that was found not to answer.
func inError(change func(*corev1.Pod)) *situation {
	s := used().pod(corev1.PodRunning, is("False", 20*time.Second), change).was("error").failed(1, 0)
	s.Share.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: "False", Reason: types.ReasonShareNotAnswering, Message: "why"}}
	return s
}

func TestHowAPodThatDoesNotAnswerEnds(t *testing.T) {
	// The end of its grace period, from now on.
	grace := func(d time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now.Add(d)} }
	}
	for name, tc := range map[string]struct {
		in    *situation
		want  *Deletion
		state longhorn.ShareManagerState
		after time.Duration
	}{
		"it is being deleted → its kubelet has the time":                {inError(grace(3 * time.Second)), nil, "error", 3*time.Second + silentEndLimit},
		"its kubelet has not ended it → at once":                        {inError(grace(-silentEndLimit)), &Deletion{Why: "the share's pod does not answer, and has not stopped 2s after its grace period", Now: true, Soon: true}, "error", 0},
		"its node is down now → at once":                                {inError(grace(3 * time.Second)).with(func(in *Input) { in.NodeDown = true }), &Deletion{Why: "node a does not answer", Now: true}, "error", 0},
		"the deletion has failed, and it still says nothing → again":    {inError(func(*corev1.Pod) {}).with(func(in *Input) { in.Said = saidNothing }), &Deletion{Why: "the share's pod on node a has not answered for 15s", Soon: true}, "error", 0},
		"the deletion has failed, and it says that it serves → it does": {inError(func(*corev1.Pod) {}).with(func(in *Input) { in.Said = saidServing }), nil, "running", askAgain},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan(tc.in.Input)
			assert.Equal(t, tc.want, p.DeletePod)
			assert.Equal(t, tc.state, p.Status.State)
			if tc.after > 0 {
				assert.Equal(t, tc.after, p.After)
			}
			assert.Equal(t, 1, p.Status.Failures, "it counts once")
			if tc.state == longhorn.ShareManagerStateRunning {
				assert.Equal(t, "nfs://10.0.0.9/vol", p.Status.Endpoint)
			}
		})
	}
}

// The grace period and silentEndLimit count from when this process saw the deletion, whatever the API server's clock
// says.
func TestTheGraceOfAPodIsByThisProcessesClock(t *testing.T) {
	grace := int64(silentGrace / time.Second)
	for _, skew := range []time.Duration{-time.Hour, -30 * time.Second, 30 * time.Second} {
		in := inError(func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: now.Add(silentGrace + skew)}, &grace
		}).with(func(in *Input) { in.Ending = now.Add(-time.Second) })
		p := plan(in.Input)
		assert.Nil(t, p.DeletePod, "its kubelet has %v, skew %v", silentGrace, skew)
		assert.Equal(t, silentGrace+silentEndLimit-time.Second, p.After, "skew %v", skew)
		in.Now = in.Now.Add(p.After)
		assert.True(t, plan(in.Input).DeletePod.Now, "skew %v", skew)
	}
}

// TestAPodThatHasNeverBeenReadyAndStandsStill: a pod that waits or checks a file system answers something.
func TestAPodThatHasNeverBeenReadyAndStandsStill(t *testing.T) {
	const why = "the share's pod on node a has not become ready, and has not answered for 15s"
	for name, tc := range map[string]struct {
		state longhorn.ShareManagerState
		mute  time.Duration // 0: it says something
		dead  bool
	}{
		"it checks the file system for hours → left alone":   {state: "starting"},
		"it says nothing for a moment → left alone":          {state: "starting", mute: unreadyLimit - time.Second},
		"it says nothing for unreadyLimit → replaced":        {state: "starting", mute: unreadyLimit, dead: true},
		"its node was taken for dead, and is not: the same":  {state: "error", mute: unreadyLimit, dead: true},
		"its node was taken for dead, and it says something": {state: "error"},
	} {
		t.Run(name, func(t *testing.T) {
			in := used().pod(corev1.PodRunning, is("False", 3*time.Hour)).was(tc.state).with(func(in *Input) {
				in.Unready = now.Add(-3 * time.Hour)
				if tc.mute > 0 {
					in.Said, in.Reached, in.Mute = saidNothing, true, now.Add(-tc.mute)
				}
				in.Volume.Status.State, in.Volume.Status.CurrentNodeID = longhorn.VolumeStateAttached, "a"
				in.Pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: containerName, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
			}).Input
			p := plan(in)
			if !tc.dead {
				assert.Nil(t, p.DeletePod)
				assert.Equal(t, askAgainLimit, p.After, "it is asked again")
				return
			}
			assert.Equal(t, &Deletion{Why: why, Soon: true}, p.DeletePod)
			assert.Equal(t, types.ReasonShareNotAnswering, types.FindCondition(p.Status.Conditions, types.ConditionReady).Reason)
		})
	}
}

// The leader's questions detect a frozen pod at once. One second is reserved for its ticks and writes.
func TestAPodThatStandsStillIsReplacedIn25Seconds(t *testing.T) {
	assert.LessOrEqual(t, unreadyLimit+askLimit+silentGrace+silentEndLimit+time.Second, 25*time.Second)
}
