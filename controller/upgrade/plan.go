package upgrade

import (
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// Snapshot is what the data plane says of itself.
type Snapshot struct {
	Process string // identity; a replacement changes it
	Version string
	// Replaceable: its devices outlive it, so it can be replaced while it serves.
	Replaceable bool
}

// need is what follows from the versions.
type need string

const (
	needNothing  need = ""
	needReplace  need = "replace"
	needPatience need = "patience" // it was tried, and failed, not long ago
)

// retryFailed is how long a version that failed is not tried again on this node.
const retryFailed = 10 * time.Minute

// needs decides whether the data plane is to be replaced. A data plane that cannot be replaced
// while it serves is left to the instance manager's controller, which waits until it is idle.
func needs(s Snapshot, wanted string, failed time.Time, now time.Time) need {
	switch {
	case s.Version == wanted || !s.Replaceable:
		return needNothing
	case !failed.IsZero() && now.Before(failed.Add(retryFailed)):
		return needPatience
	}
	return needReplace
}

// use is a volume that has its engine or a copy on this node.
type use struct {
	Volume *longhorn.Volume
	Engine *longhorn.Engine // nil: there is none
	// Copies are the replicas of this node.
	Copies []string
}

// blocker says why a volume forbids the replacement of this node's process; "" if it does not.
//
//	volume                                             the process may go
//	detached                                           yes
//	attached here, healthy                             yes: its users wait for the successor, which begins with all copies
//	attached elsewhere, healthy, another copy is left  yes: the copy here is rebuilt
//	anything else                                      no
func (u use) blocker(node string) string {
	v := u.Volume
	switch {
	case v.Status.State == longhorn.VolumeStateDetached || v.Status.State == "":
		return ""
	case v.Status.State != longhorn.VolumeStateAttached:
		return fmt.Sprintf("volume %s is %s", v.Name, v.Status.State)
	case v.Status.Robustness != longhorn.VolumeRobustnessHealthy:
		return fmt.Sprintf("volume %s is %s", v.Name, v.Status.Robustness)
	case u.Engine == nil || u.Engine.Status.Epoch == nil:
		return fmt.Sprintf("the copies of volume %s are not known", v.Name)
	case v.Status.CurrentNodeID == node:
		return ""
	}
	for _, member := range u.Engine.Status.Epoch.Members {
		if !slices.Contains(u.Copies, member) {
			return ""
		}
	}
	return fmt.Sprintf("volume %s, attached to node %s, has no copy on another node than this", v.Name, v.Status.CurrentNodeID)
}

// leaseTime is how long a node that said nothing more is believed to be at work. Its volumes
// being unhealthy keep the others waiting besides.
const leaseTime = 10 * time.Minute

// isFree tells whether a node may take the Lease.
func isFree(l *coordinationv1.Lease, node string, now time.Time) bool {
	holder := l.Spec.HolderIdentity
	return holder == nil || *holder == "" || *holder == node ||
		l.Spec.RenewTime == nil || now.After(l.Spec.RenewTime.Add(leaseTime))
}
