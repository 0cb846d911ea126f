package volume

import (
	"cmp"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// watch makes each change requeue the volumes that it concerns:
//
//	what changed                                   volumes
//	a volume, or an object of one                  that one
//	a node's state, or its eviction request        with an engine or a replica there
//	a node or disk may take more than before       with a replica that is not placed
//	a node or disk takes replicas from now on      also volumes with balanced replicas
//	a replica is gone                              with a replica that is not placed
//	an instance manager runs in another process    with an engine or a replica there
//	a rebuild ended                                degraded, with a replica on its node
//	a setting                                      with a replica that is not placed, or degraded
//	the settings of replica-auto-balance           attached
//	the setting node-drain-policy                  also those with an engine or a replica on a cordoned node
func (c *Controller) watch() error {
	child := queue.Handler(c.queue, func(o metav1.Object) []string { return []string{types.VolumeOf(o)} })
	setting := queue.Handler(c.queue, c.whenSetting)
	return c.queue.Watch(
		queue.Watch{Events: c.deps.Volumes, Handler: queue.Handler(c.queue, queue.Name[*longhorn.Volume])},
		queue.Watch{Events: c.deps.Attachments, Handler: child},
		queue.Watch{Events: c.deps.Engines, Handler: child},
		queue.Watch{Events: c.deps.Engines, Handler: queue.Changes(c.queue, c.whenEngine)},
		queue.Watch{Events: c.deps.Replicas, Handler: child},
		queue.Watch{Events: c.deps.Replicas, Handler: queue.Changes(c.queue, c.whenReplica)},
		queue.Watch{Events: c.deps.Shares, Handler: child},
		queue.Watch{Events: c.deps.Nodes, Handler: queue.Changes(c.queue, c.whenNode)},
		queue.Watch{Events: c.deps.InstanceManagers, Handler: queue.Changes(c.queue, c.whenInstanceManager)},
		queue.Watch{Events: c.deps.Settings, Handler: setting},
	)
}

func (c *Controller) whenSetting(o metav1.Object) []string {
	switch settings.Name(o.GetName()) {
	case settings.ReplicaAutoBalance, settings.ReplicaAutoBalanceDiskPressurePercentage:
		return c.volumesThat(isAttached)
	}
	names := c.volumesThat(isWanting)
	if o.GetName() != string(settings.NodeDrainPolicy) {
		return names
	}
	nodes, err := c.deps.Nodes.List(labels.Everything())
	if err != nil {
		return names
	}
	for _, n := range nodes {
		if types.IsNodeCordoned(n) {
			names = append(names, c.onNode(n.Name)...)
		}
	}
	return names
}

func (c *Controller) whenNode(was, is *longhorn.Node) []string {
	switch {
	case is == nil:
		return c.onNode(was.Name)
	case was == nil:
		return append(c.onNode(is.Name), c.volumesThat(c.mayUsePlace)...)
	}
	var names []string
	if hasTurned(was, is) {
		names = c.onNode(is.Name)
	}
	switch {
	case opensPlace(was, is):
		names = append(names, c.volumesThat(c.mayUsePlace)...)
	case hasMoreRoom(was, is):
		names = append(names, c.volumesThat(isUnplaced)...)
	}
	return names
}

func (c *Controller) whenInstanceManager(was, is *longhorn.InstanceManager) []string {
	var before, after longhorn.InstanceManagerStatus
	node := ""
	if was != nil {
		before, node = was.Status, was.Spec.NodeID
	}
	if is != nil {
		after, node = is.Status, is.Spec.NodeID
	}
	if is != nil && was != nil && before.CurrentState == after.CurrentState && before.UUID == after.UUID &&
		types.ReplicasGrow(was) == types.ReplicasGrow(is) && types.DevicesGrow(was) == types.DevicesGrow(is) {
		return nil
	}
	names := c.onNode(node)
	if after.CurrentState == longhorn.InstanceManagerStateRunning && before.CurrentState != after.CurrentState {
		names = append(names, c.volumesThat(c.mayUsePlace)...)
	}
	return names
}

func (c *Controller) whenReplica(_, is *longhorn.Replica) []string {
	if is != nil {
		return nil
	}
	return c.volumesThat(isUnplaced)
}

func (c *Controller) whenEngine(was, is *longhorn.Engine) []string {
	if was == nil {
		return nil
	}
	ended := rebuildsEnded(was, is)
	if len(ended) == 0 {
		return nil
	}
	replicas, err := c.deps.Replicas.ByIndex(datastore.IndexVolume, was.Spec.VolumeName)
	if err != nil {
		return nil
	}
	var names []string
	for _, r := range replicas {
		if slices.Contains(ended, r.Name) {
			names = append(names, c.nextOn(r.Spec.NodeID)...)
		}
	}
	return names
}

// rebuildsEnded lists the replicas that an engine was rebuilding, or had in its spec to rebuild, and does not have
// there now; is is nil when the engine is gone.
func rebuildsEnded(was, is *longhorn.Engine) []string {
	now := map[string]bool{}
	if is != nil {
		now = rebuilds(is)
	}
	var ended []string
	for _, name := range slices.Sorted(maps.Keys(rebuilds(was))) {
		if !now[name] {
			ended = append(ended, name)
		}
	}
	return ended
}

func rebuilds(e *longhorn.Engine) map[string]bool {
	under := map[string]bool{}
	for name := range e.Spec.ReplicaAddressMap {
		isMember := e.Status.Epoch != nil && slices.Contains(e.Status.Epoch.Members, name)
		if isWanted(e) && !isMember && e.Status.ReplicaModeMap[name] != longhorn.ReplicaModeERR {
			under[name] = true
		}
	}
	return under
}

// nextOn lists degraded volumes with a replica on a node, longest degraded first. It returns up to twice as many as the
// rebuilds that may run at once, because not each of the volumes can start one.
func (c *Controller) nextOn(node string) []string {
	var waiting []*longhorn.Volume
	for _, name := range c.onNode(node) {
		if v, err := c.deps.Volumes.GetRO(name); err == nil && v.Status.Robustness == longhorn.VolumeRobustnessDegraded {
			waiting = append(waiting, v)
		}
	}
	slices.SortFunc(waiting, func(a, b *longhorn.Volume) int {
		return cmp.Or(cmp.Compare(a.Status.LastDegradedAt, b.Status.LastDegradedAt), cmp.Compare(a.Name, b.Name))
	})
	var names []string
	for _, v := range slices.CompactFunc(waiting, func(a, b *longhorn.Volume) bool { return a.Name == b.Name }) {
		names = append(names, v.Name)
	}
	return names[:min(len(names), 2*rebuildLimit(c.deps.Setting))]
}

// hasTurned reports whether a node went down, came back, was cordoned or uncordoned, or has other disks than before.
// A changed eviction request of the node or of one of its disks counts too. The many other changes of a node, above
// all of its disks' free space, do not concern the replicas there.
func hasTurned(was, is *longhorn.Node) bool {
	sameDisks := maps.EqualFunc(was.Status.DiskStatus, is.Status.DiskStatus, func(a, b longhorn.DiskStatus) bool { return a.DiskUUID == b.DiskUUID })
	sameEviction := was.Spec.EvictionRequested == is.Spec.EvictionRequested &&
		maps.EqualFunc(was.Spec.Disks, is.Spec.Disks, func(a, b longhorn.DiskSpec) bool { return a.EvictionRequested == b.EvictionRequested })
	return types.IsNodeDown(was) != types.IsNodeDown(is) || types.IsNodeGone(was) != types.IsNodeGone(is) ||
		types.IsNodeCordoned(was) != types.IsNodeCordoned(is) || !sameDisks || !sameEviction
}

// opensPlace reports whether a node or one of its disks now accepts replicas that it did not accept before, whatever
// their size.
func opensPlace(was, is *longhorn.Node) bool {
	if opens(was.Status.Conditions, is.Status.Conditions) || !was.Spec.AllowScheduling && is.Spec.AllowScheduling ||
		was.Spec.EvictionRequested && !is.Spec.EvictionRequested ||
		!slices.Equal(was.Spec.Tags, is.Spec.Tags) || was.Status.Zone != is.Status.Zone {
		return true
	}
	for name := range is.Spec.Disks {
		a, b := was.Spec.Disks[name], is.Spec.Disks[name]
		if !a.AllowScheduling && b.AllowScheduling || a.EvictionRequested && !b.EvictionRequested || !slices.Equal(a.Tags, b.Tags) {
			return true
		}
		before, after := was.Status.DiskStatus[name], is.Status.DiskStatus[name]
		if opens(before.Conditions, after.Conditions) || before.DiskUUID != after.DiskUUID {
			return true
		}
	}
	return false
}

// hasMoreRoom reports whether a disk may take larger replicas than before. It ignores the space that is scheduled on
// the disk: the deletion of a replica has its own event.
func hasMoreRoom(was, is *longhorn.Node) bool {
	for name := range is.Spec.Disks {
		before, after := was.Status.DiskStatus[name], is.Status.DiskStatus[name]
		if is.Spec.Disks[name].StorageReserved < was.Spec.Disks[name].StorageReserved ||
			after.StorageAvailable > before.StorageAvailable || after.StorageMaximum > before.StorageMaximum {
			return true
		}
	}
	return false
}

// opens reports whether one of the conditions that placement requires became True.
func opens(was, is []longhorn.Condition) bool {
	for _, kind := range []string{types.ConditionReady, types.ConditionSchedulable} {
		if !types.IsConditionTrue(was, kind) && types.IsConditionTrue(is, kind) {
			return true
		}
	}
	return false
}

// onNode lists the volumes that have their engine or a replica on a node.
func (c *Controller) onNode(node string) []string {
	var names []string
	if engines, err := c.deps.Engines.ByIndex(datastore.IndexNode, node); err == nil {
		for _, e := range engines {
			names = append(names, e.Spec.VolumeName)
		}
	}
	if replicas, err := c.deps.Replicas.ByIndex(datastore.IndexNode, node); err == nil {
		for _, r := range replicas {
			names = append(names, r.Spec.VolumeName)
		}
	}
	return names
}

func (c *Controller) volumesThat(are func(*longhorn.Volume) bool) []string {
	volumes, err := c.deps.Volumes.List(labels.Everything())
	if err != nil {
		return nil
	}
	var names []string
	for _, v := range volumes {
		if are(v) {
			names = append(names, v.Name)
		}
	}
	return names
}

// isUnplaced reports whether the volume waits for room, which a change of a node may have created.
func isUnplaced(v *longhorn.Volume) bool {
	if types.FindCondition(v.Status.Conditions, types.ConditionExpanded).Reason == types.ReasonNoRoomToGrow {
		return true
	}
	c := types.FindCondition(v.Status.Conditions, types.ConditionScheduled)
	return c.Status != longhorn.ConditionTrue || c.Reason != ""
}

func isAttached(v *longhorn.Volume) bool { return v.Status.State == longhorn.VolumeStateAttached }

// mayUsePlace reports whether the volume waits for room, or may improve its balance with a replica at a new place. For
// balance, changes of the free room on a disk do not wake a volume: they are frequent, and the volume checks at
// intervals anyway (lookAgain in package copies).
func (c *Controller) mayUsePlace(v *longhorn.Volume) bool {
	setting := longhorn.AutoBalance(c.deps.Setting.Text(settings.ReplicaAutoBalance))
	return isUnplaced(v) || isAttached(v) && copies.AutoBalanceOf(v, setting) != longhorn.AutoBalanceDisabled
}

func isWanting(v *longhorn.Volume) bool {
	return isUnplaced(v) || v.Status.Robustness == longhorn.VolumeRobustnessDegraded
}
