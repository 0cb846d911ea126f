package instancemanager

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const image = "example/longhorn:1"

// asBefore are settings that result in the same pods as releases without such settings.
var asBefore = settings.PodSettings{settings.PriorityClass: "", settings.GuaranteedInstanceManagerCPU: "0"}

func stopped() *longhorn.InstanceManager { return build.InstanceManager("node-1") }

func running(ip, process string) *longhorn.InstanceManager {
	return build.RunningInstanceManager("node-1", ip, process)
}

func unknown(ip, process string) *longhorn.InstanceManager {
	m := running(ip, process)
	m.Status.CurrentState, m.Status.UnknownSince = longhorn.InstanceManagerStateUnknown, "2026-01-02T03:00:00Z"
	return m
}

// pod is the manager's pod, created an hour ago, running at 10.0.0.1.
func pod(changes ...func(*corev1.Pod)) *corev1.Pod {
	p := newPod(stopped(), PodOptions{}, asBefore, nil)
	p.UID = "pod-uid"
	p.CreationTimestamp = metav1.NewTime(testutil.Now.Add(-time.Hour))
	p.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.0.0.1",
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: containerName, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func pending(p *corev1.Pod) {
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		Name: containerName, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}},
	}}}
}

// ended is a pod that ran for that long and ended that long ago.
func ended(lived, ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		end := testutil.Now.Add(-ago)
		p.CreationTimestamp = metav1.NewTime(end.Add(-lived))
		p.Status.Phase = corev1.PodFailed
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: "Error", ExitCode: 2, FinishedAt: metav1.NewTime(end),
		}}
	}
}

func ofImage(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Image = name }
}

func serving(engines, replicas int) *Snapshot {
	return &Snapshot{Process: "process-1", Port: 8500, Engines: engines, Replicas: replicas}
}

var planCases = []struct {
	name    string
	manager *longhorn.InstanceManager
	pod     *corev1.Pod
	process *Snapshot
	needed  bool

	action  Action
	after   time.Duration
	state   longhorn.InstanceManagerState
	reason  string
	address string // IP address and process
}{
	{name: "no pod → made", manager: stopped(), action: ActionCreate, state: "stopped", reason: "NotFound"},
	{
		name: "no pod any more → made, the old address is withdrawn", manager: running("10.0.0.1", "process-0"),
		action: ActionCreate, state: "stopped", reason: "NotFound",
	},
	{
		name: "pod of another owner → left alone", manager: stopped(),
		pod: pod(func(p *corev1.Pod) { p.OwnerReferences[0].UID = "another" }), process: serving(0, 0), state: "error", reason: "Failed",
	},
	{
		name: "pod without owner → left alone", manager: stopped(),
		pod: pod(func(p *corev1.Pod) { p.OwnerReferences = nil }), state: "error", reason: "Failed",
	},
	{
		name: "pod being deleted → waited for, though it still answers", manager: running("10.0.0.1", "process-1"),
		pod: pod(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: testutil.Now} }), process: serving(1, 1), needed: true,
		state: "stopped", reason: "Deleting",
	},
	{name: "pod pending → starting", manager: stopped(), pod: pod(pending), state: "starting", reason: "Starting"},
	{
		name: "pod runs without an address → starting", manager: stopped(),
		pod: pod(func(p *corev1.Pod) { p.Status.PodIP = "" }), process: serving(0, 0), state: "starting", reason: "Starting",
	},
	{name: "pod runs, never answered → starting", manager: stopped(), pod: pod(), state: "starting", reason: "Starting"},
	{
		name: "pod runs and answers → running, at its address", manager: stopped(), pod: pod(), process: serving(0, 0),
		state: "running", reason: "Running", address: "10.0.0.1 process-1",
	},
	{
		name: "pod answers as another process → running, as that one", manager: running("10.0.0.1", "process-0"), pod: pod(), process: serving(1, 2), needed: true,
		state: "running", reason: "Running", address: "10.0.0.1 process-1",
	},
	{
		name: "pod does not answer now, did at this address → as it was", manager: running("10.0.0.1", "process-1"), pod: pod(), needed: true,
		state: "running", reason: "", address: "10.0.0.1 process-1",
	},
	{
		name: "pod does not answer yet, the leader said unknown while the node was down → as it was", manager: unknown("10.0.0.1", "process-1"), pod: pod(), needed: true,
		state: "unknown", reason: "", address: "10.0.0.1 process-1",
	},
	{
		name: "pod answers, the leader said unknown while the node was down → running", manager: unknown("10.0.0.1", "process-0"), pod: pod(), process: serving(0, 0),
		state: "running", reason: "Running", address: "10.0.0.1 process-1",
	},
	{
		name: "pod does not answer, another address is recorded → starting", manager: running("10.0.0.9", "process-0"), pod: pod(), needed: true,
		state: "starting", reason: "Starting",
	},

	{
		name: "pod ended after an hour → replaced at once", manager: running("10.0.0.1", "process-1"), pod: pod(ended(time.Hour, 0)), needed: true,
		action: ActionDelete, state: "error", reason: "Failed",
	},
	{
		name: "pod ended in its first minute → replaced 10 s after its end", manager: stopped(), pod: pod(ended(59*time.Second, 3*time.Second)),
		after: 7 * time.Second, state: "error", reason: "Failed",
	},
	{
		name: "pod ended in its first minute, 10 s ago → replaced", manager: stopped(), pod: pod(ended(time.Second, 10*time.Second)),
		action: ActionDelete, state: "error", reason: "Failed",
	},
	{
		name: "pod succeeded → replaced like any that ended", manager: stopped(),
		pod:    pod(ended(time.Hour, 0), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		action: ActionDelete, state: "error", reason: "Failed",
	},
	{
		name: "pod refused by its kubelet just now → replaced in 10 s", manager: stopped(),
		pod: pod(func(p *corev1.Pod) {
			p.CreationTimestamp = metav1.NewTime(testutil.Now)
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "NodeAffinity"}
		}), after: 10 * time.Second, state: "error", reason: "Failed",
	},

	{
		name: "other image, serves nothing, nothing needed → replaced", manager: running("10.0.0.1", "process-1"), pod: pod(ofImage("old")), process: serving(0, 0),
		action: ActionDelete, state: "running", reason: "Running", address: "10.0.0.1 process-1",
	},
	{
		name: "other image, an engine → kept", manager: running("10.0.0.1", "process-1"), pod: pod(ofImage("old")), process: serving(1, 0),
		state: "running", reason: "Running", address: "10.0.0.1 process-1",
	},
	{
		name: "other image, a replica → kept", manager: running("10.0.0.1", "process-1"), pod: pod(ofImage("old")), process: serving(0, 1),
		state: "running", reason: "Running", address: "10.0.0.1 process-1",
	},
	{
		name: "other image, something shall run → kept", manager: running("10.0.0.1", "process-1"), pod: pod(ofImage("old")), process: serving(0, 0), needed: true,
		state: "running", reason: "Running", address: "10.0.0.1 process-1",
	},
	{
		name: "other image, does not answer → kept", manager: running("10.0.0.1", "process-1"), pod: pod(ofImage("old")),
		state: "running", address: "10.0.0.1 process-1",
	},
	{
		name: "other image that cannot be started → replaced, needed or not", manager: stopped(), pod: pod(pending, ofImage("wrong")), needed: true,
		action: ActionDelete, state: "starting", reason: "Starting",
	},
}

func TestPlan(t *testing.T) {
	for _, c := range planCases {
		t.Run(c.name, func(t *testing.T) {
			in := Input{Node: "node-1", Manager: c.manager, Pod: c.pod, Image: image, Settings: asBefore, Process: c.process, Needed: c.needed}
			if c.process != nil {
				in.Process.Version = "v2"
			}
			before := c.manager.DeepCopy()
			p := plan(in, testutil.Now)
			assert.Equal(t, c.action, p.Action)
			assert.Equal(t, c.after, p.After)
			assert.Equal(t, p.Why != "", p.Action == ActionDelete, "action %q because %q", p.Action, p.Why)
			s := p.Status
			condition := types.FindCondition(s.Conditions, "PodReady")
			assert.Equal(t, "node-1", s.OwnerID)
			assert.Equal(t, c.state, s.CurrentState)
			assert.Equal(t, c.manager.Status.UnknownSince, s.UnknownSince, "the leader alone writes it, or the two would take turns")
			assert.Equal(t, c.reason, condition.Reason)
			address := ""
			if s.IP != "" || s.UUID != "" || s.Port != 0 {
				address = s.IP + " " + s.UUID
			}
			assert.Equal(t, c.address, address)
			if address != "" {
				assert.Equal(t, 8500, s.Port)
			}
			if c.process != nil && c.address != "" {
				assert.Equal(t, "v2", s.Version)
			}
			assert.Equal(t, c.manager, before, "the plan changed its input")
		})
	}
}

func TestThePodIsWhatTheDataPlaneNeeds(t *testing.T) {
	env := func(o PodOptions) []corev1.EnvVar { return newPod(stopped(), o, asBefore, nil).Spec.Containers[0].Env }
	assert.Contains(t, env(PodOptions{Devices: "fuse"}), corev1.EnvVar{Name: "LONGHORN_DEVICES", Value: "fuse"})
	assert.NotContains(t, fmt.Sprint(env(PodOptions{})), "LONGHORN_DEVICES", "the program's default")
	p := newPod(stopped(), PodOptions{ServiceAccount: "longhorn"}, asBefore, nil)
	name := types.InstanceManagerName("node-1")
	assert.Equal(t, name, p.Name)
	assert.Equal(t, "node-1", p.Spec.NodeName)
	assert.Equal(t, corev1.RestartPolicy("Never"), p.Spec.RestartPolicy)
	assert.Equal(t, int64(60), *p.Spec.TerminationGracePeriodSeconds)
	wantLabels := map[string]string{
		"longhorn.io/managed-by": "longhorn-manager", "longhorn.io/component": "instance-manager",
		"longhorn.io/instance-manager-type": "aio", "longhorn.io/node": "node-1", "longhorn.io/data-engine": "v1",
	}
	assert.Equal(t, wantLabels, p.Labels)
	assert.True(t, metav1.IsControlledBy(p, stopped()))
	assert.Equal(t, "InstanceManager", p.OwnerReferences[0].Kind)
	assert.Equal(t, "system-node-critical", p.Spec.PriorityClassName, "it would be evicted before those whose data it serves")
	require.Len(t, p.Spec.Tolerations, 1)
	assert.Equal(t, corev1.TolerationOperator("Exists"), p.Spec.Tolerations[0].Operator)
	assert.Empty(t, p.Spec.Tolerations[0].Key)
	c := p.Spec.Containers[0]
	wantArgs := []string{
		"instance-manager", "--root", "/host", "--data-listen", ":8500",
		"--grpc-socket", "/run/longhorn/instance-manager.sock", "--tool-socket", "/run/longhorn/nbd.sock",
	}
	assert.Equal(t, wantArgs, c.Args)
	assert.True(t, *c.SecurityContext.Privileged)
	assert.Equal(t, image, c.Image)
	paths := map[string]string{}
	for i, v := range p.Spec.Volumes {
		assert.Equal(t, v.Name, c.VolumeMounts[i].Name, "mount %d", i)
		paths[v.HostPath.Path] = c.VolumeMounts[i].MountPath
	}
	wantPaths := map[string]string{"/": "/host", "/dev": "/dev", "/run/longhorn": "/run/longhorn"}
	assert.Equal(t, wantPaths, paths)
}

func TestANodeNameThatFitsNoLabelIsShortened(t *testing.T) {
	long := "a-very-long-node-name.of-a-very-long-zone.of-a-very-long-region.example.com"
	label := managerLabels(long)["longhorn.io/node"]
	require.Len(t, label, 63)
	assert.True(t, strings.HasPrefix(label, "a-very-long-node-name.of-a-very-long-zone.of-a-very-"), label)
}

// The status shows what a process can grow together with the process's identity, and drops both together.
func TestSnapshotsAreShownWithTheirProcess(t *testing.T) {
	able := serving(0, 0)
	able.TakesSnapshots = true
	in := Input{Node: "node-1", Manager: running("10.0.0.1", "process-1"), Pod: pod(), Image: image, Settings: asBefore, Process: able, Needed: true}
	s := plan(in, testutil.Now).Status
	assert.Equal(t, "process-1", s.SnapshotsUUID)
	in.Manager.Status, in.Process = s, nil
	assert.Equal(t, "process-1", plan(in, testutil.Now).Status.SnapshotsUUID, "it does not answer for a moment")
	in.Process = serving(0, 0)
	assert.Empty(t, plan(in, testutil.Now).Status.SnapshotsUUID, "one of an earlier release")
}

func TestGrowthIsShownWithItsProcess(t *testing.T) {
	able := serving(0, 0)
	able.GrowsReplicas, able.GrowsDevices = true, true
	in := Input{Node: "node-1", Manager: running("10.0.0.1", "process-1"), Pod: pod(), Image: image, Settings: asBefore, Process: able, Needed: true}
	s := plan(in, testutil.Now).Status
	assert.Equal(t, &longhorn.ProcessGrowth{UUID: "process-1", Replicas: true, Devices: true}, s.Growth)
	in.Manager.Status, in.Process = s, nil
	assert.Equal(t, s.Growth, plan(in, testutil.Now).Status.Growth, "it does not answer for a moment")
	in.Process = serving(0, 0)
	assert.Nil(t, plan(in, testutil.Now).Status.Growth, "one of an earlier release")
}
