package node

import (
	"time"

	"k8s.io/client-go/tools/cache"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// countAfter is how long after a replica came or went the controller counts the disks'
// figures. Each write of them carries the size of every replica on the node: many
// replicas that come at once need one write. Nothing waits for it: placement counts them itself.
const countAfter = 2 * time.Second

// whenReplica starts a new count, later, when a replica came, went, or counts otherwise.
// Their many other changes, of what runs and how, leave the figures as they are.
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
