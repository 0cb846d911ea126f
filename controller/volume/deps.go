package volume

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
)

// VolumeStore holds all volumes.
type VolumeStore interface {
	datastore.WatchedReader[*longhorn.Volume]
	datastore.Getter[*longhorn.Volume]
	datastore.Lister[*longhorn.Volume]
	datastore.LiveReader[*longhorn.Volume]
	datastore.Updater[*longhorn.Volume]
	datastore.StatusWriter[*longhorn.Volume]
}

// AttachmentStore holds all volume attachments.
type AttachmentStore interface {
	datastore.WatchedReader[*longhorn.VolumeAttachment]
	datastore.LiveReader[*longhorn.VolumeAttachment]
	datastore.Creator[*longhorn.VolumeAttachment]
	datastore.Updater[*longhorn.VolumeAttachment]
}

// EngineStore holds all engines.
type EngineStore interface {
	datastore.WatchedReader[*longhorn.Engine]
	datastore.Indexer[*longhorn.Engine]
	datastore.LiveReader[*longhorn.Engine]
	datastore.Creator[*longhorn.Engine]
	datastore.Writer[*longhorn.Engine]
	datastore.Deleter
}

// ReplicaStore holds all replicas.
type ReplicaStore interface {
	datastore.WatchedLister[*longhorn.Replica]
	datastore.Indexer[*longhorn.Replica]
	datastore.LiveLister[*longhorn.Replica]
	datastore.StaleIndexChecker
	datastore.Creator[*longhorn.Replica]
	datastore.Updater[*longhorn.Replica]
	datastore.Deleter
}

// SecretStore reads and creates the keys of volumes, which are not cached.
type SecretStore interface {
	datastore.LiveReader[*corev1.Secret]
	datastore.Creator[*corev1.Secret]
}

// Deps are the dependencies of the controller. The stores are those for the whole cluster.
type Deps struct {
	queue.Env

	Volumes          VolumeStore
	Attachments      AttachmentStore
	Engines          EngineStore
	Replicas         ReplicaStore
	Nodes            datastore.WatchedLister[*longhorn.Node]
	InstanceManagers datastore.WatchedLister[*longhorn.InstanceManager]
	Secrets          SecretStore
	Shares           ShareStore
	Settings         queue.Events
	Setting          settings.Values
	// ShareImage is the image of new share managers.
	ShareImage string
	// Owner is the node of this daemon, for status.ownerID.
	Owner string
}

// DepsOf returns the stores of a datastore for the whole cluster.
func DepsOf(d *datastore.Datastore) Deps {
	return Deps{
		Volumes: d.Volumes, Attachments: d.VolumeAttachments, Engines: d.Engines, Replicas: d.Replicas,
		Nodes: d.Nodes, InstanceManagers: d.InstanceManagers, Secrets: d.Secrets, Shares: d.ShareManagers,
		Settings: d.Settings, Setting: d.Setting,
	}
}
