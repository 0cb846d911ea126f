package manager

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const (
	// sizeUnit is the unit, in bytes, to a multiple of which volume sizes are rounded up.
	sizeUnit = 2 << 20
	// maxReplicas is the most replicas that a volume may have.
	maxReplicas = 20
	// defaultStaleReplicaTimeout is in minutes.
	defaultStaleReplicaTimeout = 2880
)

// VolumeRequest requests a volume. Empty texts, nil and 0 mean the default.
type VolumeRequest struct {
	Name string
	// Size is in bytes, or a quantity such as 10Gi; it is required.
	Size             string
	NumberOfReplicas int
	// StaleReplicaTimeout is in minutes.
	StaleReplicaTimeout *int
	AccessMode          string
	DataLocality        string
	Frontend            string
	DataEngine          string
	types.VolumeOptions
	DiskSelector []string
	NodeSelector []string
	// MustFit: CreateVolume creates nothing if the volume does not fit now.
	MustFit bool
}

// CreateVolume records a new volume. It fails with *Invalid if a field breaks a rule, and with ErrConflict if the name
// is in use. Then it creates nothing.
//
// It also creates a volume that does not fit now. Such a volume is placed when disks can take it. Before that, its
// condition Scheduled gives the reason. With MustFit, CreateVolume fails instead, with ErrInsufficient and the
// reasons. A volume does not fit if none of its replicas can be placed. If the setting
// allow-volume-creation-with-degraded-availability is false, it fits only if all replicas can be placed. CreateVolume
// does not reserve space: the volume controller places the replicas.
func (m *Manager) CreateVolume(ctx context.Context, req VolumeRequest) (VolumeView, error) {
	v, err := m.newVolume(req)
	if err != nil {
		return VolumeView{}, err
	}
	if _, err := m.deps.Volumes.GetRO(v.Name); err == nil {
		return VolumeView{}, conflict("volume %q already exists", v.Name)
	} else if !apierrors.IsNotFound(err) {
		return VolumeView{}, fmt.Errorf("look for volume %s: %w", v.Name, err)
	}
	objects, err := m.clusterObjects()
	if err != nil {
		return VolumeView{}, err
	}
	if err := checkTags(v, objects.Nodes); err != nil {
		if req.MustFit { // the tag may be set on a disk later, just as room may become free later
			err = &Problem{Class: ErrInsufficient, Text: fmt.Sprintf("volume %q cannot be placed: %v", v.Name, err)}
		}
		return VolumeView{}, err
	}
	if req.MustFit {
		if err := m.checkPlace(v, objects); err != nil {
			return VolumeView{}, err
		}
	}
	created, err := m.deps.Volumes.Create(ctx, v)
	if err != nil {
		return VolumeView{}, storeError("volume", v.Name, err)
	}
	m.deps.Log.WithField("volume", v.Name).Info("volume created on request")
	return m.view(created, nil)
}

// newVolume validates the request without looking at the cluster.
func (m *Manager) newVolume(req VolumeRequest) (*Volume, error) {
	if len(req.Name) > types.MaxVolumeNameLength {
		return nil, &Invalid{Field: "name", Value: req.Name, Rule: fmt.Sprintf("has %d characters; the length should be less than or equal to %d",
			len(req.Name), types.MaxVolumeNameLength)}
	}
	if name, err := types.VolumeName(req.Name); err != nil || name != req.Name {
		return nil, &Invalid{Field: "name", Value: req.Name, Rule: fmt.Sprintf(
			"must be a DNS label of at most %d characters: lower-case letters, digits and '-', with a letter or digit at both ends",
			types.MaxVolumeNameLength)}
	}
	size, err := parseSize(req.Size)
	if err != nil {
		return nil, err
	}
	if req.NumberOfReplicas < 0 || req.NumberOfReplicas > maxReplicas {
		return nil, &Invalid{
			Field: "numberOfReplicas", Value: strconv.Itoa(req.NumberOfReplicas),
			Rule: fmt.Sprintf("must be 1 to %d, or 0 for the value of setting %s", maxReplicas, settings.DefaultReplicaCount),
		}
	}
	if err := checkChoices(&req); err != nil {
		return nil, err
	}
	stale := defaultStaleReplicaTimeout
	if req.StaleReplicaTimeout != nil {
		stale = *req.StaleReplicaTimeout
	}
	diskSelector, err := checkedSelector("diskSelector", req.DiskSelector)
	if err != nil {
		return nil, err
	}
	nodeSelector, err := checkedSelector("nodeSelector", req.NodeSelector)
	if err != nil {
		return nil, err
	}
	v := &Volume{
		ObjectMeta: metav1.ObjectMeta{
			Name: req.Name, Namespace: m.deps.Namespace,
			Labels: map[string]string{types.LabelVolume: req.Name},
		},
		Spec: longhorn.VolumeSpec{
			Size:                    size,
			Frontend:                longhorn.VolumeFrontend(req.Frontend),
			DataLocality:            longhorn.DataLocality(req.DataLocality),
			AccessMode:              longhorn.AccessMode(req.AccessMode),
			NumberOfReplicas:        req.NumberOfReplicas,
			StaleReplicaTimeout:     stale,
			DiskSelector:            diskSelector,
			NodeSelector:            nodeSelector,
			DataEngine:              longhorn.DataEngine(req.DataEngine),
			RevisionCounterDisabled: true,
		},
	}
	types.SetVolumeOptions(&v.Spec, req.VolumeOptions)
	types.FillCopies(&v.Spec, longhorn.DataLocality(m.settings().Text(settings.DefaultDataLocality)), int(m.settings().Int(settings.DefaultReplicaCount)))
	if err := checkShared(v.Spec); err != nil {
		return nil, err
	}
	if err := checkShareName(v.Name, v.Spec); err != nil {
		return nil, err
	}
	if err := checkStrictLocal("numberOfReplicas", v.Spec); err != nil {
		return nil, err
	}
	types.AddFinalizer(v)
	return v, nil
}

// parseSize reads plain bytes or a Kubernetes quantity and rounds it up.
func parseSize(text string) (longhorn.Bytes, error) {
	if text == "" {
		return 0, &Invalid{Field: "size", Rule: "is required: a number of bytes, or a quantity such as 10Gi or 100G"}
	}
	refuse := func(rule string) (longhorn.Bytes, error) {
		return 0, &Invalid{Field: "size", Value: text, Rule: rule}
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return refuse("must be a number of bytes, or a quantity such as 10Gi or 100G")
	}
	if quantity.Sign() <= 0 {
		return refuse("must be greater than zero")
	}
	if _, whole := quantity.AsScale(0); !whole {
		return refuse("must be a whole number of bytes")
	}
	const most = math.MaxInt64 / sizeUnit * sizeUnit
	if quantity.CmpInt64(most) > 0 {
		return refuse(fmt.Sprintf("must be at most %d bytes", int64(most)))
	}
	return longhorn.Bytes((quantity.Value() + sizeUnit - 1) / sizeUnit * sizeUnit), nil
}

// dataLocalities are the allowed values of a volume.
var dataLocalities = []string{string(longhorn.DataLocalityDisabled), string(longhorn.DataLocalityBestEffort), string(longhorn.DataLocalityStrictLocal)}

// checkShared refuses a shared volume with data locality strict-local.
func checkShared(spec longhorn.VolumeSpec) error {
	if spec.AccessMode == longhorn.AccessModeReadWriteMany && spec.DataLocality == longhorn.DataLocalityStrictLocal {
		return &Invalid{
			Field: "accessMode", Value: string(spec.AccessMode),
			Rule: "must not be rwx with dataLocality strict-local: a shared volume is used on many nodes",
		}
	}
	return nil
}

// checkShareName refuses a shared volume whose name cannot be the name of a Service. It must not be called for a volume
// that is already shared.
func checkShareName(name string, spec longhorn.VolumeSpec) error {
	if spec.AccessMode != longhorn.AccessModeReadWriteMany || types.CanBeShared(name) {
		return nil
	}
	return &Invalid{Field: "name", Value: name, Rule: types.ShareNameRule}
}

// checkStrictLocal refuses more than one replica of a strict-local volume; field is the name of the field with the
// number.
func checkStrictLocal(field string, spec longhorn.VolumeSpec) error {
	if spec.DataLocality != longhorn.DataLocalityStrictLocal || spec.NumberOfReplicas <= 1 {
		return nil
	}
	return &Invalid{Field: field, Value: strconv.Itoa(spec.NumberOfReplicas), Rule: "must be 1 with dataLocality strict-local: the one replica is on the node where the volume is attached"}
}

// accessModes are the allowed values of a volume; the first is the default.
var accessModes = []string{
	string(longhorn.AccessModeReadWriteOnce), string(longhorn.AccessModeReadWriteOncePod), string(longhorn.AccessModeReadWriteMany),
}

// choice is a field with few allowed values; the first is the default.
type choice struct {
	field   string
	value   *string
	allowed []string
	why     string
}

// checkChoices fills in defaults and refuses values that are not allowed. A missing data locality is filled in later.
func checkChoices(req *VolumeRequest) error {
	locality := choice{"dataLocality", &req.DataLocality, dataLocalities, ""}
	if err := locality.check(); req.DataLocality != "" && err != nil {
		return err
	}
	for _, c := range []choice{
		{"accessMode", &req.AccessMode, accessModes, ""},
		{"frontend", &req.Frontend, []string{"blockdev"}, ""},
		{"dataEngine", &req.DataEngine, []string{"v1"}, ""},
	} {
		if *c.value == "" {
			*c.value = c.allowed[0]
		}
		if err := c.check(); err != nil {
			return err
		}
	}
	types.FillVolumeOptions(&req.VolumeOptions)
	for _, o := range types.VolumeOptionTable {
		if err := checkOption(o, o.Get(req.VolumeOptions)); err != nil {
			return err
		}
	}
	return nil
}

func checkOption(o types.VolumeOption, value string) error {
	return choice{field: o.Name, value: &value, allowed: o.Values}.check()
}

func (c choice) check() error {
	if slices.Contains(c.allowed, *c.value) {
		return nil
	}
	return &Invalid{Field: c.field, Value: *c.value, Rule: "must be " + strings.Join(c.allowed, " or ") + c.why}
}

// checkPlace checks that all replicas have a place, or one of them if that is enough.
func (m *Manager) checkPlace(v *Volume, objects scheduler.Objects) error {
	if err := m.place(v, objects.Snapshot(v.Name, scheduler.SettingsOf(m.settings(), &v.Spec)), ""); err != nil {
		return unplaceable(v, err)
	}
	return nil
}

// place fails with a *scheduler.Unschedulable if not enough replicas have a place. If node is not empty, replicas may
// be placed only there.
func (m *Manager) place(v *Volume, snapshot scheduler.Snapshot, node string) error {
	request := scheduler.Request{
		SizeBytes:        int64(v.Spec.Size),
		HardNodeAffinity: node,
		NodeSelector:     v.Spec.NodeSelector,
		DiskSelector:     v.Spec.DiskSelector,
	}
	_, err := scheduler.ScheduleAll(snapshot, request, v.Spec.NumberOfReplicas)
	var u *scheduler.Unschedulable
	if errors.As(err, &u) && u.Placed > 0 && m.settings().Bool(settings.AllowVolumeCreationWithDegradedAvailability) {
		return nil
	}
	return err
}

func (m *Manager) clusterObjects() (scheduler.Objects, error) {
	var o scheduler.Objects
	var err error
	if o.Nodes, err = m.deps.Nodes.List(labels.Everything()); err != nil {
		return o, fmt.Errorf("list nodes: %w", err)
	}
	if o.InstanceManagers, err = m.deps.InstanceManagers.List(labels.Everything()); err != nil {
		return o, fmt.Errorf("list instance managers: %w", err)
	}
	if o.Replicas, err = m.deps.Replicas.List(labels.Everything()); err != nil {
		return o, fmt.Errorf("list replicas: %w", err)
	}
	return o, nil
}

func checkTags(v *Volume, nodes []*Node) error {
	onNodes, onDisks := map[string]bool{}, map[string]bool{}
	for _, n := range nodes {
		for _, tag := range n.Spec.Tags {
			onNodes[tag] = true
		}
		for _, disk := range n.Spec.Disks {
			for _, tag := range disk.Tags {
				onDisks[tag] = true
			}
		}
	}
	for _, tag := range v.Spec.NodeSelector {
		if !onNodes[tag] {
			return &Invalid{Field: "nodeSelector", Value: tag, Rule: "does not exist: no node has this tag"}
		}
	}
	for _, tag := range v.Spec.DiskSelector {
		if !onDisks[tag] {
			return &Invalid{Field: "diskSelector", Value: tag, Rule: "does not exist: no disk has this tag"}
		}
	}
	return nil
}
