package sharemanager

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// gather reads everything that a plan depends on.
func (c *Controller) gather(ctx context.Context, share *longhorn.ShareManager) (Input, error) {
	in := Input{Share: share, Owner: c.Owner, Now: c.Clock.Now(), Unmade: c.unmade.why(share.Name)}
	in.Settings = settings.PodSettingsOf(c.Setting, settings.PriorityClass, settings.TaintToleration, settings.SystemManagedNodeSelector)
	if v, err := c.Volumes.GetRO(share.Name); err == nil && isOf(share, v) {
		in.Volume = v
	} else if err != nil && !apierrors.IsNotFound(err) {
		return in, err
	}
	va, err := c.Attachments.Get(share.Name)
	switch {
	case err == nil && c.Attachments.IsStale(va):
		return in, queue.ErrStale
	case err == nil:
		in.Attachment = va
	case !apierrors.IsNotFound(err):
		return in, err
	}
	if in.Service, err = orNone(c.Services.GetRO(share.Name)); err != nil {
		return in, err
	}
	if err := c.gatherSlice(&in); err != nil {
		return in, err
	}
	if in.Pod, err = orNone(c.Pods.GetRO(types.ShareManagerPodName(share.Name))); err != nil {
		return in, err
	}
	if in.AddressTaken, err = c.isTaken(in); err != nil {
		return in, err
	}
	in.Unready, in.Ending = c.times.since(share.Name, in.Pod, in.Now)
	if in.Pod != nil {
		in.Silent = c.Silences.SilentSince(types.ShareHealthAddress(in.Pod))
	}
	clients, err := orNone(c.ConfigMap.GetRO(types.ShareClientsConfigMap))
	if err != nil {
		return in, err
	}
	if clients != nil {
		in.Clients = clients.Data
	}
	if err := errors.Join(c.gatherNodes(&in), c.gatherLost(&in)); err != nil || in.Volume == nil {
		return in, err
	}
	claims, err := c.Claims.Claims(in.Volume.Name)
	if err != nil {
		return in, err
	}
	in.Parameters, in.Refused = parametersOf(claims)
	if in.Pod != nil {
		return in, nil
	}
	return in, c.gatherPlace(ctx, &in)
}

func (c *Controller) gatherSlice(in *Input) (err error) {
	in.NoSlices = c.sliceTrouble.isRefused(in.Share.Name, in.Now)
	in.Slice, err = orNone(c.Slices.GetRO(types.ShareSliceName(in.Share.Name)))
	if err == nil && in.Slice != nil && c.Slices.IsStale(in.Slice) {
		return queue.ErrStale
	}
	return err
}

// isTaken reports whether another pod has the address that the slice would keep, as far as pods in this namespace are
// concerned. Clients must not find another share's server there.
//
//	the share's pod      the address is
//	may still run        its own: no other pod can have it, whatever the cache shows
//	has stopped, gone    free: if another pod has it, it is taken
//
// The address of any pod that has stopped is free, so a stopped pod does not count as one that has the address.
func (c *Controller) isTaken(in Input) (bool, error) {
	address := in.formerAddress()
	if pod := in.ownPod(); address == "" || pod != nil && !hasEnded(pod) && slices.Contains(addressesOfPod(pod), address) {
		return false, nil
	}
	pods, err := c.Pods.List(labels.Everything())
	return slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
		return !hasEnded(p) && slices.Contains(addressesOfPod(p), address)
	}), err
}

// isOf reports whether a share belongs to this very volume, and not to an earlier volume with the same name.
func isOf(share *longhorn.ShareManager, v *longhorn.Volume) bool {
	return slices.ContainsFunc(share.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == v.UID })
}

// orNone returns nil for an object that does not exist.
func orNone[T any](obj *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return obj, err
}

// gatherNodes reads the state of the nodes: the pod's node, and the nodes that the next pod must avoid.
func (c *Controller) gatherNodes(in *Input) error {
	kube, err := c.KubeNodes.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, k := range kube {
		n, err := orNone(c.Nodes.GetRO(k.Name))
		if err != nil {
			return err
		}
		away := daemonAway(n)
		if n == nil || types.IsNodeDown(n) || !away.IsZero() && in.Now.Sub(away) > daemonGrace {
			in.Barred = append(in.Barred, k.Name)
		} else if away.IsZero() && in.Pod != nil && k.Name != in.Pod.Spec.NodeName {
			in.Elsewhere = true
		}
	}
	if in.Pod == nil || in.Pod.Spec.NodeName == "" {
		return nil
	}
	n, err := orNone(c.Nodes.GetRO(in.Pod.Spec.NodeName))
	if err != nil {
		return err
	}
	_, err = c.KubeNodes.GetRO(in.Pod.Spec.NodeName)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	in.NodeDown = apierrors.IsNotFound(err) || n != nil && types.IsNodeDown(n)
	in.NodeForeign = n == nil && !in.NodeDown
	in.DaemonAway = daemonAway(n)
	return nil
}

// daemonGrace is how long a node may have no working daemon before pods must avoid it. A daemon that is being upgraded
// is back by then.
const daemonGrace = time.Minute

// daemonAway is since when a node cannot start an engine, as its Ready condition says. Zero: it can, or the node does
// not exist. A node that lacks memory, disk space or the like can start engines nevertheless.
func daemonAway(n *longhorn.Node) time.Time {
	if n == nil {
		return time.Time{}
	}
	c := types.FindCondition(n.Status.Conditions, types.ConditionReady)
	if c.Status != longhorn.ConditionFalse || c.Reason == types.ReasonKubernetesNodePressure {
		return time.Time{}
	}
	since, err := time.Parse(time.RFC3339, c.LastTransitionTime)
	if err != nil {
		return time.Unix(0, 0)
	}
	return since
}

// gatherPlace reads what decides where the next pod runs: the nodes where it may run, and the nodes with healthy copies
// of the volume, which it prefers. A new volume has no epoch yet: its first engine starts with all its replicas.
func (c *Controller) gatherPlace(ctx context.Context, in *Input) (err error) {
	if in.Topologies, err = c.topologies(ctx, *in); err != nil {
		return err
	}
	replicas, err := c.Replicas.ByIndex(datastore.IndexVolume, in.Volume.Name)
	if err != nil {
		return err
	}
	engines, err := c.Engines.ByIndex(datastore.IndexVolume, in.Volume.Name)
	if err != nil {
		return err
	}
	isNew := len(engines) == 0 || engines[0].Status.Epoch == nil
	for _, r := range replicas {
		becomesCopy := isNew && r.Spec.NodeID != "" && r.Spec.FailedAt == ""
		if r.DeletionTimestamp == nil && (becomesCopy || !isNew && types.IsGoodCopy(engines[0], r)) {
			in.Near = append(in.Near, r.Spec.NodeID)
		}
	}
	return nil
}

// topologies are those that the volume's StorageClass allows. A class that no longer exists allows all.
func (c *Controller) topologies(ctx context.Context, in Input) ([]corev1.TopologySelectorTerm, error) {
	name := in.Parameters.Class
	if name == "" {
		return nil, nil
	}
	class, err := orNone(c.Classes.GetRO(name))
	if err == nil && class == nil && isWanted(in) {
		class, err = orNone(c.Classes.Live(ctx, name))
	}
	if err != nil || class == nil {
		return nil, err
	}
	return class.AllowedTopologies, nil
}
