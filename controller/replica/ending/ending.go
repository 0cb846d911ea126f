// Package ending has the rules about the end of a replica that two controllers share: the controller of the
// replica's node (package replica), which removes the data, and the leader's controller (package orphan), which
// reports on replicas of a node that is gone.
//
// It owns these rules: whether a deleted replica must stay, and how the condition Removable shows that; the status
// of a replica that is not served; and the write that drops the finalizer. It must not know the data plane. Of
// nodes, it must know only whether a replica there can be reached.
package ending

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// HasPlace reports whether a replica ever got a directory on a node. A replica without one has no data.
func HasPlace(r *longhorn.Replica) bool { return r.Spec.NodeID != "" && r.Spec.DataDirectoryName != "" }

// ForgetRun clears the replica's address and process in the status.
func ForgetRun(s *longhorn.ReplicaStatus) {
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
