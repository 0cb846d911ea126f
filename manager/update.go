package manager

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// VolumeUpdate changes the fields of an existing volume that a user can set; a nil field stays unchanged.
type VolumeUpdate struct {
	// NumberOfReplicas is 1 to 20. Healthy surplus replicas are removed. Missing replicas are rebuilt while the volume
	// is attached.
	NumberOfReplicas *int
	// DataLocality takes effect immediately. If it changes from best-effort to disabled, the local replica stays. It
	// changes to or from strict-local only while the volume is detached; strict-local needs NumberOfReplicas 1.
	DataLocality *string
	// AccessMode changes to or from rwx only while the volume is detached. It cannot be rwx with dataLocality
	// strict-local.
	AccessMode *string
	// Options are new values by the name of the option (types.VolumeOptionTable). Options without a value here stay
	// unchanged. The options that decide places apply to replicas that are placed from now on; placed replicas stay.
	// replicaAutoBalance takes effect immediately, while the volume is attached.
	Options map[string]string
	// NodeSelector and DiskSelector are tags that a node or disk must have; an empty list requires none. They apply to
	// replicas that are placed from now on; placed replicas stay.
	NodeSelector, DiskSelector *[]string
}

// UpdateVolume changes a volume's spec. It fails with *Invalid if a value breaks a rule, and with ErrConflict if the
// volume is being deleted. It is not an error if the volume already has the values.
func (m *Manager) UpdateVolume(ctx context.Context, name string, u VolumeUpdate) (VolumeView, error) {
	if err := u.check(); err != nil {
		return VolumeView{}, err
	}
	if err := m.checkSelectors(&u); err != nil {
		return VolumeView{}, err
	}
	var updated *Volume
	err := m.retry(ctx, func() error {
		v, err := byName(ctx, m.deps.Volumes, name)
		switch {
		case err != nil:
			return err
		case v.DeletionTimestamp != nil:
			return conflict("volume %q is being deleted", name)
		}
		before := v.Spec
		if !u.apply(v) {
			updated = v
			return nil
		}
		if err := checkLocalityChange(v, before); err != nil {
			return err
		}
		if err := checkAccessModeChange(v, before); err != nil {
			return err
		}
		if updated, err = m.deps.Volumes.Update(ctx, v); err == nil {
			m.deps.Log.WithField("volume", name).Info("volume changed on request")
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

func (u VolumeUpdate) check() error {
	if n := u.NumberOfReplicas; n != nil && (*n < 1 || *n > maxReplicas) {
		return &Invalid{Field: "replicaCount", Value: strconv.Itoa(*n), Rule: fmt.Sprintf("must be 1 to %d", maxReplicas)}
	}
	for _, c := range []choice{
		{"dataLocality", u.DataLocality, dataLocalities, ""},
		{"accessMode", u.AccessMode, accessModes, ""},
	} {
		switch {
		case c.value == nil:
		case *c.value == "":
			return &Invalid{Field: c.field, Rule: "is required"}
		default:
			if err := c.check(); err != nil {
				return err
			}
		}
	}
	return u.checkOptions()
}

func (u VolumeUpdate) checkOptions() error {
	for _, name := range slices.Sorted(maps.Keys(u.Options)) {
		if _, ok := types.FindVolumeOption(name); !ok {
			return &Invalid{Field: name, Rule: "is not an option of a volume"}
		}
	}
	for _, o := range types.VolumeOptionTable {
		value, isGiven := u.Options[o.Name]
		switch {
		case !isGiven:
		case value == "":
			return &Invalid{Field: o.Name, Rule: "is required"}
		default:
			if err := checkOption(o, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkSelectors converts the selectors into the form in which they are stored. A tag that no node or disk has is
// *Invalid: it is probably a typing error.
func (m *Manager) checkSelectors(u *VolumeUpdate) error {
	var wanted Volume
	for _, s := range []struct {
		field string
		given **[]string
		used  *[]string
	}{
		{"nodeSelector", &u.NodeSelector, &wanted.Spec.NodeSelector},
		{"diskSelector", &u.DiskSelector, &wanted.Spec.DiskSelector},
	} {
		if *s.given == nil {
			continue
		}
		if **s.given == nil {
			return &Invalid{Field: s.field, Rule: "is required; an empty list requests no tag"}
		}
		tags, err := checkedSelector(s.field, **s.given)
		if err != nil {
			return err
		}
		*s.given, *s.used = &tags, tags
	}
	if len(wanted.Spec.NodeSelector)+len(wanted.Spec.DiskSelector) == 0 {
		return nil
	}
	nodes, err := m.deps.Nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	return checkTags(&wanted, nodes)
}

// checkLocalityChange refuses a change that breaks the rules of strict-local, with a text that names the volume; the
// API server has the same rules.
func checkLocalityChange(v *Volume, before longhorn.VolumeSpec) error {
	field := "numberOfReplicas"
	if before.NumberOfReplicas != v.Spec.NumberOfReplicas {
		field = "replicaCount"
	}
	if err := checkStrictLocal(field, v.Spec); err != nil {
		return err
	}
	const strict = longhorn.DataLocalityStrictLocal
	if (v.Spec.DataLocality == strict) == (before.DataLocality == strict) || isAtRest(v) {
		return nil
	}
	return conflict("volume %q is %s: its dataLocality can change from %q to %q only while the volume is detached", v.Name, v.Status.State, before.DataLocality, v.Spec.DataLocality)
}

// checkAccessModeChange refuses a change to or from rwx unless the volume is detached: after such a change, users
// access the volume in another way. The API server has the same rule.
func checkAccessModeChange(v *Volume, before longhorn.VolumeSpec) error {
	const shared = longhorn.AccessModeReadWriteMany
	if err := checkShared(v.Spec); err != nil || v.Spec.AccessMode == before.AccessMode {
		return err
	}
	if err := checkShareName(v.Name, v.Spec); err != nil || (v.Spec.AccessMode == shared) == (before.AccessMode == shared) || isAtRest(v) {
		return err
	}
	return conflict("volume %q is %s: its accessMode can change from %q to %q only while the volume is detached", v.Name, v.Status.State, before.AccessMode, v.Spec.AccessMode)
}

// isAtRest reports whether a volume is new, or detached and not requested on a node.
func isAtRest(v *Volume) bool {
	return v.Status.State == "" || v.Status.State == longhorn.VolumeStateDetached && v.Spec.NodeID == ""
}

// apply reports whether it changed anything.
func (u VolumeUpdate) apply(v *Volume) bool {
	before := *v.Spec.DeepCopy()
	set(&v.Spec.NumberOfReplicas, u.NumberOfReplicas)
	setValue(&v.Spec.DataLocality, u.DataLocality)
	setValue(&v.Spec.AccessMode, u.AccessMode)
	options := types.VolumeOptionsOf(&v.Spec)
	for _, o := range types.VolumeOptionTable {
		if value, isGiven := u.Options[o.Name]; isGiven {
			o.Set(&options, value)
		}
	}
	types.SetVolumeOptions(&v.Spec, options)
	set(&v.Spec.NodeSelector, u.NodeSelector)
	set(&v.Spec.DiskSelector, u.DiskSelector)
	return !equality.Semantic.DeepEqual(before, v.Spec)
}

func set[T any](field, value *T) {
	if value != nil {
		*field = *value
	}
}

func setValue[T ~string](field *T, value *string) {
	if value != nil {
		*field = T(*value)
	}
}

// RemoveReplica requests the deletion of one replica with its data, whether or not the volume is attached. It is not an
// error if the replica is already being deleted. A name that is not a replica of the volume is *Invalid. RemoveReplica
// refuses with ErrConflict while no other replica is known to have all data, and if the volume is being deleted. It
// carries out one removal after the other. Otherwise each of two concurrent removals would count on the replica that
// the other one removes.
//
// Another replica may fail after the check, and other programs delete replicas, too. So the controller of the replica's
// node checks again, and keeps the data of the last healthy replica.
func (m *Manager) RemoveReplica(ctx context.Context, volume, replica string) (VolumeView, error) {
	v, err := m.removeReplica(ctx, volume, replica)
	if err != nil {
		return VolumeView{}, err
	}
	m.awaitCache(ctx, func() bool {
		replicas, err := m.deps.Replicas.ByIndex(datastore.IndexVolume, volume)
		return err != nil || !slices.ContainsFunc(replicas, func(r *Replica) bool { return r.Name == replica && r.DeletionTimestamp == nil })
	})
	return m.view(v, nil)
}

func (m *Manager) removeReplica(ctx context.Context, volume, replica string) (*Volume, error) {
	if err := m.removals.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer m.removals.Release(1)
	v, err := byName(ctx, m.deps.Volumes, volume)
	if err != nil {
		return nil, storeError("volume", volume, err)
	}
	if v.DeletionTimestamp != nil {
		return nil, conflict("volume %q is being deleted", volume)
	}
	err = m.retry(ctx, func() error {
		r, err := byName(ctx, m.deps.Replicas, replica)
		switch {
		case apierrors.IsNotFound(err) || err == nil && !belongs(r, v):
			return &Invalid{Field: "name", Value: replica, Rule: fmt.Sprintf("is not a replica of volume %q", volume)}
		case err != nil || r.DeletionTimestamp != nil:
			return err
		}
		if err := m.checkReplicaRemovable(ctx, v, r); err != nil {
			return err
		}
		if err := m.deps.Replicas.Delete(ctx, replica, datastore.Preconditions{UID: r.UID, ResourceVersion: r.ResourceVersion}); err != nil {
			return err
		}
		m.deps.Log.WithField("volume", volume).WithField("replica", replica).Info("replica removed on request")
		return nil
	})
	return v, storeError("replica", replica, err)
}

// checkReplicaRemovable refuses the removal of a replica unless another replica is good, according to the API server's
// current state, and can be opened and reached. It also refuses the removal if the leader has marked the replica as the
// last healthy replica. A volume that never had an epoch, and is not requested on a node, was never written: any of its
// replicas may be removed. If the engine is missing, that is not known.
func (m *Manager) checkReplicaRemovable(ctx context.Context, v *Volume, r *Replica) error {
	refusal := conflict("replica %s is the last healthy replica of volume %s (no other healthy replica available): it cannot be deleted;"+
		" to delete the volume, run kubectl -n %s delete volumes.longhorn.io %s", r.Name, v.Name, v.Namespace, v.Name)
	if _, isLast := r.Annotations[types.AnnotationLastGoodCopy]; isLast {
		return refusal
	}
	view, err := m.view(v, nil)
	if err != nil {
		return err
	}
	var others []*longhorn.Replica
	for _, o := range view.Replicas {
		live, err := m.deps.Replicas.Live(ctx, o.Name)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return err
		case live.Name == r.Name || !belongs(live, v) || live.Status.CurrentState == longhorn.InstanceStateError:
		default:
			n, err := m.deps.Nodes.GetRO(live.Spec.NodeID)
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			if types.IsReachable(live, n) {
				others = append(others, live)
			}
		}
	}
	for _, e := range view.Engines {
		live, err := m.deps.Engines.Live(ctx, e.Name)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		if live.Status.Epoch == nil && live.Spec.NodeID == "" || len(types.GoodCopies(live, others)) > 0 {
			return nil
		}
	}
	return refusal
}

// Every cacheInterval, for cacheTimeout at most, awaitCache checks whether the cache contains the write.
const (
	cacheInterval = 20 * time.Millisecond
	cacheTimeout  = 2 * time.Second
)

// awaitCache waits until the next read sees the write. It is not an error if the cache takes longer: the intent is
// recorded.
func (m *Manager) awaitCache(ctx context.Context, seen func() bool) {
	for range cacheTimeout / cacheInterval {
		if seen() {
			return
		}
		timer := m.deps.Clock.NewTimer(cacheInterval)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}
