package node

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestADiskSaysHowFarItsEvictionIs(t *testing.T) {
	on := func(n int, uuid string) func(*Input) {
		return func(in *Input) {
			for i := range n {
				r := build.Replica(fmt.Sprintf("r-%d", i), fmt.Sprintf("v-%d", i))
				r.Spec.NodeID, r.Spec.DiskID = "node-1", uuid
				in.Replicas = append(in.Replicas, r)
			}
		}
	}
	ofNode := func(in *Input) { in.Node.Spec.EvictionRequested = true }
	ofDisk := func(in *Input) {
		d := in.Node.Spec.Disks["disk-1"]
		d.EvictionRequested = true
		in.Node.Spec.Disks["disk-1"] = d
	}
	for name, tc := range map[string]struct {
		changes []func(*Input)
		want    longhorn.ConditionStatus
		message string
	}{
		"not asked for":         {[]func(*Input){on(1, uuid1)}, longhorn.ConditionUnknown, ""},
		"of the disk, empty":    {[]func(*Input){ofDisk}, longhorn.ConditionTrue, "disk disk-1 on node node-1 is empty"},
		"of the node, empty":    {[]func(*Input){ofNode}, longhorn.ConditionTrue, "is empty"},
		"another disk's":        {[]func(*Input){ofDisk, on(2, uuid2)}, longhorn.ConditionTrue, "is empty"},
		"two left":              {[]func(*Input){ofDisk, on(2, uuid1)}, longhorn.ConditionFalse, fmt.Sprintf("replicas that remain on disk disk-1 of node node-1: 2, with %d bytes in all, of volumes v-0, v-1. The conditions Scheduled, EvictionWaits and DeviceInUse of each volume say what its replica waits for", 2*build.GiB)},
		"more than can be read": {[]func(*Input){ofNode, on(7, uuid1)}, longhorn.ConditionFalse, "of volumes v-0, v-1, v-2, v-3, v-4 and 2 more."},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan(input(tc.changes...), testutil.Now)
			c := types.FindCondition(p.Status.DiskStatus["disk-1"].Conditions, types.ConditionEmptied)
			assert.Contains(t, c.Message, tc.message)
			assert.Equal(t, tc.want, c.Status)
		})
	}
}

// Without a request for eviction, the condition about its progress disappears. A disk that does not exist gets no such
// condition.
func TestTheEndOfAnEvictionLeavesNoCondition(t *testing.T) {
	evicted := input(func(in *Input) { in.Node.Spec.EvictionRequested = true })
	evicted.Node.Status = plan(evicted, testutil.Now).Status
	evicted.Node.Spec.EvictionRequested = false
	p := plan(evicted, testutil.Now)
	for _, c := range p.Status.DiskStatus["disk-1"].Conditions {
		assert.NotEqual(t, types.ConditionEmptied, c.Type)
	}

	evicted.Node.Spec.EvictionRequested = true
	evicted.Records = nil
	p = plan(evicted, testutil.Now)
	c := types.FindCondition(p.Status.DiskStatus["disk-1"].Conditions, types.ConditionEmptied)
	assert.Equal(t, longhorn.ConditionTrue, c.Status, "as it was when the disk was last seen")
}
