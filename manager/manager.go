// Package manager holds the use cases behind the REST API. It validates requests, including a dry run of the scheduler,
// writes the intent to specs, and composes views of objects.
//
//	api ──► manager ──► spec of Volume, Node, Setting, Snapshot; tickets of VolumeAttachment
//	            ▲
//	            └────── caches (views), live reads (for all that a write depends on)
//
// It writes no status, with one exception: a revert, which changes the line of an Engine while the engine is stopped. It
// waits for no controller, except TakeSnapshot: a use case is complete when the intent is recorded. It must not know
// HTTP, controllers or the data plane.
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
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
)

// The API objects in views, so that the REST layer needs only this package.
type (
	// Condition is one observed aspect of an object.
	Condition = longhorn.Condition
	// DiskSpec is the requested state of a disk.
	DiskSpec = longhorn.DiskSpec
	// DiskType is the kind of a disk.
	DiskType = longhorn.DiskType
	// Engine is the only writer of a volume.
	Engine = longhorn.Engine
	// InstanceSpec is the common part of the specs of engines and replicas.
	InstanceSpec = longhorn.InstanceSpec
	// InstanceStatus is the common part of their status.
	InstanceStatus = longhorn.InstanceStatus
	// Node is a node with its disks.
	Node = longhorn.Node
	// RebuildStatus is the progress of a rebuild.
	RebuildStatus = longhorn.RebuildStatus
	// Replica is one copy of a volume.
	Replica = longhorn.Replica
	// ShareManager is the NFS server of a shared volume.
	ShareManager = longhorn.ShareManager
	// Snapshot is the content of a volume at one moment.
	Snapshot = longhorn.Snapshot
	// Volume is only the volume object, without the objects that belong to it.
	Volume = longhorn.Volume
	// VolumeAttachment holds the tickets of a volume.
	VolumeAttachment = longhorn.VolumeAttachment
)

// Cached reads one kind from a cache; callers must not modify the results.
type Cached[T any] interface {
	datastore.Reader[T]
	datastore.Lister[T]
}

// Indexed reads one kind from a cache by an index of package datastore.
type Indexed[T any] interface {
	datastore.Lister[T]
	datastore.Indexer[T]
}

// VolumeStore has the volumes.
type VolumeStore interface {
	Cached[*Volume]
	datastore.LiveReader[*Volume]
	datastore.Creator[*Volume]
	datastore.Updater[*Volume]
	datastore.Deleter
}

// EngineStore has the engines.
type EngineStore interface {
	Indexed[*Engine]
	datastore.LiveReader[*Engine]
	datastore.StatusUpdater[*Engine]
}

// SnapshotStore has the snapshots.
type SnapshotStore interface {
	Cached[*Snapshot]
	datastore.Indexer[*Snapshot]
	datastore.LiveReader[*Snapshot]
	datastore.Creator[*Snapshot]
	datastore.Deleter
	// IsWatched is false if the manifests are of a release without snapshots. Then reading the cache is an error.
	IsWatched() bool
}

// ReplicaStore has the replicas.
type ReplicaStore interface {
	Indexed[*Replica]
	datastore.LiveReader[*Replica]
	datastore.Deleter
}

// AttachmentStore has the VolumeAttachments.
type AttachmentStore interface {
	Cached[*VolumeAttachment]
	datastore.LiveReader[*VolumeAttachment]
	datastore.Creator[*VolumeAttachment]
	datastore.Updater[*VolumeAttachment]
}

// NodeStore has the nodes.
type NodeStore interface {
	Cached[*Node]
	datastore.LiveReader[*Node]
	datastore.Updater[*Node]
	datastore.Deleter
}

// SettingStore has the settings.
type SettingStore interface {
	datastore.Reader[*longhorn.Setting]
	datastore.LiveReader[*longhorn.Setting]
	datastore.Creator[*longhorn.Setting]
	datastore.Updater[*longhorn.Setting]
}

// Deps are the dependencies of a Manager; all except Daemons must be set. The stores must see the whole cluster, and
// their caches must be filled before the first call.
type Deps struct {
	Volumes          VolumeStore
	Attachments      AttachmentStore
	Engines          EngineStore
	Replicas         ReplicaStore
	Nodes            NodeStore
	KubeNodes        datastore.LiveReader[*corev1.Node]
	Settings         SettingStore
	InstanceManagers Cached[*longhorn.InstanceManager]
	ShareManagers    Cached[*longhorn.ShareManager]
	Snapshots        SnapshotStore
	Pods             Indexed[*corev1.Pod]
	Claims           ClaimStore
	StorageClasses   datastore.LiveReader[*storagev1.StorageClass]
	PriorityClasses  datastore.LiveReader[*schedulingv1.PriorityClass]
	Changes          ChangeSource
	Events           EventStore
	// Daemons may be nil: then requests that need a node's daemon are refused.
	Daemons NodeDaemons
	// Version is the version of this program.
	Version string
	// Namespace is the namespace in which objects are created.
	Namespace string
	Clock     clock.Clock
	Log       *logrus.Entry
}

// Manager carries out use cases. Its methods may be called from many goroutines.
//
// Errors: *Invalid, or a *Problem of the class ErrNotFound, ErrConflict, ErrInsufficient or ErrUnavailable; their texts
// are for the caller. Any other error is an internal failure, and its text must not be shown to the caller.
type Manager struct {
	deps Deps
	// Held by one removal of a replica, from its check of the other replicas until the removal is complete.
	removals *semaphore.Weighted
}

// New returns a Manager; it reads nothing.
func New(deps Deps) *Manager { return &Manager{deps: deps, removals: semaphore.NewWeighted(1)} }

// byName reads live the object that a user has named. If the name cannot be part of a URL, no object has it, and byName
// does not read: the client would fail.
func byName[T any](ctx context.Context, from datastore.LiveReader[T], name string) (T, error) {
	if name == "" || len(name) > maxNameLength || len(content.IsPathSegmentName(name)) > 0 {
		var none T
		return none, apierrors.NewNotFound(longhorn.Resource(""), name)
	}
	return from.Live(ctx, name)
}

// maxNameLength is the length limit of any object's name, in bytes.
const maxNameLength = 253

// settings returns the effective values; a setting without an object has its default.
func (m *Manager) settings() settings.Values {
	return func(name settings.Name) string {
		s, err := m.deps.Settings.GetRO(string(name))
		if err != nil {
			return ""
		}
		return settings.ValueInForce(s)
	}
}

// DepsOf returns the Deps of a Manager for the stores of a datastore of the whole cluster and a ClaimStore.
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
		Snapshots:        d.Snapshots,
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
