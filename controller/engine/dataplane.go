package engine

import (
	"context"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Observed is an engine in the instance manager.
type Observed struct {
	Phase           types.Phase
	Reason, Message string // when Phase is PhaseError
	Generation      int64
	Session         string
	Endpoint        string
	SizeBytes       int64
	Modes           map[string]longhorn.ReplicaMode
	// Rebuilds are the rebuilds of replicas that are not members: running, or failed. For a former member, the error
	// is the reason why it was expelled.
	Rebuilds map[string]longhorn.RebuildStatus
	// Proposed is an epoch that must be recorded before the engine continues; nil: none.
	Proposed *longhorn.Epoch
	// Shown is the newest epoch that a replica showed, if the engine failed because the epoch of its start is not
	// newer; nil: none was shown.
	Shown *longhorn.Epoch
	// Grows: the process can grow the volume of an engine. DevicesGrow: it can also grow its device. A process that
	// cannot must not be asked.
	Grows, DevicesGrow bool
	// Snapshots: the process can take snapshots. One that cannot must not get a line.
	Snapshots bool
	// ProposedLine is a line that must be recorded in the same write as Proposed; nil: the start changed nothing.
	ProposedLine *layers.Line
	// Line is the line in force in the engine; nil: it has none.
	Line *layers.Line
	// Process identifies the instance manager's process; empty while unknown.
	Process string
}

// Spec is the specification of an engine for the instance manager.
type Spec struct {
	Name, Volume, Session string
	Generation            int64
	SizeBytes             int64
	BlockDevice           bool
	Epoch                 *longhorn.Epoch // as recorded; nil before the first start
	// Line is the record of snapshots.
	Line    layers.Line
	Members []Member
	Secret  []byte
	// Predecessor is the session with the kept device that the engine takes over; "": it creates a device.
	Predecessor string
}

// Member is a replica that the engine must connect to.
type Member struct {
	Name, UID string
	Address   string // ip:port
	// TLS: the connection is encrypted, and both ends prove over it that they know the volume's key. Without that
	// proof there is no connection.
	TLS bool
}

// Snapshot is the result of a snapshot that all members have stored.
type Snapshot struct {
	// Epoch was in force when the members switched.
	Epoch longhorn.Epoch
	// Sealed are the replicas that have durably stored everything below the point.
	Sealed []string
	// Pause is how long the writes of users waited.
	Pause time.Duration
	// At is the time at which the call ended. The controller sets it.
	At time.Time
}

// InUse is an error of StopEngine: a process has the device open or mounted.
type InUse struct{ Message string }

// Error returns the message.
func (e *InUse) Error() string { return e.Message }

// DataPlane is the part of the node's instance manager that concerns engines. Every call is idempotent.
// Implementations must call the controller's Notify or NotifyAll when a state changes, and NotifyAll when the phase of
// a replica changes.
type DataPlane interface {
	ObserveEngine(name string) Observed
	// Engines names the engines in the instance manager; false: the instance manager has not answered yet.
	Engines() (names []string, known bool)
	// ReplicaPhase is the phase that the instance manager reports for a replica.
	ReplicaPhase(name string) types.Phase
	// StartEngine fails with *types.Refusal if an immediate retry is of no use.
	StartEngine(ctx context.Context, s Spec) error
	// StopEngine stops the engine of that session, if it exists. It fails with *InUse while the device is in use. With
	// force, it stops the engine even then: the engine acknowledges nothing more, and its users get errors.
	StopEngine(ctx context.Context, name, session string, force bool) error
	// RecordEpoch passes on the epoch that the object holds, and the line that it holds with the epoch. The engine ends its
	// start if the line has another revert than the one with which the engine starts.
	RecordEpoch(ctx context.Context, name, session string, epoch longhorn.Epoch, line layers.Line) error
	// TakeSnapshot takes the snapshot of a point, which the line has as intended. It returns when all members have
	// stored it, or when the attempt has ended. It fails with *types.Refusal if the engine refuses or ends the attempt.
	TakeSnapshot(ctx context.Context, name, session string, line layers.Line, p layers.Point) (Snapshot, error)
	// SetLine makes the engine of that session, and its members, follow a line.
	SetLine(ctx context.Context, name, session string, line layers.Line) error
	// ExpandEngine makes the engine of that session offer a larger size, with its device. It changes nothing if a
	// member is smaller.
	ExpandEngine(ctx context.Context, name, session string, sizeBytes int64) error
	// AddReplica starts to make a replica a member by a full copy, and returns at once. It does nothing if the replica
	// is a member or is being rebuilt. A bytesPerSecond of 0 sets no limit.
	AddReplica(ctx context.Context, name, session string, m Member, bytesPerSecond int64) error
	// RemoveReplica cancels a rebuild or expels a member, never the last one; it returns at once.
	RemoveReplica(ctx context.Context, name, session, replica string) error
}
