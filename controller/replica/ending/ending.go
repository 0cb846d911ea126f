// Package ending has the rules of a replica's end that two controllers share: that of the
// replica's node (package replica), which removes the data, and that of the leader (package
// orphan), which speaks for a node that is gone.
//
// It owns: whether a deleted replica must be kept, and how that is shown (the condition
// Removable); what the status says of a replica that is not served; and the write that drops
// the finalizer. It must not know the data plane, and of nodes no more than whether a replica there
// can be reached.
package ending

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// HasPlace tells whether a replica was ever given a directory on a node. One that was not has
// no data.
func HasPlace(r *longhorn.Replica) bool { return r.Spec.NodeID != "" && r.Spec.DataDirectoryName != "" }

// ForgetRun forgets where a replica was served.
func ForgetRun(s *longhorn.ReplicaStatus) {
	s.IP, s.Port, s.UUID, s.SecureUUID, s.InstanceManagerName = "", 0, "", "", ""
}

// Updater writes replicas.
type Updater interface {
	Update(ctx context.Context, r *longhorn.Replica) (*longhorn.Replica, error)
}

// DropFinalizer lets a replica go with the version that was looked at: if it has changed since,
// the API server refuses. It succeeds for a replica that is gone.
func DropFinalizer(ctx context.Context, replicas Updater, r *longhorn.Replica) error {
	u := r.DeepCopy()
	types.RemoveFinalizer(u)
	_, err := replicas.Update(ctx, u)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
