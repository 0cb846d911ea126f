// Package replicateardown answers: may a deleted replica be removed, or is it the last copy of its volume? Two
// controllers share these rules. The controller of the replica's node (package replica) removes the data. The leader's
// controller (package strandedreplica) handles replicas that their node cannot handle.
//
// The package owns these rules: whether a deleted replica must stay, and how the condition Removable shows that; the
// status of a replica that is not served; and the write that drops the finalizer. It must not know the data plane.
// About nodes, it must know only whether a replica there can be reached.
package replicateardown

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// HasPlace reports whether a replica ever got a directory on a node. A replica without one has no data.
func HasPlace(r *longhorn.Replica) bool { return r.Spec.NodeID != "" && r.Spec.DataDirectoryName != "" }

// ClearRunStatus clears the replica's address and process in the status.
func ClearRunStatus(s *longhorn.ReplicaStatus) {
	s.IP, s.Port, s.UUID, s.SecureUUID, s.InstanceManagerName = "", 0, "", "", ""
}

// Updater writes replicas.
type Updater interface {
	Update(ctx context.Context, r *longhorn.Replica) (*longhorn.Replica, error)
}

// DropFinalizer drops the finalizer of the version of the replica that the caller checked: if the replica has
// changed since, the API server refuses. It succeeds if the replica is gone.
func DropFinalizer(ctx context.Context, replicas Updater, r *longhorn.Replica) error {
	u := r.DeepCopy()
	types.RemoveFinalizer(u)
	_, err := replicas.Update(ctx, u)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
