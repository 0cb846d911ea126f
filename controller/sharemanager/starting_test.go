package sharemanager

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// A share that does not start says why it waits. Its pod is abandoned if another pod may succeed.
func TestAShareThatDoesNotStart(t *testing.T) {
	const pulls, lacks = "pod share-manager-vol is starting: ErrImagePull not found", "the share's pod has no node: 0/3 nodes"
	starting := func(change ...func(*corev1.Pod)) *situation {
		return used().pod(corev1.PodPending, change...).was("starting")
	}
	gaveUp := func(s *situation) *situation {
		s.was("error").failed(1, 0)
		s.Share.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: types.ReasonShareNotStarted, Message: "why"}}
		return s
	}
	for name, tc := range map[string]struct {
		in       *situation
		state    longhorn.ShareManagerState
		reason   string
		says     string
		deletes  bool
		failures int
		avoids   []string
		after    time.Duration
	}{
		"the image is missing, for a moment → starting":               {in: starting(waits, since("True", 59*time.Second, "")), state: "starting", reason: "Starting", says: pulls, after: time.Second},
		"the image is missing, for a minute → delayed":                {in: starting(waits, since("True", time.Minute, "")), state: "starting", reason: "Delayed", says: pulls, after: 4 * time.Minute},
		"the image is missing, for five → another pod, elsewhere":     {in: starting(waits, since("True", 5*time.Minute, "")), state: "error", reason: "NotStarted", says: "the share's pod did not become ready within 5m0s: " + pulls, deletes: true, failures: 1, avoids: []string{"a"}},
		"it is missing again → for ten minutes":                       {in: starting(waits, since("True", 5*time.Minute, "")).failed(1, time.Hour), state: "starting", reason: "Delayed", says: pulls, failures: 1, after: 5 * time.Minute},
		"it is missing on another node, for ten → both are avoided":   {in: starting(waits, since("True", 10*time.Minute, "")).failed(1, time.Hour).with(func(in *Input) { in.Share.Status.FailedNodes = []string{"z"} }), state: "error", reason: "NotStarted", deletes: true, failures: 2, avoids: []string{"z", "a"}, says: "the share's pod did not become ready within 10m0s: " + pulls},
		"it is missing for the hundredth time → for an hour":          {in: starting(waits, since("True", 59*time.Minute, "")).failed(100, time.Hour), state: "starting", reason: "Delayed", says: pulls, failures: 100, after: time.Minute},
		"no node, for a minute → delayed":                             {in: starting(onNoNode, since("False", time.Minute, "0/3 nodes")), state: "starting", reason: "Delayed", says: lacks, after: 4 * time.Minute},
		"no node, for five → another pod, and no node is avoided":     {in: starting(onNoNode, since("False", 5*time.Minute, "0/3 nodes")), state: "error", reason: "NotStarted", says: "the share's pod did not become ready within 5m0s: " + lacks, deletes: true, failures: 1},
		"no node, and a node can be used again → another, no failure": {in: used().with(barred("y", "z")).pod(corev1.PodPending, onNoNode, since("False", time.Second, "0/3 nodes")).was("starting").with(barred("z")), state: "starting", reason: "Starting", says: lacks, deletes: true, after: 59 * time.Second},
		"no node, and the same nodes cannot be used → it waits":       {in: used().with(barred("y", "z")).pod(corev1.PodPending, onNoNode, since("False", time.Second, "0/3 nodes")).was("starting").with(barred("x", "y", "z")), state: "starting", reason: "Starting", says: lacks, after: 59 * time.Second},
		"it has a node, and another can be used again → it stays":     {in: used().with(barred("y", "z")).pod(corev1.PodPending, waits, since("True", time.Second, "")).was("starting").with(barred("z")), state: "starting", reason: "Starting", says: pulls, after: 59 * time.Second},
		"it runs, the volume is elsewhere → another pod":              {in: starting(runs, since("True", 5*time.Minute, "")).with(attachedTo("z")), state: "error", reason: "NotStarted", deletes: true, failures: 1, avoids: []string{"a"}, says: "the share's pod did not become ready within 5m0s: the share's pod on node a waits until the volume is attached there"},
		"it runs, the volume is about to come → another pod":          {in: starting(runs, since("True", 5*time.Minute, "")).with(attachedTo("a")).with(func(in *Input) { in.Volume.Status.State = "attaching" }), state: "error", reason: "NotStarted", deletes: true, failures: 1, avoids: []string{"a"}, says: "the share's pod did not become ready within 5m0s: the share's pod on node a waits until the volume is attached there"},
		"it runs with the volume for a day → it is not disturbed":     {in: starting(runs, since("True", 24*time.Hour, "")).with(attachedTo("a")), state: "starting", reason: "Delayed", says: "the share's pod on node a checks the volume's file system, or starts the NFS server", after: askAgainLimit},
		"the volume is there, the container does not run → another":   {in: starting(waits, since("True", 5*time.Minute, "")).with(attachedTo("a")), state: "error", reason: "NotStarted", deletes: true, failures: 1, avoids: []string{"a"}, says: "the share's pod did not become ready within 5m0s: " + pulls},
		"it was given up and is there still → deleted, counts once":   {in: gaveUp(starting(waits, since("True", 5*time.Minute, ""))), state: "error", reason: "NotStarted", says: "why", deletes: true, failures: 1},
		"its pod failed before it served → the node is avoided":       {in: used().pod(corev1.PodFailed).was("starting"), state: "error", reason: "Failed", says: "the share's pod stopped: ", deletes: true, failures: 1, avoids: []string{"a"}},
		"its pod failed after it served → the node is not avoided":    {in: used().pod(corev1.PodFailed).was("running"), state: "error", reason: "Failed", says: "the share's pod stopped: ", deletes: true, failures: 1},
		"its node went down before it served → that is known anyway":  {in: starting().with(func(in *Input) { in.NodeDown = true }), state: "error", reason: "NodeDown", says: "node a does not answer", deletes: true, failures: 1},
		"it serves, the Service has no address for a minute → told":   {in: used().pod(corev1.PodRunning, is("True", time.Minute)).was("starting").with(func(in *Input) { in.Service.Spec.ClusterIP = "" }), state: "starting", reason: "Delayed", says: "the share's Service has no address yet"},
		"no pod can be made → why":                                    {in: used().was("starting").with(func(in *Input) { in.Unmade = "exceeded quota" }), state: "starting", reason: "Delayed", says: "the share's pod cannot be created: exceeded quota"},
		"no workload any more → the failed nodes are forgotten":       {in: used().unused().with(func(in *Input) { in.Share.Status.FailedNodes = []string{"a"} }), state: "stopped", reason: "NotUsed", says: "no workload uses the volume"},
		"it serves for long enough → the failed nodes are forgotten":  {in: used().pod(corev1.PodRunning, is("True", 30*time.Second)).was("running").failed(1, time.Hour).with(func(in *Input) { in.Share.Status.FailedNodes = []string{"a"} }), state: "running", reason: "Running", says: "the share's pod serves the volume on node a"},
		"it has served for a moment → the failed nodes are known yet": {in: used().pod(corev1.PodRunning, is("True", 29*time.Second)).was("running").failed(1, time.Hour).with(func(in *Input) { in.Share.Status.FailedNodes = []string{"z"} }), state: "running", reason: "Running", says: "the share's pod serves the volume on node a", failures: 1, avoids: []string{"z"}, after: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan(tc.in.Input)
			c := types.FindCondition(p.Status.Conditions, types.ConditionReady)
			assert.Equal(t, tc.state, p.Status.State)
			assert.Equal(t, tc.reason, c.Reason)
			assert.Equal(t, tc.says, c.Message)
			assert.Equal(t, tc.deletes, p.DeletePod != nil, "the pod is deleted")
			assert.Equal(t, tc.failures, p.Status.Failures)
			assert.Equal(t, tc.avoids, p.Status.FailedNodes)
			if tc.failures > tc.in.Share.Status.Failures {
				assert.Equal(t, types.Timestamp(now), p.Status.FailedAt)
			}
			assert.Equal(t, tc.after, p.After)
		})
	}
}

func barred(nodes ...string) func(*Input) { return func(in *Input) { in.Barred = nodes } }

// This holds for a topology of a StorageClass, too.
func TestAPodSaysWhichNodesItWasBarredFrom(t *testing.T) {
	s := used().with(barred("y", "z"))
	for _, zone := range []string{"1", "2"} {
		s.Topologies = append(s.Topologies, corev1.TopologySelectorTerm{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "zone", Values: []string{zone}}}})
	}
	s.pod(corev1.PodPending, onNoNode)
	assert.Equal(t, []string{"y", "z", "y", "z"}, barredBy(s.Pod))
	assert.Empty(t, barredBy(used().pod(corev1.PodPending).Pod))
	assert.Empty(t, barredBy(&corev1.Pod{}))
}

func TestNodesWhereTheShareFailedAreRememberedUpToABound(t *testing.T) {
	p := &Plan{}
	for _, node := range []string{"01", "02", "02", "03", "04", "05", "06", "07", "08", "09", "10", "11", "12", "13", "14", "15", "16", "17"} {
		p.avoid(node)
	}
	assert.Equal(t, []string{"02", "03", "04", "05", "06", "07", "08", "09", "10", "11", "12", "13", "14", "15", "16", "17"}, p.Status.FailedNodes)
}

func TestThePodPrefersNodesWhereNoneFailed(t *testing.T) {
	s := used().with(func(in *Input) { in.Near = []string{"a", "c"} })
	s.Share.Status.FailedNodes = []string{"a", "z"}
	liked := newPod(s.Input).Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	require.Len(t, liked, 2)
	assert.Equal(t, []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"c"}}}, liked[0].Preference.MatchFields)
	assert.Equal(t, []corev1.NodeSelectorRequirement{
		{Key: "metadata.name", Operator: "NotIn", Values: []string{"a"}}, {Key: "metadata.name", Operator: "NotIn", Values: []string{"z"}},
	}, liked[1].Preference.MatchFields)
	assert.EqualValues(t, 100, liked[1].Weight)
}

func TestWhyPodsCouldNotBeMadeIsKnownOfEachShare(t *testing.T) {
	u := &unmade{}
	u.tried("a", errors.New("quota"), now)
	u.tried("b", errors.New("webhook"), now)
	assert.Equal(t, "quota", u.why("a"))
	u.tried("a", queue.ErrStale, now)
	assert.Empty(t, u.why("a"), "it is there")
	assert.Equal(t, "webhook", u.why("b"))
	u.tried("b", errors.New("quota"), now.Add(newsEvery-1))
	assert.Equal(t, "webhook", u.why("b"), "each text is written, and each write brings on the next try")
	u.tried("b", errors.New("quota"), now.Add(newsEvery))
	assert.Equal(t, "quota", u.why("b"))
}

func TestADelayIsToldOnce(t *testing.T) {
	h, c := start(t)
	syncs(t, h, c, nil)
	h.CatchUp()
	change(t, h, c, func(p *corev1.Pod) {
		p.Spec.NodeName, p.Status.Phase = "a", corev1.PodPending
		since("True", 0, "")(p)
		p.Status.Conditions[0].LastTransitionTime.Time = h.Clock.Now()
		waits(p)
	})
	got, err := c.sync(t.Context(), "vol")
	require.NoError(t, err)
	h.CatchUp()
	h.ExpectEvents()
	h.Clock.Step(got.RequeueAfter)
	for range 3 {
		syncs(t, h, c, nil)
		h.CatchUp()
	}
	h.ExpectEvents("Warning ShareDelayed vol: The volume is not served over NFS yet: pod share-manager-vol is starting: ErrImagePull not found")
	h.Clock.Step(4 * time.Minute)
	syncs(t, h, c, nil)
	h.ExpectEvents("Warning ShareFailed vol: The volume is not served over NFS: the share's pod did not become ready within 5m0s: pod share-manager-vol is starting: ErrImagePull not found")
}

// A webhook or a quota may refuse the pod until an administrator changes it.
func TestAPodThatTheAPIServerRefusesIsTold(t *testing.T) {
	h, c := start(t)
	refused := apierrors.NewForbidden(corev1.Resource("pods"), "share-manager-vol", errors.New("exceeded quota"))
	says := "the share's pod cannot be created: create pods share-manager-vol: " + refused.Error()
	for range 3 {
		h.Fail("create", "pods", refused)
		_, err := c.sync(t.Context(), "vol")
		require.ErrorIs(t, err, refused)
		h.CatchUp()
	}
	s, err := c.Shares.Get("vol")
	require.NoError(t, err)
	assert.Equal(t, says, types.FindCondition(s.Status.Conditions, types.ConditionReady).Message)
	h.ExpectEvents("Warning ShareDelayed vol: The volume is not served over NFS yet: " + says)
	syncs(t, h, c, nil)
	h.CatchUp()
	syncs(t, h, c, nil)
	h.CatchUp()
	s, err = c.Shares.Get("vol")
	require.NoError(t, err)
	assert.Equal(t, "pod share-manager-vol is starting", types.FindCondition(s.Status.Conditions, types.ConditionReady).Message)
}

// All nodes were down when the pod was created, as after a power failure of the whole cluster.
func TestAPodThatNoNodeMayHaveIsMadeAnewWhenOneIsBack(t *testing.T) {
	h, c := start(t)
	ready, err := c.Nodes.GetRO("a")
	require.NoError(t, err)
	down, err := c.Nodes.GetRO("b")
	require.NoError(t, err)
	off := down.DeepCopy()
	off.Name = "a"
	h.Overwrite(off)
	h.CatchUp()
	syncs(t, h, c, nil)
	h.CatchUp()
	pod, err := c.Pods.GetRO("share-manager-vol")
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "c"}, barredBy(pod))
	h.Writes()
	syncs(t, h, c, nil)
	h.CatchUp()
	h.ExpectWrites("update sharemanagers/vol/status")
	syncs(t, h, c, nil)
	h.ExpectWrites()

	h.Overwrite(ready.DeepCopy())
	h.CatchUp()
	syncs(t, h, c, nil)
	h.CatchUp()
	h.ExpectWrites("delete pods/share-manager-vol")
	syncs(t, h, c, nil)
	h.CatchUp()
	pod, err = c.Pods.GetRO("share-manager-vol")
	require.NoError(t, err)
	assert.Equal(t, []string{"b", "c"}, barredBy(pod))
}

// If no node can have the volume, there is no reason for another pod. If its engine failed here, there is.
func TestAPodWaitsForAVolumeThatNoNodeCanHave(t *testing.T) {
	fault := func(status longhorn.ConditionStatus, reason string, ago time.Duration) func(*Input) {
		return func(in *Input) {
			in.Volume.Status.Conditions = []longhorn.Condition{{Type: types.ConditionFaulted, Status: status, Reason: reason, Message: "no replica runs", LastTransitionTime: types.Timestamp(now.Add(-ago))}}
		}
	}
	for name, c := range map[string]struct {
		fault func(*Input)
		given bool
		after time.Duration
		says  string
	}{
		"no replica, for an hour → waits":                    {fault("True", types.ReasonReplicaMissing, time.Hour), false, askAgainLimit, "the share's pod on node a waits for the volume, which cannot be attached: no replica runs"},
		"not fenced, for an hour → waits":                    {fault("True", types.ReasonNotFenced, time.Hour), false, askAgainLimit, ""},
		"the engine failed there, for an hour → given up":    {fault("True", types.ReasonEngineFailed, time.Hour), true, 0, ""},
		"the fault was over a minute ago → has its time":     {fault("False", "", time.Minute), false, askAgainLimit, "the share's pod on node a waits until the volume is attached there"},
		"the fault was over five minutes ago → given up":     {fault("False", "", 5*time.Minute), true, 0, ""},
		"it never had a fault, and waits too long → as ever": {func(*Input) {}, true, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan(used().pod(corev1.PodRunning, runs, since("True", time.Hour, "")).was("starting").with(c.fault).Input)
			assert.Equal(t, c.given, p.DeletePod != nil)
			if !c.given {
				assert.Equal(t, c.after, p.After)
				assert.Contains(t, types.FindCondition(p.Status.Conditions, types.ConditionReady).Message, c.says)
			}
		})
	}
}
