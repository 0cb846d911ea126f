package attachment

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

type tickets = map[string]longhorn.AttachmentTicket

func ticket(id string, kind longhorn.AttacherType, node string) longhorn.AttachmentTicket {
	return longhorn.AttachmentTicket{ID: id, Type: kind, NodeID: node, Generation: 1}
}

func maintenance(t longhorn.AttachmentTicket) longhorn.AttachmentTicket {
	t.Parameters = map[string]string{longhorn.AttachmentParameterDisableFrontend: "true"}
	return t
}

func volume(node string, state longhorn.VolumeState, current string) *longhorn.Volume {
	v := &longhorn.Volume{}
	v.Name = "vol"
	v.Spec.NodeID = node
	v.Status.State = state
	v.Status.CurrentNodeID = current
	return v
}

// strictLocalWaits is a volume that the volume controller does not start on the requested node.
func strictLocalWaits(v *longhorn.Volume) *longhorn.Volume {
	v.Status.Conditions = []longhorn.Condition{{Type: types.ConditionAttaching, Status: longhorn.ConditionTrue, Reason: types.ReasonStrictLocal}}
	return v
}

// inUse is a volume whose node refused to stop the engine.
func inUse(v *longhorn.Volume) *longhorn.Volume {
	v.Status.Conditions = []longhorn.Condition{{Type: types.ConditionDeviceInUse, Status: longhorn.ConditionTrue}}
	return v
}

// withoutFrontend is a volume that is requested without a device, and has one.
func withoutFrontend(v *longhorn.Volume) *longhorn.Volume {
	v.Spec.DisableFrontend = true
	return v
}

func TestPlaceOfVolume(t *testing.T) {
	deleting := volume("a", longhorn.VolumeStateAttached, "a")
	deleting.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	deletingInUse := volume("", longhorn.VolumeStateDetaching, "a")
	deletingInUse.DeletionTimestamp = deleting.DeletionTimestamp
	for _, tc := range []struct {
		name     string
		volume   *longhorn.Volume
		tickets  tickets
		nodes    []string
		wantNode string
		wantOff  bool
	}{
		{name: "detached, no ticket → stays", volume: volume("", longhorn.VolumeStateDetached, "")},
		{
			name: "detached, one ticket → goes there", volume: volume("", longhorn.VolumeStateDetached, ""),
			tickets: tickets{"x": ticket("x", longhorn.AttacherTypeCSI, "a")}, wantNode: "a",
		},
		{
			name: "detached, a maintenance ticket → goes there without a device", volume: volume("", longhorn.VolumeStateDetached, ""),
			tickets: tickets{"x": maintenance(ticket("x", longhorn.AttacherTypeAPI, "a"))}, wantNode: "a", wantOff: true,
		},
		{
			name: "detached, a person and a workload → the person first", volume: volume("", longhorn.VolumeStateDetached, ""),
			tickets: tickets{
				"a": ticket("a", longhorn.AttacherTypeCSI, "a"),
				"z": ticket("z", longhorn.AttacherTypeAPI, "z"),
			}, wantNode: "z",
		},
		{
			name: "detached, two of a kind → the smallest id", volume: volume("", longhorn.VolumeStateDetached, ""),
			tickets: tickets{
				"2": ticket("2", longhorn.AttacherTypeCSI, "b"),
				"1": ticket("1", longhorn.AttacherTypeCSI, "a"),
			}, wantNode: "a",
		},
		{
			name: "still detaching → not sent anywhere yet", volume: volume("", longhorn.VolumeStateDetaching, "a"),
			tickets: tickets{"x": ticket("x", longhorn.AttacherTypeCSI, "b")},
		},
		{
			name: "attached and wanted → stays, though a higher ticket wants it elsewhere", volume: volume("a", longhorn.VolumeStateAttached, "a"),
			tickets: tickets{
				"1": ticket("1", longhorn.AttacherTypeCSI, "a"),
				"2": ticket("2", longhorn.AttacherTypeAPI, "b"),
			}, wantNode: "a",
		},
		{
			name: "attached and wanted only elsewhere → detached first", volume: volume("a", longhorn.VolumeStateAttached, "a"),
			tickets: tickets{"2": ticket("2", longhorn.AttacherTypeCSI, "b")},
		},
		{
			name: "attached and wanted, spec.nodeID changed by hand → goes back", volume: volume("z", longhorn.VolumeStateAttached, "a"),
			tickets: tickets{"x": ticket("x", longhorn.AttacherTypeCSI, "a")}, wantNode: "a",
		},
		{
			name: "attached and wanted, spec.nodeID changed by hand to where another ticket waits → goes back", volume: volume("b", longhorn.VolumeStateAttached, "a"),
			tickets: tickets{"x": ticket("x", longhorn.AttacherTypeCSI, "a"), "y": ticket("y", longhorn.AttacherTypeAPI, "b")}, wantNode: "a",
		},
		{
			name: "attached and wanted, disableFrontend changed by hand → goes back", volume: withoutFrontend(volume("a", longhorn.VolumeStateAttached, "a")),
			tickets: tickets{"x": ticket("x", longhorn.AttacherTypeCSI, "a")}, wantNode: "a",
		},
		{
			name: "detaching in vain and wanted there → goes back", volume: inUse(volume("", longhorn.VolumeStateDetaching, "a")),
			tickets: tickets{"x": ticket("x", longhorn.AttacherTypeCSI, "a"), "y": ticket("y", longhorn.AttacherTypeAPI, "b")}, wantNode: "a",
		},
		{
			name: "detaching in vain, changed by hand once more → goes back", volume: inUse(volume("z", longhorn.VolumeStateDetaching, "a")),
			tickets: tickets{"x": ticket("x", longhorn.AttacherTypeCSI, "a")}, wantNode: "a",
		},
		{
			name: "detaching in vain and wanted elsewhere alone → goes on detaching", volume: inUse(volume("", longhorn.VolumeStateDetaching, "a")),
			tickets: tickets{"x": ticket("x", longhorn.AttacherTypeCSI, "b")},
		},
		{
			name: "detaching in vain and wanted there without a device → goes on detaching", volume: inUse(volume("", longhorn.VolumeStateDetaching, "a")),
			tickets: tickets{"x": maintenance(ticket("x", longhorn.AttacherTypeAPI, "a"))},
		},
		{name: "detaching in vain, no ticket → goes on detaching", volume: inUse(volume("", longhorn.VolumeStateDetaching, "a"))},
		{
			name: "detaching, the engine may be ending, wanted there → detached first", volume: volume("", longhorn.VolumeStateDetaching, "a"),
			tickets: tickets{"x": ticket("x", longhorn.AttacherTypeCSI, "a")},
		},
		{
			name: "being deleted, detaching in vain → detached, whatever tickets say", volume: inUse(deletingInUse),
			tickets: tickets{"x": ticket("x", longhorn.AttacherTypeCSI, "a")},
		},
		{name: "attached, no ticket (set by hand) → detached", volume: volume("a", longhorn.VolumeStateAttached, "a")},
		{
			name: "attached with a device, only a maintenance ticket there → detached", volume: volume("a", longhorn.VolumeStateAttached, "a"),
			tickets: tickets{"x": maintenance(ticket("x", longhorn.AttacherTypeAPI, "a"))},
		},
		{
			name: "strict-local, its data on another node → stays detached", volume: volume("", longhorn.VolumeStateDetached, ""), nodes: []string{"b"},
			tickets: tickets{"x": ticket("x", longhorn.AttacherTypeCSI, "a")},
		},
		{
			name: "strict-local, tickets for two nodes → the one with its data, though the other is first", volume: volume("", longhorn.VolumeStateDetached, ""), nodes: []string{"b"},
			tickets: tickets{"1": ticket("1", longhorn.AttacherTypeAPI, "a"), "2": ticket("2", longhorn.AttacherTypeCSI, "b")}, wantNode: "b",
		},
		{
			name: "strict-local, its data on two nodes → either", volume: volume("", longhorn.VolumeStateDetached, ""), nodes: []string{"a", "b"},
			tickets: tickets{"x": ticket("x", longhorn.AttacherTypeCSI, "a")}, wantNode: "a",
		},
		{
			name: "strict-local, attached elsewhere by an earlier release → served until it is detached", volume: volume("a", longhorn.VolumeStateAttached, "a"), nodes: []string{"b"},
			tickets: tickets{"x": ticket("x", longhorn.AttacherTypeCSI, "a")}, wantNode: "a",
		},
		{
			name: "strict-local, does not start there → taken back", volume: strictLocalWaits(volume("a", longhorn.VolumeStateAttaching, "")), nodes: []string{"b"},
			tickets: tickets{"x": ticket("x", longhorn.AttacherTypeCSI, "a")},
		},
		{name: "being deleted → detached, whatever tickets say", volume: deleting, tickets: tickets{"x": ticket("x", longhorn.AttacherTypeCSI, "a")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := place(tc.volume, tc.tickets, tc.nodes)
			assert.Equal(t, tc.wantNode, got.node)
			assert.Equal(t, tc.wantOff, got.disableFrontend)
		})
	}
}

// sharedVolume is served over NFS, or not yet.
func sharedVolume(v *longhorn.Volume, state longhorn.ShareManagerState) *longhorn.Volume {
	v.Spec.AccessMode, v.Status.ShareState = longhorn.AccessModeReadWriteMany, state
	if state == longhorn.ShareManagerStateRunning {
		v.Status.ShareEndpoint = "nfs://10.0.0.9/vol"
	}
	return v
}

func TestTicketsOfASharedVolume(t *testing.T) {
	const served = longhorn.ShareManagerStateRunning
	deleting := sharedVolume(volume("a", longhorn.VolumeStateAttached, "a"), served)
	deleting.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	faulted := sharedVolume(volume("", longhorn.VolumeStateDetached, ""), "stopped")
	faulted.Status.Conditions = []longhorn.Condition{{Type: types.ConditionFaulted, Status: longhorn.ConditionTrue, Reason: types.ReasonReplicaFailed, Message: "no healthy replica"}}
	withoutEndpoint := sharedVolume(volume("a", longhorn.VolumeStateAttached, "a"), served)
	withoutEndpoint.Status.ShareEndpoint = ""
	workloads := tickets{"1": ticket("1", longhorn.AttacherTypeCSI, "b"), "2": ticket("2", longhorn.AttacherTypeCSI, "c")}
	both := tickets{"1": ticket("1", longhorn.AttacherTypeCSI, "b"), "s": ticket("s", longhorn.AttacherTypeShareManager, "a")}
	for name, tc := range map[string]struct {
		volume   *longhorn.Volume
		tickets  tickets
		wantNode string
		// satisfied are the tickets that are satisfied. Otherwise, why is the message of ticket 1.
		satisfied []string
		why       string
	}{
		"workloads alone attach it nowhere":        {volume: sharedVolume(volume("", longhorn.VolumeStateDetached, ""), ""), tickets: workloads, why: "waiting until volume vol is served: its share manager is not started yet"},
		"its share manager attaches it":            {volume: sharedVolume(volume("", longhorn.VolumeStateDetached, ""), "starting"), tickets: both, wantNode: "a", why: "waiting until volume vol is served: its share manager is starting"},
		"attached, not served yet → waits":         {volume: sharedVolume(volume("a", longhorn.VolumeStateAttached, "a"), "starting"), tickets: both, wantNode: "a", satisfied: []string{"s"}, why: "waiting until volume vol is served: its share manager is starting"},
		"served → all are satisfied, on any node":  {volume: sharedVolume(volume("a", longhorn.VolumeStateAttached, "a"), served), tickets: both, wantNode: "a", satisfied: []string{"1", "s"}},
		"served without an endpoint → waits":       {volume: withoutEndpoint, tickets: both, wantNode: "a", satisfied: []string{"s"}, why: "waiting until volume vol is served: its share manager is running"},
		"its share manager lets go → detached":     {volume: sharedVolume(volume("a", longhorn.VolumeStateAttached, "a"), "stopped"), tickets: workloads, why: "waiting until volume vol is served: its share manager is stopped"},
		"being deleted → no ticket is satisfied":   {volume: deleting, tickets: workloads, why: "waiting until volume vol is served: its share manager is running"},
		"faulted → told why, not that it waits":    {volume: faulted, tickets: workloads, why: "volume vol cannot be attached: no healthy replica"},
		"a person may have it while nobody shares": {volume: sharedVolume(volume("", longhorn.VolumeStateDetached, ""), "stopped"), tickets: tickets{"": ticket("", longhorn.AttacherTypeAPI, "z")}, wantNode: "z"},
	} {
		t.Run(name, func(t *testing.T) {
			va := &longhorn.VolumeAttachment{Spec: longhorn.VolumeAttachmentSpec{AttachmentTickets: tc.tickets}}
			p := plan(Input{Volume: tc.volume, Attachment: va, Now: time.Unix(2, 0)})
			got := tc.volume.Spec.NodeID
			if p.Volume != nil {
				got = p.Volume.Spec.NodeID
			}
			assert.Equal(t, tc.wantNode, got)
			var satisfied []string
			for _, id := range slices.Sorted(maps.Keys(p.Status.AttachmentTicketStatuses)) {
				if p.Status.AttachmentTicketStatuses[id].Satisfied {
					satisfied = append(satisfied, id)
				}
			}
			assert.Equal(t, tc.satisfied, satisfied)
			if tc.why != "" {
				assert.Equal(t, tc.why, p.Status.AttachmentTicketStatuses["1"].Conditions[0].Message)
			}
			assert.Len(t, tc.tickets, len(va.Spec.AttachmentTickets), "what was given is not modified")
		})
	}
}

func TestAnswerToTicket(t *testing.T) {
	faulted := volume("a", longhorn.VolumeStateAttaching, "")
	faulted.Status.Conditions = []longhorn.Condition{{
		Type: types.ConditionFaulted, Status: longhorn.ConditionTrue, Reason: types.ReasonReplicaFailed, Message: "replica r is lost",
	}}
	degraded := volume("a", longhorn.VolumeStateAttached, "a")
	degraded.Status.Robustness = longhorn.VolumeRobustnessDegraded
	unfenced := volume("", longhorn.VolumeStateDetaching, "")
	unfenced.Status.Conditions = []longhorn.Condition{{
		Type: types.ConditionFaulted, Status: longhorn.ConditionTrue, Reason: types.ReasonNotFenced, Message: "node a does not answer",
	}}
	unplaced := volume("a", longhorn.VolumeStateDetached, "")
	unplaced.Status.Conditions = []longhorn.Condition{{
		Type: types.ConditionScheduled, Status: longhorn.ConditionFalse, Reason: types.ReasonReplicaSchedulingFailure, Message: "no room on a",
	}}
	for _, tc := range []struct {
		name       string
		volume     *longhorn.Volume
		nodes      []string
		ticket     longhorn.AttachmentTicket
		satisfied  bool
		wantReason string
		wantText   string
	}{
		{name: "attached there → satisfied", volume: volume("a", longhorn.VolumeStateAttached, "a"), ticket: ticket("x", longhorn.AttacherTypeCSI, "a"), satisfied: true},
		{name: "attached there with a replica less → satisfied", volume: degraded, ticket: ticket("x", longhorn.AttacherTypeCSI, "a"), satisfied: true},
		{
			name: "its old node holds it up → passes the reason on", volume: unfenced,
			ticket: ticket("x", longhorn.AttacherTypeCSI, "b"), wantReason: types.ReasonNotFenced, wantText: "node a does not answer",
		},
		{
			name: "attached there but already leaving → not satisfied", volume: volume("", longhorn.VolumeStateAttached, "a"),
			ticket: ticket("x", longhorn.AttacherTypeCSI, "a"), wantReason: types.ReasonWaitingForVolume, wantText: "attached",
		},
		{
			name: "attached elsewhere → says where", volume: volume("b", longhorn.VolumeStateAttached, "b"),
			ticket: ticket("x", longhorn.AttacherTypeCSI, "a"), wantReason: types.ReasonAttachedElsewhere, wantText: "attached to node b",
		},
		{
			name: "attached there with a device, maintenance asked for → incompatible", volume: volume("a", longhorn.VolumeStateAttached, "a"),
			ticket: maintenance(ticket("x", longhorn.AttacherTypeAPI, "a")), wantReason: types.ReasonAttachedIncompatibleFrontend, wantText: "opposite",
		},
		{
			name: "attaching → says so", volume: volume("a", longhorn.VolumeStateAttaching, ""),
			ticket: ticket("x", longhorn.AttacherTypeCSI, "a"), wantReason: types.ReasonWaitingForVolume, wantText: "attaching",
		},
		{
			name: "cannot start → passes the reason on", volume: faulted,
			ticket: ticket("x", longhorn.AttacherTypeCSI, "a"), wantReason: types.ReasonReplicaFailed, wantText: "replica r is lost",
		},
		{
			name: "its first replica has no place → passes the reason on", volume: unplaced,
			ticket: ticket("x", longhorn.AttacherTypeCSI, "a"), wantReason: types.ReasonReplicaSchedulingFailure, wantText: "no room on a",
		},
		{
			name: "strict-local, its data on another node → says where", volume: volume("", longhorn.VolumeStateDetached, ""), nodes: []string{"b"},
			ticket: ticket("x", longhorn.AttacherTypeCSI, "a"), wantReason: types.ReasonStrictLocal, wantText: `its data is on node "b"`,
		},
		{
			name: "strict-local, attached where its data is not → satisfied", volume: volume("a", longhorn.VolumeStateAttached, "a"), nodes: []string{"b"},
			ticket: ticket("x", longhorn.AttacherTypeCSI, "a"), satisfied: true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			va := &longhorn.VolumeAttachment{}
			va.Spec.AttachmentTickets = tickets{"x": tc.ticket}
			va.Status.AttachmentTicketStatuses = map[string]longhorn.AttachmentTicketStatus{"gone": {ID: "gone", Satisfied: true}}
			statuses := answer(Input{Volume: tc.volume, Attachment: va, Nodes: tc.nodes, Now: time.Unix(0, 0)}).AttachmentTicketStatuses
			require.Len(t, statuses, 1)
			got := statuses["x"]
			c := types.FindCondition(got.Conditions, types.ConditionSatisfied)
			assert.Equal(t, tc.satisfied, got.Satisfied)
			assert.Equal(t, tc.wantReason, c.Reason)
			assert.Contains(t, c.Message, tc.wantText)
			assert.Equal(t, int64(1), got.Generation)
		})
	}
}

func TestTheTableShowsAllTickets(t *testing.T) {
	attached := volume("a", longhorn.VolumeStateAttached, "a")
	for name, tc := range map[string]struct {
		tickets          tickets
		nodes, satisfied string
	}{
		"no ticket → empty":          {nil, "", ""},
		"one, satisfied":             {tickets{"x": ticket("x", longhorn.AttacherTypeCSI, "a")}, "a", "1/1"},
		"one of two is satisfied":    {tickets{"x": ticket("x", longhorn.AttacherTypeCSI, "b"), "y": ticket("y", longhorn.AttacherTypeCSI, "a")}, "a,b", "1/2"},
		"two on one node → one node": {tickets{"x": ticket("x", longhorn.AttacherTypeCSI, "b"), "y": ticket("y", longhorn.AttacherTypeAPI, "b")}, "b", "0/2"},
		"many nodes → their number":  {tickets{"1": ticket("1", longhorn.AttacherTypeCSI, "d"), "2": ticket("2", longhorn.AttacherTypeCSI, "a"), "3": ticket("3", longhorn.AttacherTypeCSI, "c"), "4": ticket("4", longhorn.AttacherTypeCSI, "b")}, "a,b,+2", "1/4"},
	} {
		va := &longhorn.VolumeAttachment{Spec: longhorn.VolumeAttachmentSpec{AttachmentTickets: tc.tickets}}
		s := answer(Input{Volume: attached, Attachment: va, Now: time.Unix(0, 0)})
		assert.Equal(t, []string{tc.nodes, tc.satisfied}, []string{s.Nodes, s.Satisfied}, name)
	}
}
