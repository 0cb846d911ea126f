package manager

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// ClaimStore has the claims that are bound to volumes, their PersistentVolumes and pods.
type ClaimStore interface {
	// PersistentVolumes returns all PersistentVolumes of a volume, sorted by name, from a cache.
	PersistentVolumes(volume string) ([]*corev1.PersistentVolume, error)
	// Pods returns the pods of a namespace on a node; on all nodes if node is empty.
	Pods(ctx context.Context, namespace, node string) ([]corev1.Pod, error)
	// Claims returns the bound PersistentVolumes of a volume, from a cache.
	Claims(volume string) ([]*corev1.PersistentVolume, error)
	// Claim reads a claim from the API server.
	Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	// GrowClaim makes the claim request a size, if it is unchanged since it was read.
	GrowClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, size resource.Quantity) error
	// PersistentVolume reads a PersistentVolume from the API server.
	PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
	CreatePersistentVolume(ctx context.Context, pv *corev1.PersistentVolume) error
	// ReservePersistentVolume reserves the PersistentVolume for a claim, if it is unchanged since it was read. No other
	// claim can then be bound to it.
	ReservePersistentVolume(ctx context.Context, pv *corev1.PersistentVolume, namespace, claim string) error
	CreateClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error
	// OnChange calls changed after each change of a PersistentVolume in the cache, until stop is called.
	OnChange(changed func()) (stop func(), err error)
}

// ExpandRequest requests a larger size of a volume.
type ExpandRequest struct {
	// Size is a number of bytes, or a quantity such as 10Gi.
	Size string
	// MustFit: ExpandVolume changes nothing if the disks of the replicas have no room now.
	MustFit bool
}

// ExpandVolume requests a larger size of a volume, and does not wait for it. A size that the volume has, or that was
// requested before, is not an error. If a claim is bound to the volume and requests less, ExpandVolume makes the claim
// request the size and changes nothing else. The claim's resizer then calls ExpandVolume again with this size, and the
// claim shows the progress.
//
//	claim's request, rounded up, is less than the size  ► the claim requests it  ► resizer ► here once more
//	it is not, or there is no claim                     ► spec.size
//
// It fails with *Invalid if the size breaks a rule. It fails with ErrConflict if the volume's state, or the claim's
// StorageClass, does not allow it. If the space is not available now, ExpandVolume records the size nevertheless, and
// the expansion waits: see condition Expanded. With MustFit it then fails with ErrInsufficient, and writes nothing.
// ExpandVolume does not reserve space: the volume controller checks again before it starts.
func (m *Manager) ExpandVolume(ctx context.Context, name string, req ExpandRequest) (VolumeView, error) {
	size := req.Size
	wanted, err := parseSize(size)
	if err != nil {
		return VolumeView{}, err
	}
	return m.resize(ctx, name, func(v *Volume) error {
		switch {
		case wanted < v.Spec.Size:
			return &Invalid{Field: "size", Value: size, Rule: fmt.Sprintf("must not be less than the volume's size of %d bytes: a volume cannot shrink", v.Spec.Size)}
		case wanted == v.Spec.Size:
			return nil
		case v.Status.Robustness == longhorn.VolumeRobustnessFaulted:
			return conflict("volume %q cannot be expanded: volume is faulted", name)
		}
		if req.MustFit {
			if err := m.checkGrowth(v, wanted); err != nil {
				return err
			}
		}
		done, err := m.growClaims(ctx, v, wanted)
		if err == nil && !done {
			v.Spec.Size = wanted
		}
		return err
	})
}

// checkGrowth refuses a size for which a disk with a replica of the volume has no room. It applies the rule that the
// volume controller applies before it starts an expansion. Like the controller, checkGrowth ignores nodes that are
// down.
func (m *Manager) checkGrowth(v *Volume, wanted longhorn.Bytes) error {
	objects, err := m.clusterObjects()
	if err != nil {
		return err
	}
	nodes := map[string]*longhorn.Node{}
	for _, n := range objects.Nodes {
		nodes[n.Name] = n
	}
	delta := map[string]int64{}
	for _, r := range objects.Replicas {
		n := nodes[r.Spec.NodeID]
		if r.Spec.VolumeName != v.Name || r.DeletionTimestamp != nil || types.IsNodeDown(n) {
			continue
		}
		delta[r.Spec.DiskID] += int64(max(0, wanted-r.Spec.VolumeSize))
	}
	snapshot := objects.Snapshot(v.Name, scheduler.SettingsOf(m.settings(), &v.Spec))
	if lack := scheduler.GrowthShortage(snapshot, delta); lack != "" {
		return &Problem{Class: ErrInsufficient, Text: fmt.Sprintf("volume %q cannot be expanded to %d bytes: %s", v.Name, wanted, lack)}
	}
	return nil
}

// CancelExpansion cancels an expansion that has not started. If the expansion has started, or if there is none, it
// fails with ErrConflict. If a claim still requests the size, the expansion will be requested again.
func (m *Manager) CancelExpansion(ctx context.Context, name string) (VolumeView, error) {
	return m.resize(ctx, name, func(v *Volume) error {
		switch {
		case v.Status.Size != 0 && v.Spec.Size > v.Status.Size:
			v.Spec.Size = v.Status.Size
			return nil
		case v.Status.ExpansionRequired:
			return conflict("the expansion of volume %q to %d bytes cannot be canceled: it has started, and replicas may already have that size", name, v.Spec.Size)
		}
		return conflict("volume %q has no expansion to cancel", name)
	})
}

// resize reads the volume from the API server, calls change, which may change its size, and writes the volume. The
// write is conditional on the resourceVersion: the volume controller may start an expansion at the same time, and only
// one of the two writes succeeds.
func (m *Manager) resize(ctx context.Context, name string, change func(v *Volume) error) (VolumeView, error) {
	var updated *Volume
	err := m.retry(ctx, func() error {
		v, err := byName(ctx, m.deps.Volumes, name)
		if err != nil {
			return err
		}
		if v.DeletionTimestamp != nil {
			return conflict("volume %q is being deleted", name)
		}
		before := v.Spec.Size
		if err := change(v); err != nil {
			return err
		}
		updated = v
		if v.Spec.Size == before {
			return nil
		}
		if updated, err = m.deps.Volumes.Update(ctx, v); err == nil {
			m.deps.Log.WithField("volume", name).WithField("sizeBytes", int64(updated.Spec.Size)).Info("volume size changed on request")
		}
		return err
	})
	if err != nil {
		return VolumeView{}, storeError("volume", name, err)
	}
	m.awaitCache(ctx, func() bool {
		cached, err := m.deps.Volumes.GetRO(name)
		return err != nil || cached.Generation >= updated.Generation
	})
	return m.view(updated, nil)
}

// growClaims makes the claim that is bound to the volume request the size. It returns false if there is no claim or the
// claim already requests the size; then the volume itself must grow.
func (m *Manager) growClaims(ctx context.Context, v *Volume, wanted longhorn.Bytes) (bool, error) {
	bound, err := m.deps.Claims.Claims(v.Name)
	if err != nil {
		return false, err
	}
	for _, pv := range bound {
		if most := types.MaximumFilesystemSize(pv.Spec.CSI.FSType); !isBlock(pv) && int64(wanted) > most {
			return false, &Invalid{Field: "size", Value: strconv.FormatInt(int64(wanted), 10), Rule: fmt.Sprintf("must be at most %d bytes, the largest size of an %s file system", most, pv.Spec.CSI.FSType)}
		}
		ref := pv.Spec.ClaimRef
		claim, err := m.deps.Claims.Claim(ctx, ref.Namespace, ref.Name)
		if apierrors.IsNotFound(err) || err == nil && (claim.UID != ref.UID || claim.Spec.VolumeName != pv.Name) {
			continue // the claim was deleted, and the cache still shows the PersistentVolume as bound
		}
		if err != nil {
			return false, fmt.Errorf("get claim %s/%s of volume %s: %w", ref.Namespace, ref.Name, v.Name, err)
		}
		request := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		// Rounded up, the request is the size; the claim's resizer requests it like that.
		if request.CmpInt64(int64(wanted)-sizeUnit) > 0 {
			continue
		}
		size := *resource.NewQuantity(int64(wanted), resource.BinarySI)
		if err := m.checkClass(ctx, claim); err != nil {
			return false, err
		}
		if err := m.deps.Claims.GrowClaim(ctx, claim, size); err != nil {
			return false, fmt.Errorf("grow claim %s/%s of volume %s: %w", ref.Namespace, ref.Name, v.Name, err)
		}
		m.deps.Log.WithField("volume", v.Name).WithField("claim", ref.Namespace+"/"+ref.Name).Info("claim changed on request: it requests a larger size")
		return true, nil
	}
	return false, nil
}

// checkClass refuses a claim whose StorageClass does not allow it to grow, as the API server would.
func (m *Manager) checkClass(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	refuse := func(why string) error {
		return conflict("the volume cannot be expanded: its claim %s/%s %s", claim.Namespace, claim.Name, why)
	}
	if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName == "" {
		return refuse("has no StorageClass")
	}
	name := *claim.Spec.StorageClassName
	class, err := byName(ctx, m.deps.StorageClasses, name)
	switch {
	case apierrors.IsNotFound(err):
		return refuse(fmt.Sprintf("has the StorageClass %q, which does not exist", name))
	case err != nil:
		return err
	case class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion:
		return refuse(fmt.Sprintf("has the StorageClass %q, which does not allow expansion: its allowVolumeExpansion is not true", name))
	}
	return nil
}

func isBlock(pv *corev1.PersistentVolume) bool {
	return pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock
}
