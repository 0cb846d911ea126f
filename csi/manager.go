package csi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/api/client"
	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// VolumeService is the part of the manager that the controller service needs. Callers recognise errors by errors.Is
// with the values of errors.go.
type VolumeService interface {
	// Volume must return the state as stored, not older than this process's last write.
	Volume(ctx context.Context, name string) (Volume, error)
	// Volumes returns all volumes, with the same guarantee as Volume.
	Volumes(ctx context.Context) ([]Volume, error)
	// CreateVolume must not wait for the volume to be ready.
	CreateVolume(ctx context.Context, r VolumeRequest) error
	// DeleteVolume must not wait for the volume to be gone.
	DeleteVolume(ctx context.Context, name string) error
	// Attach creates a ticket. The same ticket twice must succeed.
	Attach(ctx context.Context, volume string, t Ticket) error
	// Detach removes a ticket. A missing ticket must succeed.
	Detach(ctx context.Context, volume, ticketID string) error
	// Expand must not wait for the volume to have the size. If the same size was already requested, Expand must
	// succeed. ErrInsufficientStorage: the disks of its replicas have not enough space, and nothing was requested.
	Expand(ctx context.Context, volume string, sizeBytes int64) error
	// CancelExpansion cancels an expansion that has not started. ErrConflict: it has started, or the volume has no expansion.
	CancelExpansion(ctx context.Context, volume string) error
	// Capacity is the size in bytes of the largest volume that CreateVolume would create now for the request and that
	// can be used on a node; 0: none. The request's name and size do not count. An empty node stands for any.
	Capacity(ctx context.Context, r VolumeRequest, node string) (int64, error)
	// HasNode reports whether a node with that name is part of the system, in any condition.
	HasNode(ctx context.Context, name string) (bool, error)
	// CreateSnapshot requests a snapshot and must not wait until it is taken. ErrNotFound: the volume does not exist.
	// ErrConflict: the name is in use, by any volume's snapshot, or the volume's state does not allow it now.
	CreateSnapshot(ctx context.Context, volume, name string, labels map[string]string) (Snapshot, error)
	// Snapshot must return the state as stored. ErrNotFound: the volume or the snapshot does not exist.
	Snapshot(ctx context.Context, volume, name string) (Snapshot, error)
	// Snapshots returns all snapshots of a volume, with the same guarantee as Snapshot.
	Snapshots(ctx context.Context, volume string) ([]Snapshot, error)
	// DeleteSnapshot must not wait until the snapshot is gone. ErrNotFound: the volume or the snapshot does not exist.
	DeleteSnapshot(ctx context.Context, volume, name string) error
}

// VolumeRequest is a volume to create.
type VolumeRequest struct {
	Name      string
	SizeBytes int64
	// NumberOfReplicas 0 means the setting default-replica-count.
	NumberOfReplicas           int
	StaleReplicaTimeoutMinutes int
	DataLocality               string
	AccessMode                 string
	types.VolumeOptions
	DiskSelector []string
	NodeSelector []string
	// DataSource is the source of the content: snap://<volume>/<snapshot>, vol://<volume>, or empty for an empty volume.
	DataSource string
	// FirstNode is where Kubernetes will run the first pod. It is empty if the volume is created before the pod has a
	// node. The manager does not get it: a volume is placed when it is attached, or wherever there is space.
	FirstNode string
}

// Volume is the part of a volume that the controller service uses.
type Volume struct {
	Name      string
	SizeBytes int64
	// State is one of the states in restvalues.go; empty right after the volume was created.
	State string
	// Faulted: its data cannot be served in its present state.
	Faulted bool
	// Ready says whether it may be attached; NotReadyMessage says why not.
	Ready           bool
	NotReadyMessage string
	// StrictLocalNodes are the only nodes to which it may be attached; empty: all.
	StrictLocalNodes []string
	// AccessMode is rwo, rwop or rwx.
	AccessMode string
	// Asked has the values with which the volume was created, or that a user has set since. It lacks name, size and
	// access mode. An empty field is not known: managers of earlier releases do not send every field.
	Asked VolumeRequest
	// ShareEndpoint is where a shared volume is served, nfs://<address>/<volume>; empty while it is not served.
	// ShareState is the state of its share manager.
	ShareEndpoint, ShareState string
	// NodeID is where its engine is or is requested; empty if nowhere.
	NodeID string
	// Expanding: its users still get less than SizeBytes. ExpansionReason and ExpansionMessage say why, if that is
	// known.
	Expanding                         bool
	ExpansionReason, ExpansionMessage string
	// Tickets by id.
	Tickets map[string]Ticket
}

// Ticket is one user's request to attach a volume to a node.
type Ticket struct {
	ID, Type, NodeID string
	// Satisfied: the device exists, or the share is served. Set by the service.
	Satisfied bool
	// Message says why the ticket is not satisfied; may be empty. Set by the service.
	Message string
}

// manager is the VolumeService of a manager's REST API.
type manager struct{ api *client.Client }

// NewManager returns the VolumeService at a manager's URL, such as https://longhorn-backend:9500/v1. Requests go
// through httpClient; nil means a client of its own. NewManager does not connect.
func NewManager(url string, httpClient *http.Client) (VolumeService, error) {
	api, err := client.New(url, httpClient)
	if err != nil {
		return nil, fmt.Errorf("manager at %s: %w", url, err)
	}
	return &manager{api: api}, nil
}

func (m *manager) CreateVolume(ctx context.Context, r VolumeRequest) error {
	stale := r.StaleReplicaTimeoutMinutes
	in := v1.VolumeCreate{
		Name:                r.Name,
		Size:                v1.Quantity(strconv.FormatInt(r.SizeBytes, 10)),
		NumberOfReplicas:    r.NumberOfReplicas,
		StaleReplicaTimeout: &stale,
		AccessMode:          r.AccessMode,
		DataLocality:        r.DataLocality,
		VolumeCreateOptions: v1.VolumeCreateOptions(r.VolumeOptions),
		DiskSelector:        r.DiskSelector,
		NodeSelector:        r.NodeSelector,
		MustFit:             true,
	}
	var err error
	if r.DataSource == "" {
		_, err = m.api.CreateVolume(ctx, in)
	} else {
		_, err = m.api.CreateVolumeFrom(ctx, in, r.DataSource)
	}
	return classify(err)
}

func (m *manager) Volume(ctx context.Context, name string) (Volume, error) {
	wire, err := m.api.Volume(ctx, name)
	if err != nil {
		return Volume{}, classify(err)
	}
	return volumeOf(wire)
}

func (m *manager) Volumes(ctx context.Context) ([]Volume, error) {
	wires, err := m.api.Volumes(ctx)
	if err != nil {
		return nil, classify(err)
	}
	volumes := make([]Volume, 0, len(wires))
	for i := range wires {
		v, err := volumeOf(&wires[i])
		if err != nil {
			return nil, err
		}
		volumes = append(volumes, v)
	}
	return volumes, nil
}

func volumeOf(wire *v1.Volume) (Volume, error) {
	size, err := strconv.ParseInt(wire.Size, 10, 64)
	if err != nil {
		return Volume{}, fmt.Errorf("volume %s: size %q in the manager's answer: %w", wire.Name, wire.Size, err)
	}
	v := Volume{
		Name: wire.Name, SizeBytes: size, State: wire.State,
		Faulted:          wire.Robustness == robustnessFaulted,
		Ready:            wire.Ready,
		NotReadyMessage:  wire.NotReadyMessage,
		NodeID:           nodeOf(wire),
		StrictLocalNodes: wire.StrictLocalNodes,
		AccessMode:       wire.AccessMode,
		Asked:            askedOf(wire),
		ShareEndpoint:    wire.ShareEndpoint,
		ShareState:       wire.ShareState,
		Expanding:        wire.ExpansionRequired,
		Tickets:          map[string]Ticket{},
	}
	if c := wire.Conditions[types.ConditionExpanded]; v.Expanding && c.Status != conditionTrue {
		v.ExpansionReason, v.ExpansionMessage = c.Reason, c.Message
	}
	for id, a := range wire.VolumeAttachment.Attachments {
		v.Tickets[id] = Ticket{
			ID: id, Type: a.AttachmentType, NodeID: a.NodeID,
			Satisfied: a.Satisfied, Message: unsatisfied(a),
		}
	}
	return v, nil
}

func askedOf(wire *v1.Volume) VolumeRequest {
	return VolumeRequest{
		NumberOfReplicas:           wire.NumberOfReplicas,
		StaleReplicaTimeoutMinutes: wire.StaleReplicaTimeout,
		DataLocality:               wire.DataLocality,
		VolumeOptions:              types.VolumeOptions(wire.VolumeOptions),
		DiskSelector:               wire.DiskSelector,
		NodeSelector:               wire.NodeSelector,
		DataSource:                 wire.DataSource,
	}
}

// nodeOf is the node of the volume's engine. A detached volume has no running engine, whatever node the engine was on
// last.
func nodeOf(wire *v1.Volume) string {
	if wire.State == stateDetached {
		return ""
	}
	for _, c := range wire.Controllers {
		if c.HostID != "" {
			return c.HostID
		}
	}
	return ""
}

func unsatisfied(a v1.Attachment) string {
	for _, c := range a.Conditions {
		if c.Type == types.ConditionSatisfied && c.Status != conditionTrue {
			return strings.TrimSpace(c.Reason + " " + c.Message)
		}
	}
	return ""
}

func (m *manager) DeleteVolume(ctx context.Context, name string) error {
	return classify(m.api.DeleteVolume(ctx, name))
}

func (m *manager) Attach(ctx context.Context, volume string, t Ticket) error {
	_, err := m.api.AttachVolume(ctx, volume, v1.AttachInput{HostID: t.NodeID, AttacherType: t.Type, AttachmentID: t.ID})
	return classify(err)
}

func (m *manager) Detach(ctx context.Context, volume, ticketID string) error {
	_, err := m.api.DetachVolume(ctx, volume, v1.DetachInput{AttachmentID: ticketID})
	return classify(err)
}

func (m *manager) Expand(ctx context.Context, volume string, sizeBytes int64) error {
	in := v1.ExpandInput{Size: v1.Quantity(strconv.FormatInt(sizeBytes, 10)), MustFit: true}
	_, err := m.api.ExpandVolume(ctx, volume, in)
	if errors.Is(err, client.ErrInvalid) {
		// A manager of an earlier release does not know mustFit, and refuses unknown keys. If the size is wrong, the
		// manager refuses it again.
		in.MustFit = false
		_, err = m.api.ExpandVolume(ctx, volume, in)
	}
	return classify(err)
}

func (m *manager) CancelExpansion(ctx context.Context, volume string) error {
	_, err := m.api.CancelExpansion(ctx, volume)
	return classify(err)
}

// Capacity omits values that mean the default, as a request to create a volume may do.
func (m *manager) Capacity(ctx context.Context, r VolumeRequest, node string) (int64, error) {
	parameters := map[string]string{
		v1.CapacityNode:         node,
		v1.CapacityDataLocality: r.DataLocality,
		v1.CapacityAccessMode:   r.AccessMode,
		v1.CapacityDiskSelector: strings.Join(r.DiskSelector, ","),
		v1.CapacityNodeSelector: strings.Join(r.NodeSelector, ","),
	}
	for _, o := range types.VolumeOptionTable {
		if o.DecidesPlace {
			parameters[o.Name] = o.Get(r.VolumeOptions)
		}
	}
	query := url.Values{}
	for key, value := range parameters {
		if value != "" {
			query.Set(key, value)
		}
	}
	if r.NumberOfReplicas > 0 {
		query.Set(v1.CapacityNumberOfReplicas, strconv.Itoa(r.NumberOfReplicas))
	}
	answer, err := m.api.Capacity(ctx, query)
	if err != nil {
		return 0, classify(err)
	}
	size, err := strconv.ParseInt(answer.MaximumSize, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("maximumSize %q in the manager's answer: %w", answer.MaximumSize, err)
	}
	return size, nil
}

func (m *manager) HasNode(ctx context.Context, name string) (bool, error) {
	_, err := m.api.Node(ctx, name)
	if errors.Is(err, client.ErrNotFound) {
		return false, nil
	}
	return err == nil, classify(err)
}
