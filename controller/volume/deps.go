package volume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// VolumeStore holds all volumes.
type VolumeStore interface {
	Get(name string) (*longhorn.Volume, error)
	GetRO(name string) (*longhorn.Volume, error)
	List(selector labels.Selector) ([]*longhorn.Volume, error)
	Live(ctx context.Context, name string) (*longhorn.Volume, error)
	Update(ctx context.Context, v *longhorn.Volume) (*longhorn.Volume, error)
	UpdateStatus(ctx context.Context, v *longhorn.Volume) (*longhorn.Volume, error)
	IsStale(v *longhorn.Volume) bool
	queue.Events
}

// AttachmentStore holds all volume attachments.
type AttachmentStore interface {
	GetRO(name string) (*longhorn.VolumeAttachment, error)
	Live(ctx context.Context, name string) (*longhorn.VolumeAttachment, error)
	Update(ctx context.Context, va *longhorn.VolumeAttachment) (*longhorn.VolumeAttachment, error)
	Create(ctx context.Context, va *longhorn.VolumeAttachment) (*longhorn.VolumeAttachment, error)
	queue.Events
}

// EngineStore holds all engines.
type EngineStore interface {
	GetRO(name string) (*longhorn.Engine, error)
	ByIndex(index, value string) ([]*longhorn.Engine, error)
	Live(ctx context.Context, name string) (*longhorn.Engine, error)
	Create(ctx context.Context, e *longhorn.Engine) (*longhorn.Engine, error)
	Update(ctx context.Context, e *longhorn.Engine) (*longhorn.Engine, error)
	Delete(ctx context.Context, name string, p datastore.Preconditions) error
	IsStale(e *longhorn.Engine) bool
	queue.Events
}

// ReplicaStore holds all replicas.
type ReplicaStore interface {
	List(selector labels.Selector) ([]*longhorn.Replica, error)
	ByIndex(index, value string) ([]*longhorn.Replica, error)
	ListLive(ctx context.Context, opts metav1.ListOptions) ([]*longhorn.Replica, error)
	Create(ctx context.Context, r *longhorn.Replica) (*longhorn.Replica, error)
	Update(ctx context.Context, r *longhorn.Replica) (*longhorn.Replica, error)
	Delete(ctx context.Context, name string, p datastore.Preconditions) error
	IsStaleIn(index, value string) bool
	queue.Events
}

// NodeStore holds all nodes.
type NodeStore interface {
	List(selector labels.Selector) ([]*longhorn.Node, error)
	queue.Events
}

// InstanceManagerStore holds all instance managers.
type InstanceManagerStore interface {
	List(selector labels.Selector) ([]*longhorn.InstanceManager, error)
	queue.Events
}

// SecretStore reads and creates the keys of volumes, which are not cached.
type SecretStore interface {
	Live(ctx context.Context, name string) (*corev1.Secret, error)
	Create(ctx context.Context, s *corev1.Secret) (*corev1.Secret, error)
}

// Deps are the dependencies of the controller. The stores are those for the whole cluster.
type Deps struct {
	queue.Env

	Volumes          VolumeStore
	Attachments      AttachmentStore
	Engines          EngineStore
	Replicas         ReplicaStore
	Nodes            NodeStore
	InstanceManagers InstanceManagerStore
	Secrets          SecretStore
	Shares           ShareStore
	Settings         queue.Events
	Setting          types.SettingValues
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
