package manager

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// SalvageVolume answers whether one of the named replicas can serve a faulted volume. It changes nothing. Replicas
// prove by the recorded epoch that they have every acknowledged write. A volume that is requested on a node starts
// automatically as soon as such a replica can be opened. No request can make another replica serve. SalvageVolume fails
// with *Invalid if a name is not a replica of the volume. It fails with ErrConflict if the volume is not faulted, or if
// none of the replicas can serve it; the text gives the reasons.
func (m *Manager) SalvageVolume(ctx context.Context, name string, replicas []string) (VolumeView, error) {
	view, err := m.Volume(ctx, name)
	if err != nil {
		return VolumeView{}, err
	}
	if len(replicas) == 0 {
		return VolumeView{}, &Invalid{Field: "names", Rule: "must name a replica of the volume"}
	}
	var named []ReplicaView
	for _, replica := range replicas {
		i := slices.IndexFunc(view.Replicas, func(r ReplicaView) bool { return r.Name == replica })
		if i < 0 {
			return VolumeView{}, &Invalid{Field: "names", Value: replica, Rule: fmt.Sprintf("is not a replica of volume %q", name)}
		}
		named = append(named, view.Replicas[i])
	}
	if view.Robustness != longhorn.VolumeRobustnessFaulted {
		return VolumeView{}, conflict("volume %q is not faulted: there is nothing to salvage", name)
	}
	var lacks []string
	for _, r := range named {
		lack, err := m.lackOf(view, r)
		if err != nil {
			return VolumeView{}, err
		}
		if lack == "" {
			return view, nil
		}
		lacks = append(lacks, fmt.Sprintf("replica %s %s", r.Name, lack))
	}
	return VolumeView{}, conflict("volume %q cannot be salvaged: %s", name, strings.Join(lacks, "; "))
}

// lackOf returns a clause with the reason why a replica cannot serve the volume; empty: it can.
func (m *Manager) lackOf(view VolumeView, r ReplicaView) (string, error) {
	members := membersOf(view.Engines)
	if !slices.Contains(members, r.Name) {
		if len(members) == 0 {
			return "has no data: the volume was never used", nil
		}
		return "lacks acknowledged writes that replicas " + strings.Join(members, ", ") + " have", nil
	}
	n, err := m.deps.Nodes.GetRO(r.Spec.NodeID)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("get node %s: %w", r.Spec.NodeID, err)
	}
	c := types.FindCondition(r.Status.Conditions, types.ConditionInstanceCreation)
	switch {
	case r.DeletionTimestamp != nil:
		return "is being deleted", nil
	case n == nil || types.IsNodeDown(n):
		return fmt.Sprintf("is on node %s, which does not answer", r.Spec.NodeID), nil
	case !types.IsReachable(r.Replica, n):
		return fmt.Sprintf("is on disk %s, which is not ready on node %s", r.Spec.DiskID, r.Spec.NodeID), nil
	case r.Status.CurrentState == longhorn.InstanceStateError:
		return fmt.Sprintf("cannot be opened on node %s: %s: %s", r.Spec.NodeID, c.Reason, c.Message), nil
	}
	return "", nil
}

// membersOf returns the replicas that have every acknowledged write, by the newest recorded epoch.
func membersOf(engines []*Engine) []string {
	var newest longhorn.Epoch
	for _, e := range engines {
		if epoch := e.Status.Epoch; epoch != nil && epoch.Generation >= newest.Generation {
			newest = *epoch
		}
	}
	return newest.Members
}
