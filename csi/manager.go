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

// managerAPI is the part of the REST client that this package uses.
type managerAPI interface {
	Volume(ctx context.Context, name string) (*v1.Volume, error)
	Volumes(ctx context.Context) ([]v1.Volume, error)
	CreateVolume(ctx context.Context, v v1.VolumeCreate) (*v1.Volume, error)
	DeleteVolume(ctx context.Context, name string) error
	AttachVolume(ctx context.Context, name string, in v1.AttachInput) (*v1.Volume, error)
	DetachVolume(ctx context.Context, name string, in v1.DetachInput) (*v1.Volume, error)
	ExpandVolume(ctx context.Context, name string, in v1.ExpandInput) (*v1.Volume, error)
	CancelExpansion(ctx context.Context, name string) (*v1.Volume, error)
	Node(ctx context.Context, name string) (*v1.Node, error)
	Capacity(ctx context.Context, query url.Values) (*v1.StorageCapacity, error)
}

var _ managerAPI = (*client.Client)(nil)

// manager is the VolumeService of a manager's REST API.
type manager struct{ api managerAPI }

// NewManager returns the VolumeService at a manager's URL, such as https://longhorn-backend:9500/v1. Requests go
// through httpClient; nil means a client of its own. NewManager does not connect.
func NewManager(url string, httpClient *http.Client) (VolumeService, error) {
	api, err := client.New(url, httpClient)
	if err != nil {
		return nil, fmt.Errorf("manager at %s: %w", url, err)
	}
	return &manager{api: api}, nil
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

func (m *manager) CreateVolume(ctx context.Context, r VolumeRequest) error {
	stale := r.StaleReplicaTimeoutMinutes
	_, err := m.api.CreateVolume(ctx, v1.VolumeCreate{
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
	})
	return classify(err)
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

// serviceError is a failure of the REST client, classified by an error of VolumeService.
type serviceError struct {
	class, cause error
	text         string
}

func (e *serviceError) Error() string   { return e.text }
func (e *serviceError) Unwrap() []error { return []error{e.class, e.cause} }

// classify translates the client's errors. Errors that it cannot classify stay unchanged: unknown.
func classify(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	var refusal *client.Error
	if errors.As(err, &refusal) && refusal.Message != "" {
		text = withDetail(refusal.Message, refusal.Detail)
	}
	for theirs, ours := range map[error]error{
		client.ErrNotFound:     ErrNotFound,
		client.ErrConflict:     ErrConflict,
		client.ErrInvalid:      ErrInvalid,
		client.ErrInsufficient: ErrInsufficientStorage,
	} {
		if errors.Is(err, theirs) {
			return &serviceError{class: ours, cause: err, text: text}
		}
	}
	return err
}

// maxDetails is how many lines of a refusal's detail become part of a message: an Event shows them in one line.
const maxDetails = 3

// withDetail is a refusal in one line. It omits lines of the detail that the message already contains.
func withDetail(message, detail string) string {
	var lines []string
	for line := range strings.Lines(detail) {
		if line = strings.TrimSpace(line); line != "" && !strings.Contains(message, line) {
			lines = append(lines, line)
		}
	}
	if more := len(lines) - maxDetails; more > 0 {
		lines = append(lines[:maxDetails], fmt.Sprintf("and %d more", more))
	}
	if len(lines) == 0 {
		return message
	}
	return message + ": " + strings.Join(lines, "; ")
}

// withAction prefixes an error with an action, unless the error is a refusal of the manager that already contains all
// these names.
func withAction(err error, action string, names ...string) error {
	var refusal *serviceError
	isNamed := errors.As(err, &refusal)
	for _, name := range names {
		isNamed = isNamed && strings.Contains(refusal.text, name)
	}
	if isNamed {
		return err
	}
	return fmt.Errorf("%s: %w", action, err)
}
