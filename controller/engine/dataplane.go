package engine

import (
	"context"

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
	// Rebuilds of replicas that are no members: under way, or ended by an error. For a former
	// member, the error is why it was expelled.
	Rebuilds map[string]longhorn.RebuildStatus
	// Proposed is an epoch that the engine wants recorded before it goes on; nil: none.
	Proposed *longhorn.Epoch
	// Shown is the newest epoch that a replica showed, if the engine failed because the epoch
	// that it was started with does not come after it; nil: none was.
	Shown *longhorn.Epoch
	// Grows: the process makes the volume of an engine larger, DevicesGrow: its device too. One that does not must not be asked.
	Grows, DevicesGrow bool
	// Process identifies the instance manager's process; empty while unknown.
	Process string
}

// Spec is what the instance manager must know of an engine to start it.
type Spec struct {
	Name, Volume, Session string
	Generation            int64
	SizeBytes             int64
	BlockDevice           bool
	Epoch                 *longhorn.Epoch // as recorded; nil before the first start
	Members               []Member
	Secret                []byte
	// Predecessor is the session whose kept device the engine takes over; "": it makes one.
	Predecessor string
}

// Member is a replica that the engine shall connect to.
type Member struct {
	Name, UID string
	Address   string // ip:port
	// TLS: the connection is encrypted, and both ends prove the volume's key over it, or there is none.
	TLS bool
}

// InUse is an error of StopEngine: a process has the device open or mounted.
type InUse struct{ Message string }

// Error returns the message.
func (e *InUse) Error() string { return e.Message }

// DataPlane is the node's instance manager, as far as engines go. Every call is
// idempotent. Implementations must call the controller's Notify or NotifyAll when a state changes, the latter when
// one of a replica does.
type DataPlane interface {
	ObserveEngine(name string) Observed
	// Engines names the hosted ones; false: the instance manager did not answer yet.
	Engines() (names []string, known bool)
	// ReplicaPhase is what the instance manager says of a replica.
	ReplicaPhase(name string) types.Phase
	// StartEngine fails with *types.Refusal where repeating the call at once is of no use.
	StartEngine(ctx context.Context, s Spec) error
	// StopEngine ends the engine of that session, if it is there. It fails with *InUse while the
	// device is in use; with force it ends the engine all the same: nothing more is acknowledged,
	// and its users get errors.
	StopEngine(ctx context.Context, name, session string, force bool) error
	RecordEpoch(ctx context.Context, name, session string, epoch longhorn.Epoch) error
	// ExpandEngine has the engine of that session offer a larger size, with its device. It changes nothing if a member is smaller.
	ExpandEngine(ctx context.Context, name, session string, sizeBytes int64) error
	// AddReplica begins to make a replica a member by a full copy, and returns at once. It does
	// nothing for one that is a member or on the way. A bytesPerSecond of 0 is no bound.
	AddReplica(ctx context.Context, name, session string, m Member, bytesPerSecond int64) error
	// RemoveReplica ends a rebuild or expels a member, never the last; it returns at once.
	RemoveReplica(ctx context.Context, name, session, replica string) error
}
