package replica

import (
	"context"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// Observed is a replica in the instance manager.
type Observed struct {
	Phase types.Phase
	// Reason and Message say what is wrong, if Phase is PhaseError or a running replica does not
	// answer.
	Reason, Message string
	// Generation is the highest that the replica holds durably; 0 while it is not open.
	Generation int64
	// AllocatedBytes is the space that its data takes; 0 while it is not open.
	AllocatedBytes int64
	// SizeBytes is what the replica holds durably; 0 while it is not open, or of a process of an earlier release.
	SizeBytes int64
	// GrowError says why it is smaller than it was asked to be; empty: it is not, or was not asked yet.
	GrowError string
	// Grows: the process makes a replica larger that is started with a larger size. One of an earlier release must not be asked.
	Grows bool
	// Secure: the process serves replicas over TLS.
	Secure bool
	// Process identifies the instance manager's process; empty while unknown.
	Process string
}

// Spec is what the instance manager must know of a replica.
type Spec struct {
	Name, Volume, UID string
	Directory         string // absolute, on the node, beneath DiskPath
	// DiskPath is where the disk with DiskUUID is mounted now. Where the data plane finds another
	// UUID, or none, it makes, opens and removes nothing.
	DiskPath, DiskUUID string
	SizeBytes          int64
	Secret             []byte
}

// DataPlane is the node's instance manager, as far as replicas go. Every call is idempotent.
// Implementations must call the controller's Notify or NotifyAll when a state changes, and return a
// *types.Refusal where repeating the call at once is of no use.
type DataPlane interface {
	ObserveReplica(name string) Observed
	// Replicas names the hosted ones; false: the instance manager did not answer yet.
	Replicas() (names []string, known bool)
	// CreateReplica makes the directory, once; it succeeds again while nothing was written.
	CreateReplica(ctx context.Context, s Spec) error
	// StartReplica also makes a replica larger, open or not, if Observed.Grows.
	StartReplica(ctx context.Context, s Spec) error
	// StopReplica closes a replica. With a fence above 0 the replica durably refuses every engine of
	// a lower generation before this succeeds, and the older session is ended.
	StopReplica(ctx context.Context, name string, fence int64) error
	// RemoveReplica deletes the directory if it is this replica's (by UID); a missing one is success.
	RemoveReplica(ctx context.Context, s Spec) error
}
