package sharemanager

import (
	"context"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// examine asks a pod that has been suspected for too long. If the pod says nothing, examine checks whether the leader
// reaches the pods of its node.
func (c *Controller) examine(ctx context.Context, in *Input) {
	pod := in.Pod
	if pod == nil || pod.DeletionTimestamp != nil || in.NodeDown || !in.isDue() {
		return
	}
	// for example, its image is being loaded
	if in.Share.Status.State == longhorn.ShareManagerStateStarting && !isRunning(pod) {
		return
	}
	address := types.ShareHealthAddress(pod)
	if address == "" {
		return
	}
	limited, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	managers, err := c.Managers.ByIndex(datastore.IndexNode, pod.Spec.NodeName)
	reached := make(chan bool, 1)
	go func() {
		others := types.InstanceManagerAddresses(pod.Spec.NodeName, managers)
		reached <- err == nil && len(others) > 0 && c.Answers(limited, others)
	}()
	serving, failed := c.Serving(limited, address)
	in.Reached = <-reached
	switch {
	case failed != nil:
		in.Said = saidNothing
	case serving:
		in.Said = saidServing
	default:
		in.Said = saidNotServing
	}
	in.Mute = c.times.mute(in.Share.Name, in.Said == saidNothing && in.Reached, in.Now)
}
