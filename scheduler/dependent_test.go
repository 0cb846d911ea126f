package scheduler

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// diskOn returns a node with a disk, of that UUID, on a volume.
func diskOn(node, uuid, volume string) *longhorn.Node {
	return &longhorn.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec:       longhorn.NodeSpec{Disks: map[string]longhorn.DiskSpec{uuid: {Path: "/" + uuid, AllowScheduling: true}}},
		Status:     longhorn.NodeStatus{DiskStatus: map[string]longhorn.DiskStatus{uuid: {DiskUUID: uuid, OnVolume: volume}}},
	}
}

func replicaOn(volume, uuid string) *longhorn.Replica {
	r := &longhorn.Replica{}
	r.Spec.VolumeName, r.Spec.DiskID = volume, uuid
	return r
}

func TestAVolumeIsNeverPlacedOnItself(t *testing.T) {
	for _, tc := range []struct {
		name     string
		nodes    []*longhorn.Node
		replicas []*longhorn.Replica
		volume   string
		circular map[string]bool // by disk
	}{
		{
			name:  "a disk on the volume itself → circular; on another → not",
			nodes: []*longhorn.Node{diskOn("n1", "d1", "a"), diskOn("n2", "d2", "b"), diskOn("n3", "d3", "")}, volume: "a",
			circular: map[string]bool{"d1": true, "d2": false, "d3": false},
		},
		{
			name:  "a disk on a volume with a replica on this one → circular",
			nodes: []*longhorn.Node{diskOn("n1", "d1", "a"), diskOn("n2", "d2", "b")}, volume: "a",
			replicas: []*longhorn.Replica{replicaOn("b", "d1")},
			circular: map[string]bool{"d1": true, "d2": true},
		},
		{
			name:  "three in a row → the last may not go to the first, the first may go to all",
			nodes: []*longhorn.Node{diskOn("n1", "d1", "a"), diskOn("n2", "d2", "b"), diskOn("n3", "d3", "c")}, volume: "a",
			replicas: []*longhorn.Replica{replicaOn("b", "d1"), replicaOn("c", "d2")},
			circular: map[string]bool{"d1": true, "d2": true, "d3": true},
		},
		{
			name:  "the other direction → not circular",
			nodes: []*longhorn.Node{diskOn("n1", "d1", "a"), diskOn("n2", "d2", "b")}, volume: "b",
			replicas: []*longhorn.Replica{replicaOn("b", "d1")},
			circular: map[string]bool{"d1": false, "d2": true},
		},
		{
			name:  "two that rest on each other already → both circular, and it ends",
			nodes: []*longhorn.Node{diskOn("n1", "d1", "a"), diskOn("n2", "d2", "b")}, volume: "a",
			replicas: []*longhorn.Replica{replicaOn("b", "d1"), replicaOn("a", "d2")},
			circular: map[string]bool{"d1": true, "d2": true},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := Objects{Nodes: tc.nodes, Replicas: tc.replicas}.Snapshot(tc.volume, defaults)
			got := map[string]bool{}
			for _, n := range s.Nodes {
				for _, d := range n.Disks {
					got[d.UUID] = d.Circular
				}
			}
			assert.Equal(t, tc.circular, got)
		})
	}
}

func TestACircularDiskIsRejectedWithThatReason(t *testing.T) {
	d := diskBut(disk("d", 1000), func(d *Disk) { d.OnVolume, d.Circular = "vol-a", true })
	_, err := Schedule(Snapshot{Nodes: []Node{node("n", d)}, Settings: defaults}, Request{SizeBytes: 1})
	var u *Unschedulable
	require.ErrorAs(t, err, &u)
	require.Len(t, u.Rejections, 1)
	assert.Equal(t, ReasonOnItself, u.Rejections[0].Reason)
	assert.Contains(t, u.Rejections[0].Message, "is stored on volume vol-a")
	d.Circular = false
	_, err = Schedule(Snapshot{Nodes: []Node{node("n", d)}, Settings: defaults}, Request{SizeBytes: 1})
	require.NoError(t, err)
}
