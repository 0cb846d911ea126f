package upgrade

import (
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/util/backoff"
)

// Snapshot is the data plane's report about itself.
type Snapshot struct {
	Process string // identity; a replacement changes it
	Version string
	// Replaceable: its devices outlive it, so it can be replaced while it serves.
	Replaceable bool
}

// need is the conclusion from the versions.
type need string

const (
	needNothing  need = ""
	needReplace  need = "replace"
	needPatience need = "patience" // the last attempt failed not long ago
)

// A version that failed is tried again on this node after retryFailed. With each further failure that time doubles, up
// to retryMost: each attempt interrupts everything that the node serves.
const (
	retryFailed = 10 * time.Minute
	retryMost   = 24 * time.Hour
)

// failures are the failures of the requested version on this node, in a row.
type failures struct {
	count int
	last  time.Time
}

// left is how long to wait before the version is tried again.
func (f failures) left(now time.Time) time.Duration {
	if f.count == 0 {
		return 0
	}
	delay := backoff.After(retryFailed, retryMost, f.count-1)
	return max(0, f.last.Add(delay).Sub(now))
}

// needs decides whether to replace the data plane. If the data plane cannot be replaced while it serves, the instance
// manager's controller handles it: that controller waits until the data plane is idle.
func needs(s Snapshot, wanted string, f failures, now time.Time) need {
	switch {
	case s.Version == wanted || !s.Replaceable:
		return needNothing
	case f.left(now) > 0:
		return needPatience
	}
	return needReplace
}

// use is a volume that has its engine or a replica on this node.
type use struct {
	Volume *longhorn.Volume
	Engine *longhorn.Engine // nil: there is none
	// Copies are the replicas on this node.
	Copies []string
}

// blocker says why a volume forbids the replacement of this node's process; "" if it does not.
//
//	volume                                                the process may be replaced
//	detached                                              yes
//	attached here, healthy                                yes: its users wait for the successor, which starts with all
//	                                                      replicas
//	attached elsewhere, healthy, with another replica     yes: the replica here is rebuilt
//	anything else                                         no
//
// In addition to the volume, blocker checks the engine: the volume's status comes later, and not at all while there is
// no leader.
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
		return fmt.Sprintf("the replicas of volume %s are not known", v.Name)
	case u.Engine.Status.CurrentState != longhorn.InstanceStateRunning:
		return fmt.Sprintf("the engine of volume %s is %s", v.Name, u.Engine.Status.CurrentState)
	}
	for _, member := range u.Engine.Status.Epoch.Members {
		if u.Engine.Status.ReplicaModeMap[member] != longhorn.ReplicaModeRW {
			return fmt.Sprintf("replica %s of volume %s does not serve", member, v.Name)
		}
	}
	if v.Status.CurrentNodeID == node {
		return ""
	}
	for _, member := range u.Engine.Status.Epoch.Members {
		if !slices.Contains(u.Copies, member) {
			return ""
		}
	}
	return fmt.Sprintf("volume %s is attached to node %s, and all its replicas are on this node", v.Name, v.Status.CurrentNodeID)
}

// leaseTime is how long a silent node is assumed to be at work. While its volumes are unhealthy, the other nodes wait
// as well.
const leaseTime = 10 * time.Minute

// isFree reports whether a node may take the Lease.
func isFree(l *coordinationv1.Lease, node string, now time.Time) bool {
	holder := l.Spec.HolderIdentity
	return holder == nil || *holder == "" || *holder == node ||
		l.Spec.RenewTime == nil || now.After(l.Spec.RenewTime.Add(leaseTime))
}
