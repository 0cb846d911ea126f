package metrics

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// ofVolume are the first labels of every family of a volume.
const ofVolume = "node volume pvc pvc_namespace"

var (
	ofCluster families

	volumeCapacity   = ofCluster.add("volume_capacity_bytes", ofVolume, "Size of the volume (spec.size).")
	volumeActualSize = ofCluster.add("volume_actual_size_bytes", ofVolume, "Bytes that the largest replica of the volume has allocated.")
	volumeState      = ofCluster.add("volume_state", ofVolume+" state", "One series for each state: 1 for the present state of the volume, 0 for the others.")
	volumeRobustness = ofCluster.add("volume_robustness", ofVolume+" state", "One series for each robustness: 1 for the present robustness of the volume, 0 for the others.")
	volumeStatus     = ofCluster.ours("volume_status", ofVolume+" condition condition_reason", "1 if the condition of the volume is True, else 0.")
	volumeDegraded   = ofCluster.ours("volume_degraded_since_timestamp_seconds", ofVolume, "Time since which the volume has had fewer healthy replicas than requested (Unix time); absent while it has all of them.")
	rebuildProgress  = ofCluster.add("engine_rebuild_progress", "node engine rebuild_dst pvc pvc_namespace", "Progress of a running rebuild, in percent; rebuild_dst is the replica.")
	snapshotSize     = ofCluster.add("snapshot_actual_size_bytes", "snapshot volume user_created", "Space that the changes since the snapshot before this one take on the disk of one replica.")
	snapshotCount    = ofCluster.ours("volume_snapshots", "volume state", "Number of snapshots of the volume in the state: ready, not_ready, or deleted, whose space is not free yet. Absent for a volume without snapshots.")
	shareState       = ofCluster.ours("share_manager_state", "node share_manager state", "1 for the present state of the share of the volume with that name (status.state).")
	nodeCount        = ofCluster.add("node_count_total", "", "Number of Longhorn nodes of the cluster.")
	nodeReady        = ofCluster.ours("node_ready", "node", "1 if the node's condition Ready is True, else 0, for every node: a daemon that is down cannot report its own node.")
	settingApplied   = ofCluster.ours("setting_applied", "setting", "0 while the value of the setting is refused, has no effect yet, or waits until pods in use are replaced, else 1.")
)

var (
	volumeStates = []longhorn.VolumeState{
		longhorn.VolumeStateCreating, longhorn.VolumeStateAttached, longhorn.VolumeStateDetached, longhorn.VolumeStateAttaching,
		longhorn.VolumeStateDetaching, longhorn.VolumeStateDeleting,
	}
	volumeRobustnesses = []longhorn.VolumeRobustness{
		longhorn.VolumeRobustnessHealthy, longhorn.VolumeRobustnessDegraded, longhorn.VolumeRobustnessFaulted, longhorn.VolumeRobustnessUnknown,
	}
)

// ClaimFinder finds the bound persistent volumes of a volume; datastore.Workloads is one.
type ClaimFinder interface {
	Claims(volume string) ([]*corev1.PersistentVolume, error)
}

// ClusterDeps are the dependencies of Cluster. The stores contain the whole cluster.
type ClusterDeps struct {
	Volumes  Lister[*longhorn.Volume]
	Engines  Lister[*longhorn.Engine]
	Nodes    Lister[*longhorn.Node]
	Settings Lister[*longhorn.Setting]
	Shares   Lister[*longhorn.ShareManager]
	// Snapshots may be nil: the manifests are of a release without snapshots.
	Snapshots Lister[*longhorn.Snapshot]
	Claims    ClaimFinder
	Log       *logrus.Entry
}

// Cluster is the prometheus.Collector of the leader. The leader owns all volumes, because only its volume controller
// writes their status. The Cluster must be registered only while this daemon is the leader. Otherwise two daemons
// would export the same volume.
type Cluster struct{ deps ClusterDeps }

// NewCluster returns a Cluster. It reads nothing yet.
func NewCluster(deps ClusterDeps) *Cluster { return &Cluster{deps: deps} }

// Describe implements prometheus.Collector.
func (c *Cluster) Describe(out chan<- *prometheus.Desc) { ofCluster.describe(out) }

// Collect implements prometheus.Collector.
func (c *Cluster) Collect(out chan<- prometheus.Metric) {
	s := series(out)
	for _, v := range list(c.deps.Volumes, "volumes", c.deps.Log) {
		claim := c.claimOf(v.Name)
		s.volume(v, v.Status.CurrentNodeID, v.Name, claim.name, claim.namespace)
	}
	for _, e := range list(c.deps.Engines, "engines", c.deps.Log) {
		c.rebuilds(s, e)
	}
	for _, share := range list(c.deps.Shares, "share managers", c.deps.Log) {
		if share.Status.State != "" {
			s.gauge(shareState, 1, share.Status.CurrentNode, share.Name, string(share.Status.State))
		}
	}
	if c.deps.Snapshots != nil {
		s.snapshots(list(c.deps.Snapshots, "snapshots", c.deps.Log))
	}
	nodes := list(c.deps.Nodes, "nodes", c.deps.Log)
	s.gauge(nodeCount, float64(len(nodes)))
	for _, n := range nodes {
		s.gauge(nodeReady, oneIf(types.IsConditionTrue(n.Status.Conditions, types.ConditionReady)), n.Name)
	}
	for _, setting := range list(c.deps.Settings, "settings", c.deps.Log) {
		s.gauge(settingApplied, oneIf(setting.Status.Applied), setting.Name)
	}
}

// list returns the objects in the cache. If a kind cannot be read, its metrics are missing from the scrape.
func list[T any](from Lister[T], what string, log *logrus.Entry) []T {
	objects, err := from.List(labels.Everything())
	if err != nil {
		log.WithError(err).WithField("kind", what).Warn("metrics lack a kind")
	}
	return objects
}

func (s series) volume(v *longhorn.Volume, identity ...string) {
	s.bytes(volumeCapacity, int64(v.Spec.Size), identity...)
	s.bytes(volumeActualSize, v.Status.ActualSize, identity...)
	for _, state := range volumeStates {
		s.gauge(volumeState, oneIf(v.Status.State == state), with(identity, string(state))...)
	}
	for _, robustness := range volumeRobustnesses {
		s.gauge(volumeRobustness, oneIf(v.Status.Robustness == robustness), with(identity, string(robustness))...)
	}
	s.conditions(volumeStatus, v.Status.Conditions, identity...)
	if since, err := time.Parse(time.RFC3339, v.Status.LastDegradedAt); err == nil {
		s.gauge(volumeDegraded, float64(since.Unix()), identity...)
	}
}

// The states of snapshots. A deleted snapshot is listed until its space is free.
var snapshotStates = []string{"ready", "not_ready", "deleted"}

func snapshotState(taken *longhorn.Snapshot) string {
	switch {
	case taken.Status.MarkRemoved || taken.DeletionTimestamp != nil:
		return "deleted"
	case taken.Status.ReadyToUse:
		return "ready"
	}
	return "not_ready"
}

// snapshots sends the size of each snapshot that has content, and the number of snapshots of each volume that has any.
func (s series) snapshots(all []*longhorn.Snapshot) {
	counts := map[string]map[string]int{}
	for _, taken := range all {
		if taken.Status.CreationTime != "" {
			s.bytes(snapshotSize, taken.Status.Size, taken.Name, taken.Spec.Volume, strconv.FormatBool(taken.Status.UserCreated))
		}
		if counts[taken.Spec.Volume] == nil {
			counts[taken.Spec.Volume] = map[string]int{}
		}
		counts[taken.Spec.Volume][snapshotState(taken)]++
	}
	for volume, count := range counts {
		for _, state := range snapshotStates {
			s.gauge(snapshotCount, float64(count[state]), volume, state)
		}
	}
}

// rebuilds sends the running rebuild of an engine.
func (c *Cluster) rebuilds(s series, e *longhorn.Engine) {
	for replica, rebuild := range e.Status.RebuildStatus {
		if rebuild.IsRebuilding {
			claim := c.claimOf(e.Spec.VolumeName)
			s.gauge(rebuildProgress, float64(rebuild.Progress), e.Spec.NodeID, e.Name, replica, claim.name, claim.namespace)
		}
	}
}

// claim is a PersistentVolumeClaim; both are empty if the volume has none.
type claim struct{ name, namespace string }

// claimOf returns the claim of a volume. If the volume has several, it is the first by name.
func (c *Cluster) claimOf(volume string) claim {
	bound, err := c.deps.Claims.Claims(volume)
	if err != nil {
		c.deps.Log.WithError(err).Warn("metrics lack a volume's claim")
		return claim{}
	}
	var first claim
	for _, pv := range bound {
		of := claim{name: pv.Spec.ClaimRef.Name, namespace: pv.Spec.ClaimRef.Namespace}
		if first == (claim{}) || strings.Compare(of.namespace+"/"+of.name, first.namespace+"/"+first.name) < 0 {
			first = of
		}
	}
	return first
}
