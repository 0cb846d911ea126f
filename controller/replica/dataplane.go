package replica

import (
	"context"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Observed is a replica in the instance manager.
type Observed struct {
	Phase types.Phase
	// Reason and Message describe the problem, if Phase is PhaseError or a running replica does not answer.
	Reason, Message string
	// Generation is the highest generation that the replica has stored durably; 0 while it is not open.
	Generation int64
	// AllocatedBytes is the space that its data uses; 0 while it is not open.
	AllocatedBytes int64
	// SizeBytes is the replica's durable size; 0 while it is not open, or for a process of an earlier release.
	SizeBytes int64
	// GrowError is the reason why it is smaller than requested; empty: it is not, or no growth was requested yet.
	GrowError string
	// Grows: the process grows a replica that is started with a larger size. A process of an earlier release must not
	// be asked to.
	Grows bool
	// Secure: the process serves replicas over TLS.
	Secure bool
	// Layers are the points of an open replica; nil: the process is of a release without snapshots.
	Layers *longhorn.ReplicaLayers
	// Process identifies the instance manager's process; empty while unknown.
	Process string
}

// Spec is the specification of a replica for the instance manager.
type Spec struct {
	Name, Volume, UID string
	Directory         string // absolute, on the node, beneath DiskPath
	// DiskPath is where the disk with DiskUUID is mounted now. If the data plane finds another UUID or none there, it
	// creates, opens and removes nothing.
	DiskPath, DiskUUID string
	SizeBytes          int64
	// ReserveBytes is the space of the disk that snapshots and merges leave free.
	ReserveBytes int64
	Secret       []byte
}

// DataPlane is the part of the node's instance manager that concerns replicas. Every call is idempotent.
// Implementations must call the controller's Notify or NotifyAll when a state changes. They must return a *types.Refusal
// if an immediate retry is of no use.
type DataPlane interface {
	ObserveReplica(name string) Observed
	// Replicas names the replicas in the instance manager; false: the instance manager has not answered yet.
	Replicas() (names []string, known bool)
	// CreateReplica creates the directory, once. Another call succeeds while nothing was written.
	CreateReplica(ctx context.Context, s Spec) error
	// StartReplica also grows a replica, open or not, if Observed.Grows.
	StartReplica(ctx context.Context, s Spec) error
	// StopReplica closes a replica. With a fence above 0, the replica durably refuses every engine of a lower
	// generation, and the older session is closed, before the call succeeds.
	StopReplica(ctx context.Context, name string, fence int64) error
	// RemoveReplica deletes the directory if it belongs to this replica (by UID); a missing directory is success.
	RemoveReplica(ctx context.Context, s Spec) error
}
