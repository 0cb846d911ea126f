package explain

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// now is the time of the tests' snapshots.
var now = time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)

func ago(d time.Duration) string { return types.Timestamp(now.Add(-d)) }

// world is a snapshot, with names for the objects that the cases change.
type world struct {
	Snapshot
	v  *longhorn.Volume
	e  *longhorn.Engine
	va *longhorn.VolumeAttachment
}

// newWorld is a cluster without problems: nodes n1, n2, n3 with a disk each, and volume v, attached to n1, with a
// healthy replica on each node.
func newWorld() *world {
	w := &world{Snapshot: Snapshot{Now: now, Namespace: types.Namespace}}
	w.v = build.Volume("v", func(v *longhorn.Volume) {
		v.Spec.NodeID, v.Status.CurrentNodeID = "n1", "n1"
		v.Status.State, v.Status.Robustness, v.Status.Size = longhorn.VolumeStateAttached, longhorn.VolumeRobustnessHealthy, build.GiB
	})
	w.e = build.Engine("v", func(e *longhorn.Engine) {
		e.Spec.NodeID, e.Spec.DesireState, e.Status.CurrentState = "n1", longhorn.DesireStateRunning, longhorn.InstanceStateRunning
		e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1}
		e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{}
	})
	for i := range 3 {
		node := fmt.Sprintf("n%d", i+1)
		n := build.ReadyNode(node, "uuid-"+node)
		im := build.RunningInstanceManager(node, "10.0.0.1", "process-"+node)
		im.Status.Conditions = []longhorn.Condition{{Type: types.ConditionPodReady, Status: longhorn.ConditionTrue, Reason: types.ReasonPodRunning}}
		r := build.PlacedReplica(fmt.Sprintf("v-r-%d", i+1), "v", node, "uuid-"+node, func(r *longhorn.Replica) {
			r.Spec.DesireState, r.Status.CurrentState, r.Status.UUID = longhorn.DesireStateRunning, longhorn.InstanceStateRunning, "process-"+node
		})
		w.e.Status.Epoch.Members = append(w.e.Status.Epoch.Members, r.Name)
		w.e.Status.ReplicaModeMap[r.Name] = longhorn.ReplicaModeRW
		w.Nodes, w.InstanceManagers, w.Replicas = append(w.Nodes, n), append(w.InstanceManagers, im), append(w.Replicas, r)
		w.KubeNodes = append(w.KubeNodes, build.KubeNode(node))
		w.Pods = append(w.Pods, build.Pod("longhorn-manager-"+node, node, func(p *corev1.Pod) { p.Labels[types.LabelApp] = types.AppManager }))
	}
	w.va = build.VolumeAttachment("v")
	w.Volumes, w.Engines, w.Attachments = []*longhorn.Volume{w.v}, []*longhorn.Engine{w.e}, []*longhorn.VolumeAttachment{w.va}
	w.Classes = []*storagev1.StorageClass{{Provisioner: types.DriverName}}
	w.Classes[0].Name = "longhorn"
	return w
}

// condition sets a condition in a list.
func condition(list *[]longhorn.Condition, kind string, status longhorn.ConditionStatus, reason, message string) {
	*list, _ = types.SetCondition(*list, longhorn.Condition{Type: kind, Status: status, Reason: reason, Message: message}, now)
}

func (w *world) volumeSays(kind string, status longhorn.ConditionStatus, reason, message string) {
	condition(&w.v.Status.Conditions, kind, status, reason, message)
}

func (w *world) nodeSays(node int, kind string, status longhorn.ConditionStatus, reason, message string) {
	condition(&w.Nodes[node-1].Status.Conditions, kind, status, reason, message)
}

func (w *world) disk(node int, change func(*longhorn.DiskSpec, *longhorn.DiskStatus)) {
	n := w.Nodes[node-1]
	spec, status := n.Spec.Disks["disk-1"], n.Status.DiskStatus["disk-1"]
	change(&spec, &status)
	n.Spec.Disks["disk-1"], n.Status.DiskStatus["disk-1"] = spec, status
}

func (w *world) diskSays(node int, kind string, status longhorn.ConditionStatus, reason, message string) {
	w.disk(node, func(_ *longhorn.DiskSpec, s *longhorn.DiskStatus) {
		condition(&s.Conditions, kind, status, reason, message)
	})
}

// lose makes replica i fail, so that the volume has been degraded for a minute.
func (w *world) lose(i int, reason, message string) *longhorn.Replica {
	r := w.Replicas[i-1]
	w.v.Status.Robustness, w.v.Status.LastDegradedAt = longhorn.VolumeRobustnessDegraded, ago(time.Minute)
	w.e.Status.Epoch.Members = slices.DeleteFunc(w.e.Status.Epoch.Members, func(name string) bool { return name == r.Name })
	delete(w.e.Status.ReplicaModeMap, r.Name)
	r.Spec.FailedAt = ago(time.Minute)
	if reason != "" {
		r.Status.CurrentState = longhorn.InstanceStateError
		condition(&r.Status.Conditions, types.ConditionInstanceCreation, longhorn.ConditionFalse, reason, message)
	}
	return r
}

// detach detaches the volume.
func (w *world) detach() {
	w.v.Spec.NodeID, w.v.Status.CurrentNodeID = "", ""
	w.v.Status.State, w.v.Status.Robustness = longhorn.VolumeStateDetached, longhorn.VolumeRobustnessUnknown
	w.e.Spec.NodeID, w.e.Spec.DesireState, w.e.Status.CurrentState = "", longhorn.DesireStateStopped, longhorn.InstanceStateStopped
	w.e.Status.ReplicaModeMap = nil
	for _, r := range w.Replicas {
		r.Spec.DesireState, r.Status.CurrentState = longhorn.DesireStateStopped, longhorn.InstanceStateStopped
	}
}

// ticket requests the volume on a node, without success.
func (w *world) ticket(node string, reason, message string) {
	w.va.Spec.AttachmentTickets = map[string]longhorn.AttachmentTicket{"t": {ID: "t", Type: longhorn.AttacherTypeCSI, NodeID: node}}
	s := longhorn.AttachmentTicketStatus{ID: "t"}
	condition(&s.Conditions, types.ConditionSatisfied, longhorn.ConditionFalse, reason, message)
	w.va.Status.AttachmentTicketStatuses = map[string]longhorn.AttachmentTicketStatus{"t": s}
}

// asked makes Kubernetes request a PersistentVolume on a node.
func (w *world) asked(pv, node string) {
	a := &storagev1.VolumeAttachment{}
	a.Name, a.Spec.Attacher, a.Spec.NodeName, a.Spec.Source.PersistentVolumeName = "csi-"+pv+"-"+node, types.DriverName, node, &pv
	w.KubeAttachments = append(w.KubeAttachments, a)
}

// share makes the volume a shared volume, with a share in a given state.
func (w *world) share(state longhorn.ShareManagerState, reason, message string) *longhorn.ShareManager {
	w.v.Spec.AccessMode = longhorn.AccessModeReadWriteMany
	sm := &longhorn.ShareManager{Status: longhorn.ShareManagerStatus{State: state, CurrentNode: "n1"}}
	sm.Name = "v"
	condition(&sm.Status.Conditions, types.ConditionReady, longhorn.ConditionFalse, reason, message)
	w.ShareManagers = append(w.ShareManagers, sm)
	return sm
}

// clients makes a share serve the volume that does not limit its clients as it should.
func (w *world) clients(reason, message string) {
	sm := w.share(longhorn.ShareManagerStateRunning, "", "")
	sm.Status.Conditions = nil
	condition(&sm.Status.Conditions, types.ConditionReady, longhorn.ConditionTrue, "", "")
	condition(&sm.Status.Conditions, types.ConditionClientsLimited, longhorn.ConditionFalse, reason, message)
}

// ask explains the object that words names: "all", "volume v", "node n1", "disk n1 disk-1", "claim ns name".
func (w *world) ask(t *testing.T, words string) []Finding {
	t.Helper()
	var found []Finding
	var err error
	switch f := strings.Fields(words); f[0] {
	case "all":
		found = All(&w.Snapshot)
	case "volume":
		found, err = Volume(&w.Snapshot, f[1])
	case "node":
		found, err = Node(&w.Snapshot, f[1])
	case "disk":
		found, err = Disk(&w.Snapshot, f[1], f[2])
	case "claim":
		found, err = Claim(&w.Snapshot, f[1], f[2])
	default:
		t.Fatalf("BUG in the test: %q", words)
	}
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var unfilled = regexp.MustCompile(`\{[a-z]+\}`)

// checkText checks the parts that every finding must have: an object, a sentence, a step, and no word in braces.
func checkText(t *testing.T, f Finding) {
	t.Helper()
	texts := append([]string{f.What}, f.Why...)
	for _, step := range f.Next {
		texts = append(texts, step.Text, step.Command)
		if step.Text == "" {
			t.Errorf("%v %s has a step without a text", f.Object, f.Reason)
		}
	}
	for _, text := range texts {
		if unfilled.MatchString(text) {
			t.Errorf("%v %s says %q", f.Object, f.Reason, text)
		}
	}
	if f.Object.Name == "" || f.Reason == "" || f.What == "" || len(f.Next) == 0 || f.Severity.rank() < 0 {
		t.Errorf("a finding is incomplete: %+v", f)
	}
	if strings.HasSuffix(f.What, ".") {
		t.Errorf("%q ends with a full stop", f.What)
	}
}
