package instance

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/dataplane/device"
	"github.com/longhorn-lep/longhorn-manager/dataplane/engine"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
)

// refusalDomain is the domain of the ErrorInfo that carries a refusal's reason.
const refusalDomain = "longhorn.io"

// These are the reasons of refusals that do not come from package replica.
const (
	reasonInUse       = "InUse"          // an engine is connected, or the device is open
	reasonHosted      = "Hosted"         // the replica is not stopped
	reasonForeign     = "Foreign"        // something else is in the place of a directory
	reasonFenced      = "Fenced"         // an engine of this or a higher generation was here
	reasonRunning     = "Running"        // the volume's engine runs
	reasonNotProposed = "NotProposed"    // the engine did not propose this epoch or session
	reasonStopping    = "Stopping"       // the process is stopping
	reasonNotHosted   = "NotHosted"      // the replica or engine of the request is not here
	reasonSession     = "OtherSession"   // the request is for another start of the engine
	reasonNotRunning  = "NotRunning"     // the engine is starting, stopping or failed
	reasonBusy        = "Busy"           // another rebuild is under way
	reasonLastMember  = "LastMember"     // a volume must have one member
	reasonTooSmall    = "MemberTooSmall" // a replica has not grown yet
	reasonNoResize    = "NoResize"       // the holder cannot make a device larger

	// These are the reasons why a snapshot was not created.
	reasonSnapshotBusy  = "SnapshotBusy"  // another snapshot or operation is under way, or the members have changed
	reasonNoRoom        = "NoRoom"        // a disk is below the space that it keeps free
	reasonUnevenRegions = "UnevenRegions" // replicas differ in a region until there is space
	reasonNotPrepared   = "NotPrepared"   // a replica has no next head
	reasonSlowRequests  = "SlowRequests"  // requests in progress took too long
	reasonTooManyLayers = "TooManyLayers" // a replica has as many layers as it can name
	reasonNotSupported  = "NotSupported"  // a replica is served by a release without snapshots
	reasonNoSnapshot    = "NoSnapshot"    // the line does not have the point in the required state
	reasonOldLine       = "OldLine"       // the engine has a newer line
	reasonReverted      = "Reverted"      // the line has another revert: the engine must be restarted

	// reasonDiskNotResponding: an operation on the disk has been under way for too long.
	reasonDiskNotResponding = string(replica.DiskNotResponding)
)

// refusal is an error that stays the same until an administrator or a component changes something.
type refusal struct {
	reason string
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refuse(reason, format string, args ...any) error {
	return &refusal{reason: reason, err: fmt.Errorf(format, args...)}
}

// errInvalid means that a request is not valid.
var errInvalid = errors.New("invalid request")

// toStatus converts an error to a gRPC error: FAILED_PRECONDITION with an ErrorInfo for a refusal, INVALID_ARGUMENT, or
// INTERNAL for an error that may be temporary.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	reason := reasonOf(err)
	switch {
	case reason == reasonDiskNotResponding: // it wraps the error of a context
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case errors.Is(err, errInvalid), reason == string(replica.InvalidSpec):
		return status.Error(codes.InvalidArgument, err.Error())
	case reason == "" || reason == string(replica.IOError):
		return status.Error(codes.Internal, err.Error())
	}
	s := status.New(codes.FailedPrecondition, err.Error())
	detailed, detailErr := s.WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: refusalDomain})
	if detailErr != nil {
		return s.Err()
	}
	return detailed.Err()
}

// snapshotReasons are the reasons of the errors about points. The first match counts.
var snapshotReasons = []struct {
	err    error
	reason string
}{
	{engine.ErrNotSupported, reasonNotSupported},
	{engine.ErrOldLine, reasonOldLine},
	{engine.ErrReverted, reasonReverted},
	{layers.ErrManyFiles, reasonTooManyLayers},
	{layers.ErrNoRoom, reasonNoRoom},
	{layers.ErrUneven, reasonUnevenRegions},
	{layers.ErrLate, reasonSlowRequests},
	{layers.ErrBusy, reasonSnapshotBusy},
	{layers.ErrNotPrepared, reasonNotPrepared},
	{layers.ErrNoPoint, reasonNoSnapshot},
}

// reasonOf returns the reason of a refusal; "" if the error is not a refusal.
func reasonOf(err error) string {
	var r *refusal
	if errors.As(err, &r) {
		return r.reason
	}
	for _, s := range snapshotReasons { // first: the error may also wrap the error of a replica
		if errors.Is(err, s.err) {
			return s.reason
		}
	}
	switch {
	case replica.ReasonOf(err) != "":
		return string(replica.ReasonOf(err))
	case errors.Is(err, replica.ErrForeign):
		return reasonForeign
	case errors.Is(err, device.ErrInUse), errors.Is(err, replica.ErrInUse):
		return reasonInUse
	case errors.Is(err, engine.ErrNotProposed):
		return reasonNotProposed
	case errors.Is(err, engine.ErrOtherSession):
		return reasonSession
	case errors.Is(err, engine.ErrNotRunning):
		return reasonNotRunning
	case errors.Is(err, engine.ErrBusy), errors.Is(err, engine.ErrLeaving):
		return reasonBusy
	case errors.Is(err, engine.ErrMemberTooSmall):
		return reasonTooSmall
	case errors.Is(err, device.ErrNoResize):
		return reasonNoResize
	case errors.Is(err, engine.ErrLastMember):
		return reasonLastMember
	}
	return ""
}
