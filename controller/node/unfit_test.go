package node

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/disk"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func inMemory(r *disk.Record) { r.FSType = "tmpfs" }

func TestADiskInMemory(t *testing.T) {
	t.Run("that is new → not ready, and an Event says why", func(t *testing.T) {
		p := plan(input(func(in *Input) {
			in.Node.Status.DiskStatus = nil
			in.Records["disk-1"] = found(withoutFile, inMemory)
		}), testutil.Now)
		assert.Empty(t, p.CreateConfigs, "nothing is written there")
		ready := types.FindCondition(p.Status.DiskStatus["disk-1"].Conditions, types.ConditionReady)
		assert.Equal(t, longhorn.ConditionFalse, ready.Status)
		assert.Equal(t, "DiskInMemory", ready.Reason)
		assert.Contains(t, ready.Message, "its file system (tmpfs) is in memory: a restart of the node would lose all replicas on it")
		assert.Contains(t, p.Flipped, ready)
	})
	t.Run("that an earlier release let in → served, and gets no more replicas", func(t *testing.T) {
		p := plan(input(func(in *Input) { in.Records["disk-1"] = found(inMemory) }), testutil.Now)
		conditions := p.Status.DiskStatus["disk-1"].Conditions
		assert.True(t, types.IsConditionTrue(conditions, types.ConditionReady))
		room := types.FindCondition(conditions, types.ConditionSchedulable)
		assert.Equal(t, longhorn.ConditionFalse, room.Status)
		assert.Equal(t, "DiskInMemory", room.Reason)
		assert.Contains(t, room.Message, "gets no new replicas: its file system (tmpfs) is in memory")
	})
}

func TestADiskOnOverlay(t *testing.T) {
	onOverlay := func(r *disk.Record) { r.FSType = "overlay" }
	t.Run("that is new → not ready", func(t *testing.T) {
		p := plan(input(func(in *Input) {
			in.Node.Status.DiskStatus = nil
			in.Records["disk-1"] = found(withoutFile, onOverlay)
		}), testutil.Now)
		assert.Empty(t, p.CreateConfigs, "nothing is written there")
		ready := types.FindCondition(p.Status.DiskStatus["disk-1"].Conditions, types.ConditionReady)
		assert.Equal(t, longhorn.ConditionFalse, ready.Status)
		assert.Equal(t, "DiskOnOverlay", ready.Reason)
		assert.Contains(t, ready.Message, "its file system (overlay) does not report failed writes")
	})
	t.Run("that an earlier release let in → used on: its volumes may have no other place", func(t *testing.T) {
		p := plan(input(func(in *Input) { in.Records["disk-1"] = found(onOverlay) }), testutil.Now)
		conditions := p.Status.DiskStatus["disk-1"].Conditions
		assert.True(t, types.IsConditionTrue(conditions, types.ConditionReady))
		assert.True(t, types.IsConditionTrue(conditions, types.ConditionSchedulable))
	})
}

func TestASmallDiskIsNotFull(t *testing.T) {
	p := plan(input(func(in *Input) {
		in.Records["disk-1"] = found(available(99*mib), func(r *disk.Record) { r.StorageMaximum = 100 * mib })
	}), testutil.Now)
	status := p.Status.DiskStatus["disk-1"]
	assert.EqualValues(t, 99*mib, status.StorageAvailable)
	assert.True(t, types.IsConditionTrue(status.Conditions, types.ConditionSchedulable))
}
