package explain

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Snapshot contains everything that the Findings are based on: the objects as they were at Now. It is never modified.
type Snapshot struct {
	// Now is the time at which the objects were read. Delays are computed from it.
	Now time.Time
	// Namespace is the namespace of the installation.
	Namespace string

	Volumes          []*longhorn.Volume
	Engines          []*longhorn.Engine
	Replicas         []*longhorn.Replica
	Attachments      []*longhorn.VolumeAttachment
	Nodes            []*longhorn.Node
	InstanceManagers []*longhorn.InstanceManager
	ShareManagers    []*longhorn.ShareManager
	Settings         []*longhorn.Setting
	// Snapshots are the snapshots of volumes. They may be missing if the installation is of a release without snapshots.
	Snapshots []*longhorn.Snapshot

	// The following may be empty if the user may not read them (Unseen). Then their absence proves nothing.
	KubeNodes []*corev1.Node
	Pods      []*corev1.Pod // of Namespace
	Claims    []*corev1.PersistentVolumeClaim
	Classes   []*storagev1.StorageClass
	Events    []*corev1.Event // Warnings about claims, and about pods whose volumes cannot be mounted

	PersistentVolumes []*corev1.PersistentVolume
	// UserPods are pods of any namespace that use claims. For the whole cluster they contain only pods that have not
	// started yet.
	UserPods []*corev1.Pod
	// KubeAttachments are Kubernetes' VolumeAttachments of this driver.
	KubeAttachments []*storagev1.VolumeAttachment

	// Unseen lists the kinds that could not be read, by the plural name that kubectl uses.
	Unseen []string
}

// Values that Unseen may contain.
const (
	ResourceVolumes          = "volumes.longhorn.io"
	ResourceEngines          = "engines.longhorn.io"
	ResourceReplicas         = "replicas.longhorn.io"
	ResourceAttachments      = "volumeattachments.longhorn.io"
	ResourceNodes            = "nodes.longhorn.io"
	ResourceInstanceManagers = "instancemanagers.longhorn.io"
	ResourceShareManagers    = "sharemanagers.longhorn.io"
	ResourceSettings         = "settings.longhorn.io"
	ResourceSnapshots        = "snapshots.longhorn.io"
	ResourceKubeNodes        = "nodes"
	ResourcePods             = "pods"
	ResourceClaims           = "persistentvolumeclaims"
	ResourceClasses          = "storageclasses"
	ResourceEvents           = "events"
	ResourceDaemonSets       = "daemonsets"
	ResourcePVs              = "persistentvolumes"
	ResourceUserPods         = "pods that use claims"
	ResourceKubeAttachments  = "volumeattachments.storage.k8s.io"
)

// MayNotRead reports whether the user may not read the objects of a kind. Then their absence proves nothing.
func (s *Snapshot) MayNotRead(plural string) bool { return slices.Contains(s.Unseen, plural) }

// sees reports whether the objects of a kind were read.
func (s *Snapshot) sees(plural string) bool { return !s.MayNotRead(plural) }

// IsEmpty reports whether the snapshot has no object of this product.
func (s *Snapshot) IsEmpty() bool {
	return len(s.Volumes)+len(s.Engines)+len(s.Replicas)+len(s.Attachments)+len(s.Nodes)+len(s.InstanceManagers)+len(s.ShareManagers)+len(s.Settings) == 0
}

// named returns the object with a name, or the zero value (nil) if there is none.
func named[T metav1.Object](list []T, name string) T {
	for _, o := range list {
		if o.GetName() == name {
			return o
		}
	}
	var none T
	return none
}

func (s *Snapshot) node(name string) *longhorn.Node { return named(s.Nodes, name) }

// isDown reports whether a node is known to be down, or gone. A node that the user may not read is not known to be
// down.
func (s *Snapshot) isDown(node string) bool {
	n := s.node(node)
	return types.IsNodeDown(n) && (n != nil || s.sees(ResourceNodes))
}

// isReachable reports whether the place of a replica is available. A replica counts as reachable if the user may not
// read its node.
func (s *Snapshot) isReachable(r *longhorn.Replica) bool {
	n := s.node(r.Spec.NodeID)
	if n == nil {
		return !s.sees(ResourceNodes)
	}
	return types.IsReachable(r, n)
}

func (s *Snapshot) engine(volume string) *longhorn.Engine {
	return named(s.Engines, types.EngineName(volume))
}

// replicasOf returns the replicas of a volume, sorted by name.
func (s *Snapshot) replicasOf(volume string) []*longhorn.Replica {
	var list []*longhorn.Replica
	for _, r := range s.Replicas {
		if r.Spec.VolumeName == volume {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *longhorn.Replica) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (s *Snapshot) instanceManager(node string) *longhorn.InstanceManager {
	return named(s.InstanceManagers, types.InstanceManagerName(node))
}

// values returns the settings in force.
func (s *Snapshot) values() settings.Values {
	return func(name settings.Name) string {
		if setting := named(s.Settings, string(name)); setting != nil {
			return settings.ValueInForce(setting)
		}
		return ""
	}
}

// place returns the values that every text can use, and those in more: a word and its value in turn. setVolume adds a
// volume.
func (s *Snapshot) place(more ...string) place {
	p := place{"ns": s.Namespace}
	for i := 0; i+1 < len(more); i += 2 {
		p[more[i]] = more[i+1]
	}
	return p
}
