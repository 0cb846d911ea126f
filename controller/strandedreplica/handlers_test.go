package strandedreplica

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// counted counts how often the replicas are listed.
type counted struct {
	Store
	lists int
}

func (c *counted) List(selector labels.Selector) ([]*longhorn.Replica, error) {
	c.lists++
	return c.Store.List(selector)
}

func (c *counted) ByIndex(index, value string) ([]*longhorn.Replica, error) {
	c.lists++
	return c.Store.ByIndex(index, value)
}

// Node m has "r" and "going", which is deleted. Node x has "far", which is deleted, and "stays".
func TestWhichReplicasAChangeOfANodeConcerns(t *testing.T) {
	_, c := start(t,
		placed(created, onM),
		build.PlacedReplica("going", "vol", "m", "disk-m", gone),
		build.PlacedReplica("far", "vol", "x", "disk-x", gone),
		build.PlacedReplica("stays", "vol", "x", "disk-x"))
	deleted := []string{"far", "going"}
	onNode := []string{"going", "r"}
	ready := build.ReadyNode("m", "disk-m")
	changed := func(change func(*longhorn.Node)) *longhorn.Node {
		n := ready.DeepCopy()
		change(n)
		return n
	}
	condition := func(status longhorn.ConditionStatus, reason string) *longhorn.Node {
		return changed(func(n *longhorn.Node) {
			n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: status, Reason: reason}}
		})
	}
	lost := condition(longhorn.ConditionFalse, types.ReasonKubernetesNodeGone)
	disk := func(change func(*longhorn.DiskStatus)) *longhorn.Node {
		return changed(func(n *longhorn.Node) {
			s := n.Status.DiskStatus["disk-1"]
			change(&s)
			n.Status.DiskStatus["disk-1"] = s
		})
	}
	both := []string{"far", "going", "going", "r"}
	for _, tc := range []struct {
		name    string
		was, is *longhorn.Node
		want    []string
	}{
		{"its Kubernetes node was removed → all on it", ready, lost, onNode},
		{"that is said still → none", lost, lost.DeepCopy(), nil},
		{"its Kubernetes node is back → none: its daemon speaks for them", lost, ready, nil},
		{"it does not answer → none", ready, condition(longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady), nil},
		{"the Node was deleted → all on it, and what is deleted elsewhere", ready, nil, both},
		{"the Node of a removed node was deleted → the same", lost, nil, both},
		{"the Node is new → what is deleted: the node may have the disk", nil, ready, deleted},
		{"the Node is new and its node gone already → all on it too", nil, lost, both},
		{"the Node was registered again → what is deleted", ready, changed(func(n *longhorn.Node) { n.UID = "later" }), deleted},
		{"a disk left the spec → what is deleted", ready, changed(func(n *longhorn.Node) { n.Spec.Disks = nil }), deleted},
		{"a disk has another path in the spec → what is deleted", ready, changed(build.WithDisk("disk-1", "/elsewhere")), deleted},
		{"a disk left the status → what is deleted", ready, changed(func(n *longhorn.Node) { n.Status.DiskStatus = nil }), deleted},
		{"another disk is at the path → what is deleted", ready, disk(func(s *longhorn.DiskStatus) { s.DiskUUID = "other" }), deleted},
		{"a disk was looked at where its spec says → what is deleted", ready, disk(func(s *longhorn.DiskStatus) { s.DiskPath = "/elsewhere" }), deleted},
		{"a disk is full → none", ready, disk(func(s *longhorn.DiskStatus) { s.StorageAvailable = 0 }), nil},
		{"a disk is not ready, and so still recorded → none", ready, disk(func(s *longhorn.DiskStatus) { s.Conditions = nil }), nil},
		{"it was tagged → none", ready, changed(func(n *longhorn.Node) { n.Spec.Tags = []string{"fast"} }), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store := &counted{Store: c.Replicas}
			here := &Controller{Deps: Deps{Replicas: store}}
			got := here.whenNode(tc.was, tc.is)
			assert.ElementsMatch(t, tc.want, got)
			if len(tc.want) == 0 {
				assert.Zero(t, store.lists, "replicas were listed for nothing")
			}
		})
	}
}

// A node updates its disks' free space every half a minute, and the watch passes each update to the controller. None
// of them makes the controller list the replicas, however many are deleted.
func TestTheFreeSpaceOfDisksRequeuesNoReplica(t *testing.T) {
	_, c := start(t, placed(created, gone, onM))
	store := &counted{Store: c.Replicas}
	c.Replicas = store
	handler := c.ofNodes()
	n := build.ReadyNode("m", "disk-m")
	for i := range 100 {
		was := n.DeepCopy()
		s := n.Status.DiskStatus["disk-1"]
		s.StorageAvailable = int64(i)
		n.Status.DiskStatus["disk-1"] = s
		handler.OnUpdate(was, n)
	}
	require.Zero(t, store.lists)
	handler.OnDelete(n)
	assert.Equal(t, 2, store.lists)
}
