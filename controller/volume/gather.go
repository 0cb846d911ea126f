package volume

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// gather reads everything a plan rests on; children of an earlier volume of the same name
// are left out. A cache that is behind this controller's own writes is an error: what was
// counted or made must not be counted or made again.
func (c *Controller) gather(v *longhorn.Volume) (Input, error) {
	in := Input{Volume: v, Owner: c.deps.Owner, Now: c.deps.Clock.Now()}
	in.DefaultReplicaCount = int(types.SettingInt(types.SettingDefaultReplicaCount, c.deps.Setting(types.SettingDefaultReplicaCount)))
	seconds := types.SettingInt(types.SettingReplenishmentWaitIntervalS, c.deps.Setting(types.SettingReplenishmentWaitIntervalS))
	in.ReplenishmentWait = time.Duration(seconds) * time.Second

	engines, err := c.deps.Engines.ByIndex(datastore.IndexVolume, v.Name)
	if err != nil {
		return in, err
	}
	for _, e := range engines {
		if c.deps.Engines.IsStale(e) {
			return in, queue.ErrStale
		}
		if ownedBy(e, v) {
			in.Engine = e
		}
	}
	if c.deps.Replicas.IsStaleIn(datastore.IndexVolume, v.Name) {
		return in, queue.ErrStale
	}
	if va, err := c.deps.Attachments.GetRO(v.Name); err == nil && ownedBy(va, v) {
		in.Attachment = va
	}
	for range max(1, v.Spec.NumberOfReplicas) {
		in.Names = append(in.Names, ReplicaNames{types.NewReplicaName(v.Name), types.NewDataDirectoryName(v.Name)})
	}
	return in, c.gatherCluster(&in)
}

// gatherCluster reads the replicas, where more may be placed, and how the volume's nodes fare.
func (c *Controller) gatherCluster(in *Input) error {
	var o scheduler.Objects
	var err error
	if o.Replicas, err = c.deps.Replicas.List(labels.Everything()); err != nil {
		return err
	}
	if o.Nodes, err = c.deps.Nodes.List(labels.Everything()); err != nil {
		return err
	}
	if o.InstanceManagers, err = c.deps.InstanceManagers.List(labels.Everything()); err != nil {
		return err
	}
	in.Cluster = o.Snapshot(in.Volume.Name, scheduler.SettingsOf(c.deps.Setting, in.Volume.Spec.ReplicaSoftAntiAffinity))

	in.Stranded = map[string]bool{}
	nodes := []string{in.Volume.Spec.NodeID}
	if in.Engine != nil {
		nodes = append(nodes, in.Engine.Spec.NodeID)
	}
	for _, r := range o.Replicas {
		if r.Spec.VolumeName == in.Volume.Name && ownedBy(r, in.Volume) {
			in.Replicas = append(in.Replicas, r)
			in.Stranded[r.Name] = isStranded(o.Nodes, r)
			nodes = append(nodes, r.Spec.NodeID)
		}
	}
	in.Nodes = facts(nodes, o)
	return nil
}

func isStranded(nodes []*longhorn.Node, r *longhorn.Replica) bool {
	return slices.ContainsFunc(nodes, func(n *longhorn.Node) bool { return n.Name == r.Spec.NodeID && types.LacksDisk(n, r) })
}

func facts(names []string, o scheduler.Objects) map[string]NodeFact {
	byName := map[string]*longhorn.Node{}
	for _, n := range o.Nodes {
		byName[n.Name] = n
	}
	known := map[string]NodeFact{}
	for _, name := range names {
		if name != "" {
			known[name] = NodeFact{Down: types.IsNodeDown(byName[name]), Gone: types.IsNodeGone(byName[name])}
		}
	}
	for _, im := range o.InstanceManagers {
		fact, ok := known[im.Spec.NodeID]
		if ok && im.Status.CurrentState == longhorn.InstanceManagerStateRunning {
			fact.Process = im.Status.UUID
			known[im.Spec.NodeID] = fact
		}
	}
	return known
}

// ownedBy tells whether an object belongs to this very volume, and not to an earlier one of its name.
func ownedBy(o metav1.Object, v *longhorn.Volume) bool {
	for _, ref := range o.GetOwnerReferences() {
		if ref.UID == v.UID {
			return true
		}
	}
	return false
}
