// Package manager holds the use cases behind the REST API: it validates requests, a dry
// run of the scheduler included, writes the intent to specs, and composes views of what
// there is.
//
//	api ──► manager ──► spec of Volume, Node, Setting; tickets of VolumeAttachment
//	            ▲
//	            └────── caches (views), live reads (whatever a write rests on)
//
// It writes no status and waits for no controller: a use case is done when the
// intent is recorded. It must not know HTTP, controllers or the data plane.
package manager

import (
	"context"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// The API objects that views are made of, so that the REST layer needs this package alone.
type (
	// Condition is one observed aspect of an object.
	Condition = longhorn.Condition
	// DiskSpec is a disk as a user asks for it.
	DiskSpec = longhorn.DiskSpec
	// DiskType is the kind of a disk.
	DiskType = longhorn.DiskType
	// Engine is the one writer of a volume.
	Engine = longhorn.Engine
	// InstanceSpec and InstanceStatus are what engines and replicas have in common.
	InstanceSpec = longhorn.InstanceSpec
	// InstanceStatus is the observed part.
	InstanceStatus = longhorn.InstanceStatus
	// Node is a node with its disks.
	Node = longhorn.Node
	// RebuildStatus is how far a rebuild has got.
	RebuildStatus = longhorn.RebuildStatus
	// Replica is one copy of a volume.
	Replica = longhorn.Replica
	// ShareManager is the NFS server of a shared volume.
	ShareManager = longhorn.ShareManager
	// Volume is a volume alone, without what belongs to it.
	Volume = longhorn.Volume
	// VolumeAttachment holds the tickets of a volume.
	VolumeAttachment = longhorn.VolumeAttachment
)

// Cached reads one kind from a cache; what it returns must not be modified.
type Cached[T any] interface {
	GetRO(name string) (T, error)
	List(selector labels.Selector) ([]T, error)
}

// Indexed reads one kind from a cache by an index of package datastore.
type Indexed[T any] interface {
	List(selector labels.Selector) ([]T, error)
	ByIndex(index, value string) ([]T, error)
}

// Live reads one kind from the API server; what it returns may be modified.
type Live[T any] interface {
	Live(ctx context.Context, name string) (T, error)
}

// Creator makes objects of one kind.
type Creator[T any] interface {
	Create(ctx context.Context, obj T) (T, error)
}

// Updater writes specs of one kind, on condition of the object's resourceVersion.
type Updater[T any] interface {
	Update(ctx context.Context, obj T) (T, error)
}

// VolumeStore is what is needed of volumes.
type VolumeStore interface {
	Cached[*Volume]
	Live[*Volume]
	Creator[*Volume]
	Updater[*Volume]
	Delete(ctx context.Context, name string, p datastore.Preconditions) error
}

// EngineStore is what is needed of engines.
type EngineStore interface {
	Indexed[*Engine]
	Live[*Engine]
}

// ReplicaStore is what is needed of replicas.
type ReplicaStore interface {
	Indexed[*Replica]
	Live[*Replica]
	Delete(ctx context.Context, name string, p datastore.Preconditions) error
}

// AttachmentStore is what is needed of VolumeAttachments.
type AttachmentStore interface {
	Cached[*VolumeAttachment]
	Live[*VolumeAttachment]
	Creator[*VolumeAttachment]
	Updater[*VolumeAttachment]
}

// NodeStore is what is needed of nodes.
type NodeStore interface {
	Cached[*Node]
	Live[*Node]
	Updater[*Node]
	Delete(ctx context.Context, name string, p datastore.Preconditions) error
}

// SettingStore is what is needed of settings.
type SettingStore interface {
	GetRO(name string) (*longhorn.Setting, error)
	Live[*longhorn.Setting]
	Creator[*longhorn.Setting]
	Updater[*longhorn.Setting]
}

// Deps are what a Manager works with; all but Daemons must be given. The stores must see the
// whole cluster, and their caches be filled, before the first call.
type Deps struct {
	Volumes          VolumeStore
	Attachments      AttachmentStore
	Engines          EngineStore
	Replicas         ReplicaStore
	Nodes            NodeStore
	KubeNodes        Live[*corev1.Node]
	Settings         SettingStore
	InstanceManagers Cached[*longhorn.InstanceManager]
	ShareManagers    Cached[*longhorn.ShareManager]
	Pods             Indexed[*corev1.Pod]
	Claims           ClaimStore
	StorageClasses   Live[*storagev1.StorageClass]
	PriorityClasses  Live[*schedulingv1.PriorityClass]
	Changes          ChangeSource
	Events           EventStore
	// Daemons may be nil: then what only they can do is refused.
	Daemons NodeDaemons
	// Version is that of this program.
	Version string
	// Namespace is where objects are made.
	Namespace string
	Clock     clock.Clock
	Log       *logrus.Entry
}

// Manager carries out use cases. Its methods may be called from many goroutines.
//
// Errors: *Invalid, or a *Problem of the class ErrNotFound, ErrConflict, ErrInsufficient or
// ErrUnavailable; their texts are for the caller's eyes. Any other error is a
// failure behind the scenes, and its text is not.
type Manager struct {
	deps     Deps
	removals *semaphore.Weighted // one removal of a replica holds it from its look at the others until it is done
}

// New returns a Manager; it reads nothing.
func New(deps Deps) *Manager { return &Manager{deps: deps, removals: semaphore.NewWeighted(1)} }

// byName reads live what a user has named. A name that cannot stand in a URL is nobody's: asking for it would
// fail in the client.
func byName[T any](ctx context.Context, from Live[T], name string) (T, error) {
	if name == "" || len(name) > maxNameLength || len(content.IsPathSegmentName(name)) > 0 {
		var none T
		return none, apierrors.NewNotFound(longhorn.Resource(""), name)
	}
	return from.Live(ctx, name)
}

// maxNameLength is that of any object's name, in bytes.
const maxNameLength = 253

// settings reads the values in force; a setting without an object has its default.
func (m *Manager) settings() types.SettingValues {
	return func(name types.SettingName) string {
		s, err := m.deps.Settings.GetRO(string(name))
		if err != nil {
			return ""
		}
		return types.ValueInForce(s)
	}
}

// DepsOf are the Deps that a datastore of the whole cluster gives, and what knows the volumes' claims.
func DepsOf(d *datastore.Datastore, claims ClaimStore, c clock.Clock, log *logrus.Entry) Deps {
	return Deps{
		Volumes:          d.Volumes,
		Attachments:      d.VolumeAttachments,
		Engines:          d.Engines,
		Replicas:         d.Replicas,
		Nodes:            d.Nodes,
		KubeNodes:        d.KubeNodes,
		Settings:         d.Settings,
		InstanceManagers: d.InstanceManagers,
		ShareManagers:    d.ShareManagers,
		Pods:             d.Pods,
		Claims:           claims,
		StorageClasses:   d.StorageClasses,
		PriorityClasses:  d.PriorityClasses,
		Changes:          d,
		Events:           d.Events,
		Namespace:        d.Namespace,
		Clock:            c,
		Log:              log,
	}
}
