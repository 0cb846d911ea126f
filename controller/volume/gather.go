package volume

import (
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/controller/volume/children"
	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// gather reads everything that a plan is based on, without the children of an earlier volume of the same name. If
// the cache is behind this controller's own writes, gather returns an error: otherwise a plan would count or create
// the same objects twice.
func (c *Controller) gather(v *longhorn.Volume) (Input, error) {
	o, err := c.objects()
	if err != nil {
		return Input{}, err
	}
	if c.deps.Replicas.IsStaleIn(datastore.IndexVolume, v.Name) {
		return Input{}, queue.ErrStale
	}
	in, err := c.gatherVolume(v, o)
	if err != nil {
		return in, err
	}
	if in.Engine != nil && c.deps.Engines.IsStale(in.Engine) {
		return in, queue.ErrStale
	}
	if va, err := c.deps.Attachments.GetRO(v.Name); err == nil && ownedBy(va, v) {
		in.Attachment = va
	}
	if s, err := c.deps.Shares.GetRO(v.Name); err == nil && ownedBy(s, v) {
		in.Share = s
	}
	in.ShareImage = c.deps.ShareImage
	for range max(1, v.Spec.NumberOfReplicas) {
		in.Names = append(in.Names, children.ReplicaNames{Replica: types.NewReplicaName(v.Name), Directory: types.NewDataDirectoryName(v.Name)})
	}
	if err := c.gatherRebuilds(&in, o); err != nil {
		return in, err
	}
	o.Replicas = c.promised(c.placed.with(o.Replicas, v.Name))
	in.Unsettled = copies.UnsettledDisks(o.Replicas, in.Now)
	in.Cluster = o.Snapshot(v.Name, scheduler.SettingsOf(c.deps.Setting, &v.Spec))
	return in, nil
}

// objects lists the objects of the cluster that concern more than one volume.
func (c *Controller) objects() (o scheduler.Objects, err error) {
	if o.Replicas, err = c.deps.Replicas.List(labels.Everything()); err != nil {
		return o, err
	}
	if o.Nodes, err = c.deps.Nodes.List(labels.Everything()); err != nil {
		return o, err
	}
	o.InstanceManagers, err = c.deps.InstanceManagers.List(labels.Everything())
	return o, err
}

// gatherVolume reads a volume's engine and replicas, the state of their nodes, and the settings.
func (c *Controller) gatherVolume(v *longhorn.Volume, o scheduler.Objects) (Input, error) {
	in := Input{Owner: c.deps.Owner, Facts: copies.Facts{Volume: v, Now: c.deps.Clock.Now(), LacksDisk: map[string]bool{}}}
	in.readSettings(c.deps.Setting)
	nodes := []string{v.Spec.NodeID}
	engines, err := c.deps.Engines.ByIndex(datastore.IndexVolume, v.Name)
	if err != nil {
		return in, err
	}
	for _, e := range engines {
		if ownedBy(e, v) {
			in.Engine = e
			nodes = append(nodes, e.Spec.NodeID)
		}
	}
	replicas, err := c.deps.Replicas.ByIndex(datastore.IndexVolume, v.Name)
	if err != nil {
		return in, err
	}
	for _, r := range replicas {
		if r.Spec.VolumeName == v.Name && ownedBy(r, v) {
			in.Replicas = append(in.Replicas, r)
			in.LacksDisk[r.Name] = lacksDisk(o.Nodes, r)
			nodes = append(nodes, r.Spec.NodeID)
		}
	}
	in.Evicted = copies.EvictedOf(in.Facts, o.Nodes, settings.DrainPolicy(c.deps.Setting.Text(settings.NodeDrainPolicy)))
	for _, r := range in.Replicas {
		if stuck, _ := isStuck(in, r); stuck {
			in.Evicted[r.Name] = true // a replica elsewhere that has the size replaces it
		}
	}
	in.Nodes = nodeFacts(nodes, o)
	in.Growth = growthOf(in.Nodes, o.InstanceManagers)
	in.Pressed = copies.PressedOf(in.Facts, o.Nodes)
	return in, nil
}

// gatherRebuilds reads which rebuilds other volumes claim on the nodes where this volume wants a rebuild. Most of
// the time a volume wants none.
func (c *Controller) gatherRebuilds(in *Input, o scheduler.Objects) error {
	wants := copies.ClaimOf(in.Facts, true).Wants
	seen := map[string]bool{in.Volume.Name: true}
	for _, node := range wants {
		for _, name := range c.onNode(node) {
			if seen[name] {
				continue
			}
			seen[name] = true
			v, err := c.deps.Volumes.GetRO(name)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return err
			}
			other, err := c.gatherVolume(v, o)
			if err != nil {
				return err
			}
			in.Rebuilds = append(in.Rebuilds, c.turns.correct(copies.ClaimOf(other.Facts, false), other.Engine, c.isOutdated))
		}
	}
	return nil
}

// isOutdated reports whether an engine from the cache is older than this process's last write, or than the engine
// that the cache shows now. The second check is needed because Engines.IsStale forgets a write once the cache shows
// it.
func (c *Controller) isOutdated(e *longhorn.Engine) bool {
	if c.deps.Engines.IsStale(e) {
		return true
	}
	now, err := c.deps.Engines.GetRO(e.Name) // read last: if this read shows it still, the earlier read was current
	return err != nil || now.ResourceVersion != e.ResourceVersion
}

func lacksDisk(nodes []*longhorn.Node, r *longhorn.Replica) bool {
	return slices.ContainsFunc(nodes, func(n *longhorn.Node) bool { return n.Name == r.Spec.NodeID && types.LacksDisk(n, r) })
}

func nodeFacts(names []string, o scheduler.Objects) map[string]copies.NodeFact {
	byName := map[string]*longhorn.Node{}
	for _, n := range o.Nodes {
		byName[n.Name] = n
	}
	known := map[string]copies.NodeFact{}
	for _, name := range names {
		if name != "" {
			known[name] = copies.NodeFact{Down: types.IsNodeDown(byName[name]), Gone: types.IsNodeGone(byName[name])}
			if n := byName[name]; n != nil {
				fact := known[name]
				fact.Zone = n.Status.Zone
				known[name] = fact
			}
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

func growthOf(nodes map[string]copies.NodeFact, managers []*longhorn.InstanceManager) map[string]Growth {
	can := map[string]Growth{}
	for _, im := range managers {
		if _, ok := nodes[im.Spec.NodeID]; ok && im.Status.CurrentState == longhorn.InstanceManagerStateRunning {
			can[im.Spec.NodeID] = Growth{Replicas: types.ReplicasGrow(im), Devices: types.DevicesGrow(im)}
		}
	}
	return can
}

// ownedBy reports whether an object belongs to exactly this volume, and not to an earlier volume of the same name.
func ownedBy(o metav1.Object, v *longhorn.Volume) bool {
	for _, ref := range o.GetOwnerReferences() {
		if ref.UID == v.UID {
			return true
		}
	}
	return false
}

// readSettings fills in the values of the settings.
func (in *Input) readSettings(s settings.Values) {
	in.DefaultReplicaCount = int(s.Int(settings.DefaultReplicaCount))
	in.DefaultLocality = longhorn.DataLocality(s.Text(settings.DefaultDataLocality))
	in.AutoBalance = longhorn.AutoBalance(s.Text(settings.ReplicaAutoBalance))
	in.DiskPressure = s.Int(settings.ReplicaAutoBalanceDiskPressurePercentage)
	in.ReplenishmentWait = time.Duration(s.Int(settings.ReplenishmentWaitIntervalS)) * time.Second
	in.RebuildLimit = rebuildLimit(s)
	in.SnapshotWarning = int(s.Int(settings.SnapshotCountWarningThreshold))
	in.SnapshotLimit = int(s.Int(settings.SnapshotMaxCount))
	in.AllowDegraded = s.Bool(settings.AllowVolumeCreationWithDegradedAvailability)
}

// rebuildLimit is the number of rebuilds that may run at once towards the disks of one node; 0 turns rebuilds off.
func rebuildLimit(s settings.Values) int {
	return int(s.Int(settings.ConcurrentReplicaRebuildPerNodeLimit))
}
