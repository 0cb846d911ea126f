package node

import (
	"time"

	"k8s.io/client-go/tools/cache"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// countAfter is how long after a replica was added or removed the controller counts the disks' figures. Each write of
// them contains the size of every replica on the node. So one write is enough for many replicas that are added at once.
// No component waits for it: placement counts replicas itself.
const countAfter = 2 * time.Second

// whenReplica starts a new count, later, when a replica is added or removed, or counts differently. Other changes of
// replicas, such as their state, do not affect the figures.
func whenReplica(later func(time.Duration)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { later(countAfter) },
		DeleteFunc: func(any) { later(countAfter) },
		UpdateFunc: func(before, after any) {
			if countsOtherwise(before.(*longhorn.Replica), after.(*longhorn.Replica)) {
				later(countAfter)
			}
		},
	}
}

func countsOtherwise(was, is *longhorn.Replica) bool {
	return was.UID != is.UID || was.Spec.DiskID != is.Spec.DiskID || was.Spec.VolumeSize != is.Spec.VolumeSize
}
