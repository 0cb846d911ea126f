package volume

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// surplusWaits reports which replicas are beyond the count since it was lowered, and when the manager deletes them.
// After that time, or when enough of them are gone, the present count is recorded as the one that was acted on.
func surplusWaits(in Input, c copies.State, p *Plan) {
	good := goodCopies(in, c)
	spared, left := copies.SparedOf(in.Facts)
	text := ""
	if excess := len(good) - in.Volume.Spec.NumberOfReplicas; spared > 0 && excess > 0 {
		text = fmt.Sprintf("numberOfReplicas is %d, but there are %d healthy replicas: %s. Remove or evict the ones you do not need; after %s, the manager removes %d when the volume is attached",
			in.Volume.Spec.NumberOfReplicas, len(good), strings.Join(good, ", "), types.Timestamp(in.Now.Add(left)), min(excess, spared))
		p.again(left)
	} else {
		p.Status.ObservedReplicaCount = in.Volume.Spec.NumberOfReplicas
	}
	sayWhile(in, p, types.ConditionSurplusReplicas, types.ReasonReplicaCountLowered, text)
}

// goodCopies names the replicas that are good as far as is known. In a volume that is not served, these are the
// replicas that have not failed.
func goodCopies(in Input, c copies.State) []string {
	var names []string
	for _, v := range c.List {
		isGood := v.IsHealthy()
		if !c.Known {
			isGood = types.Stays(v.Replica) && v.Spec.FailedAt == ""
		}
		if isGood {
			names = append(names, fmt.Sprintf("%s on node %s", v.Name, v.Spec.NodeID))
		}
	}
	return names
}

// giveUp deletes a replica only if the API server also shows that the volume is served without it, by the members
// that the plan is based on.
func (c *Controller) giveUp(ctx context.Context, log *logrus.Entry, v *longhorn.Volume, s copies.Surplus) error {
	r := s.Replica
	live, err := c.deps.Volumes.Live(ctx, v.Name)
	if err != nil {
		return fmt.Errorf("read the volume: %w", datastore.Needed(err))
	}
	if live.UID != v.UID || live.DeletionTimestamp != nil || !equality.Semantic.DeepEqual(live.Spec, v.Spec) {
		return queue.ErrStale
	}
	e, err := c.deps.Engines.Live(ctx, s.Engine.Name)
	if err != nil {
		return fmt.Errorf("read the engine: %w", datastore.Needed(err))
	}
	if !sameMembers(s.Engine, e) || slices.Contains(e.Status.Epoch.Members, r.Name) || e.Spec.ReplicaAddressMap[r.Name] != "" {
		return queue.ErrStale
	}
	log.WithField(logfields.Replica, r.Name).WithField(logfields.Node, r.Spec.NodeID).WithField(logfields.Reason, s.Why).Info("deleting a replica that is no longer needed")
	err = c.deps.Replicas.Delete(ctx, r.Name, datastore.Preconditions{UID: r.UID, ResourceVersion: r.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete replica %s: %w", r.Name, err)
	}
	c.deps.Recorder.Eventf(v, corev1.EventTypeNormal, types.EventDelete, "replica %s on node %s is deleted: %s", r.Name, r.Spec.NodeID, s.Why.Explain())
	return nil
}

// sameMembers reports whether the live engine is in the same run, and has the same members, as the planned one.
func sameMembers(planned, live *longhorn.Engine) bool {
	return live.UID == planned.UID && live.Spec.DesireState == longhorn.DesireStateRunning &&
		live.Status.CurrentState == longhorn.InstanceStateRunning && live.Status.Session == planned.Status.Session &&
		live.Status.Epoch != nil && equality.Semantic.DeepEqual(live.Status.Epoch, planned.Status.Epoch) &&
		equality.Semantic.DeepEqual(live.Status.ReplicaModeMap, planned.Status.ReplicaModeMap)
}
