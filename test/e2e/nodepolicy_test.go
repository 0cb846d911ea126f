package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// diskStatus returns a node status in which disk d is ready or not, and has this many replicas.
func diskStatus(ready longhorn.ConditionStatus, replicas int) longhorn.NodeStatus {
	held := map[string]int64{}
	for i := range replicas {
		held[fmt.Sprintf("vol-r-%d", i)] = 2 << 20
	}
	return longhorn.NodeStatus{DiskStatus: map[string]longhorn.DiskStatus{"d": {
		DiskUUID: "u", DiskPath: "/mnt/d", ScheduledReplica: held,
		Conditions: []longhorn.Condition{{Type: types.ConditionReady, Status: ready}},
	}}}
}

func nodeNotReady(reason string, s longhorn.NodeStatus) longhorn.NodeStatus {
	s.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: reason}}
	return s
}

// TestDisksInUseStayWithTheirNode checks what kubectl may do to a node whose disks hold replicas.
func TestDisksInUseStayWithTheirNode(t *testing.T) {
	ctx, c := apiOnly.get(t, ordinary)
	definitions(ctx, t, c)
	nodes := c.Longhorn.LonghornV1beta2().Nodes(types.Namespace)
	made := 0
	makeNode := func(status longhorn.NodeStatus) string {
		t.Helper()
		made++
		name := fmt.Sprintf("p-%d", made)
		n := &longhorn.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: types.Namespace}}
		n.Spec.Disks = map[string]longhorn.DiskSpec{
			"d": {Path: "/mnt/d", Type: longhorn.DiskTypeFilesystem}, "other": {Path: "/mnt/other", Type: longhorn.DiskTypeFilesystem},
		}
		n, err := nodes.Create(ctx, n, metav1.CreateOptions{})
		require.NoError(t, err)
		n.Status = status
		_, err = nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{})
		require.NoError(t, err)
		return name
	}
	patch := func(patch string) func(string) error {
		return func(name string) error {
			_, err := nodes.Patch(ctx, name, kubetypes.MergePatchType, []byte(patch), metav1.PatchOptions{})
			return err
		}
	}
	remove := func(name string) error { return nodes.Delete(ctx, name, metav1.DeleteOptions{}) }

	inUse := diskStatus(longhorn.ConditionTrue, 2)
	probe := makeNode(inUse)
	cluster.Eventually(ctx, t, 20*time.Second, "the policy about disks is known to the API server", func(ctx context.Context) error {
		if err := nodes.Delete(ctx, probe, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
			return fmt.Errorf("the deletion would have been allowed")
		}
		return nil
	})
	const kept = "is ready and holds replicas: it cannot be removed, and its path cannot change; first evict its replicas (allowScheduling false, evictionRequested true) and wait until its condition Emptied is True, or unmount the disk to move it together with its replicas"
	for _, tc := range []struct {
		name    string
		status  longhorn.NodeStatus
		do      func(name string) error
		refusal string // part of the message, with the node's name; empty: accepted
	}{
		{"a ready disk with replicas is taken out → refused", inUse, patch(`{"spec":{"disks":{"d":null}}}`), "disk d of node %s " + kept},
		{"all disks are taken out → refused", inUse, patch(`{"spec":{"disks":null}}`), "disk d of node %s " + kept},
		{"its path is changed → refused", inUse, patch(`{"spec":{"disks":{"d":{"path":"/mnt/e"}}}}`), "disk d of node %s " + kept},
		{"it is closed, and tags change → accepted", inUse, patch(`{"spec":{"tags":["a"],"disks":{"d":{"allowScheduling":false}}}}`), ""},
		{"another disk without replicas is taken out → accepted", inUse, patch(`{"spec":{"disks":{"other":null}}}`), ""},
		{"another disk is added → accepted", inUse, patch(`{"spec":{"disks":{"more":{"path":"/mnt/more"}}}}`), ""},
		{"the status of a disk is written → accepted", inUse, func(name string) error {
			_, err := nodes.Patch(ctx, name, kubetypes.MergePatchType, []byte(`{"status":{"diskStatus":null}}`), metav1.PatchOptions{}, "status")
			return err
		}, ""},
		{"a ready disk without replicas is taken out → accepted", diskStatus(longhorn.ConditionTrue, 0), patch(`{"spec":{"disks":{"d":null}}}`), ""},
		{"a disk with replicas that is not ready is taken out → accepted", diskStatus(longhorn.ConditionFalse, 2), patch(`{"spec":{"disks":{"d":null}}}`), ""},
		{"a node without any status loses a disk → accepted", longhorn.NodeStatus{}, patch(`{"spec":{"disks":{"d":null}}}`), ""},
		{"a disk that is out already, its status not written yet: the rest changes → accepted", diskStatusOf("former", inUse), patch(`{"spec":{"tags":["b"]}}`), ""},
		{"a disk is taken out while it is open → refused", diskStatus(longhorn.ConditionTrue, 0), func(name string) error {
			if err := patch(`{"spec":{"disks":{"d":{"allowScheduling":true}}}}`)(name); err != nil {
				return fmt.Errorf("open it: %w", err)
			}
			return patch(`{"spec":{"disks":{"d":null}}}`)(name)
		}, "disk d of node %s cannot be removed while its allowScheduling is true"},
		{"a disk is added in a directory of the system → refused", inUse, patch(`{"spec":{"disks":{"more":{"path":"/etc/kubernetes"}}}}`), `spec.disks.more.path: "/etc/kubernetes" is a directory of the system`},
		{"a disk is added at a path that is not clean → refused", inUse, patch(`{"spec":{"disks":{"more":{"path":"/mnt//x"}}}}`), `spec.disks.more.path: "/mnt//x" must be in its shortest form`},
		{"a disk is given an empty tag → refused", inUse, patch(`{"spec":{"disks":{"d":{"tags":["a",""]}}}}`), `spec.disks.d.tags: "" is not a valid tag`},
		{"a node is given a tag with a space → refused", inUse, patch(`{"spec":{"tags":["a b"]}}`), `spec.tags: "a b" is not a valid tag`},
		{"a node with such a disk is deleted → refused", inUse, remove, "node %s has disk d, which is ready and holds replicas: it cannot be deleted; it is removed automatically when its Kubernetes node is removed"},
		{"a node that does not answer is deleted → refused", nodeNotReady(types.ReasonKubernetesNodeNotReady, inUse), remove, "node %s has disk d"},
		{"a node whose Kubernetes node is gone is deleted → accepted", nodeNotReady(types.ReasonKubernetesNodeGone, inUse), remove, ""},
		{"a node whose disks hold nothing is deleted → accepted", diskStatus(longhorn.ConditionTrue, 0), remove, ""},
		{"a node without any status is deleted → accepted", longhorn.NodeStatus{}, remove, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			name := makeNode(tc.status)
			refusal := tc.refusal
			if refusal != "" {
				refusal = strings.ReplaceAll(refusal, "%s", name)
			}
			check(t, tc.do(name), refusal)
			n, err := nodes.Get(ctx, name, metav1.GetOptions{})
			if refusal != "" && (err != nil || n.Spec.Disks["d"].Path != "/mnt/d") {
				text, _ := json.Marshal(n)
				t.Errorf("changed all the same: %s, %v", text, err)
			}
		})
	}
}

// diskStatusOf returns a status whose only disk has another name.
func diskStatusOf(disk string, s longhorn.NodeStatus) longhorn.NodeStatus {
	return longhorn.NodeStatus{DiskStatus: map[string]longhorn.DiskStatus{disk: s.DiskStatus["d"]}}
}
