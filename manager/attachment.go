package manager

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// AttachRequest requests that a volume be attached to a node.
type AttachRequest struct {
	NodeID string
	// TicketID names the ticket; "" is the ticket for people.
	TicketID string
	// Attacher is longhorn-api (default) or csi-attacher.
	Attacher string
	// DisableFrontend attaches without a block device.
	DisableFrontend bool
	// AttachedBy is shown to people.
	AttachedBy string
}

// DetachRequest removes a ticket.
type DetachRequest struct {
	TicketID string
	// NodeID, if given, must be the node of the ticket.
	NodeID string
	// Force removes all tickets.
	Force bool
}

// VolumeAttachments returns the attachments of all volumes, sorted by name.
func (m *Manager) VolumeAttachments() ([]*VolumeAttachment, error) {
	list, err := m.deps.Attachments.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list volume attachments: %w", err)
	}
	return list, nil
}

// VolumeAttachment returns the attachment of one volume.
func (m *Manager) VolumeAttachment(name string) (*VolumeAttachment, error) {
	va, err := m.deps.Attachments.GetRO(name)
	if err != nil {
		return nil, storeError("volumeAttachment", name, err)
	}
	return va, nil
}

// AttachVolume creates a ticket and does not wait until it is satisfied. If a ticket with the same content exists,
// AttachVolume leaves it unchanged, whatever the state of volume and node, so a call may be repeated. See putTicket for
// the requests that it refuses with ErrConflict. A node that does not exist is *Invalid.
func (m *Manager) AttachVolume(ctx context.Context, name string, req AttachRequest) (VolumeView, error) {
	ticket, err := newTicket(req)
	if err != nil {
		return VolumeView{}, err
	}
	v, err := byName(ctx, m.deps.Volumes, name)
	if err != nil {
		return VolumeView{}, storeError("volume", name, err)
	}
	va, err := m.changeTickets(ctx, v, func(va *VolumeAttachment) (bool, error) {
		if held, err := holdsTicket(va, ticket); held || err != nil {
			return false, err
		}
		if err := m.checkAttachNode(ctx, ticket.NodeID); err != nil {
			return false, err
		}
		if err := m.checkAttachable(v, ticket.NodeID); err != nil {
			return false, err
		}
		return true, putTicket(v, va, ticket)
	})
	if err != nil {
		return VolumeView{}, err
	}
	return m.view(v, va)
}

// checkAttachable refuses a volume that cannot be attached to any node now, and a strict-local volume whose data is on
// another node. It does not refuse a volume that is being attached or detached: the ticket waits.
func (m *Manager) checkAttachable(v *Volume, node string) error {
	view, err := m.view(v, nil)
	if err != nil {
		return err
	}
	if text := types.StrictLocalRefusal(v.Name, node, view.StrictLocalNodes); text != "" {
		return conflict("hostId: %s", text)
	}
	if s := v.Status.State; view.Ready || s == longhorn.VolumeStateAttaching || s == longhorn.VolumeStateDetaching {
		return nil
	}
	return conflict("unable to attach volume %q: %s", v.Name, view.NotReadyMessage)
}

// DetachVolume removes a ticket, or all tickets, and does not wait until the volume is detached. A missing ticket is
// not an error.
func (m *Manager) DetachVolume(ctx context.Context, name string, req DetachRequest) (VolumeView, error) {
	v, err := byName(ctx, m.deps.Volumes, name)
	if err != nil {
		return VolumeView{}, storeError("volume", name, err)
	}
	va, err := m.changeTickets(ctx, v, func(va *VolumeAttachment) (bool, error) { return dropTickets(va, req) })
	if err != nil {
		return VolumeView{}, err
	}
	return m.view(v, va)
}

func newTicket(req AttachRequest) (longhorn.AttachmentTicket, error) {
	var none longhorn.AttachmentTicket
	if req.NodeID == "" {
		return none, &Invalid{Field: "hostId", Rule: "must name a node"}
	}
	if len(req.TicketID) > 253 {
		return none, &Invalid{Field: "attachmentID", Value: req.TicketID, Rule: "must be at most 253 bytes long"}
	}
	attacher := longhorn.AttacherType(req.Attacher)
	switch attacher {
	case "":
		attacher = longhorn.AttacherTypeAPI
	case longhorn.AttacherTypeAPI, longhorn.AttacherTypeCSI:
	default:
		return none, &Invalid{
			Field: "attacherType", Value: req.Attacher,
			Rule: fmt.Sprintf("must be %s or %s", longhorn.AttacherTypeAPI, longhorn.AttacherTypeCSI),
		}
	}
	return longhorn.AttachmentTicket{
		ID: req.TicketID, Type: attacher, NodeID: req.NodeID,
		Parameters: map[string]string{
			longhorn.AttachmentParameterDisableFrontend: strconv.FormatBool(req.DisableFrontend),
			longhorn.AttachmentParameterLastAttachedBy:  req.AttachedBy,
		},
	}, nil
}

// checkAttachNode refuses a node that does not exist or cannot be reached. It accepts a node whose daemon is only
// missing for a moment: the node's data plane keeps running without the daemon.
func (m *Manager) checkAttachNode(ctx context.Context, name string) error {
	node, err := byName(ctx, m.deps.Nodes, name)
	if apierrors.IsNotFound(err) {
		return &Invalid{Field: "hostId", Value: name, Rule: "does not exist: no node has this name"}
	}
	if err != nil {
		return fmt.Errorf("get node %s: %w", name, err)
	}
	ready := types.FindCondition(node.Status.Conditions, types.ConditionReady)
	if types.IsNodeDown(node) {
		return conflict("node %q is not ready: %s: %s", name, ready.Reason, ready.Message)
	}
	return nil
}

// changeTickets applies change to the volume's current attachment, and writes it if change returns true. If the
// attachment does not exist and change has something to write, changeTickets creates the object.
func (m *Manager) changeTickets(ctx context.Context, v *Volume, change func(*VolumeAttachment) (bool, error)) (*VolumeAttachment, error) {
	var result *VolumeAttachment
	err := m.retry(ctx, func() error {
		va, err := m.deps.Attachments.Live(ctx, v.Name)
		isNew := apierrors.IsNotFound(err)
		switch {
		case isNew:
			va = newAttachment(v)
		case err != nil:
			return err
		case va.DeletionTimestamp != nil || !belongs(va, v):
			return errBusy // it is the object of an earlier volume of the name, or is being deleted with this volume
		}
		result = va
		changed, err := change(va)
		if err != nil || !changed {
			return err
		}
		if isNew {
			result, err = m.deps.Attachments.Create(ctx, va)
		} else if result, err = m.deps.Attachments.Update(ctx, va); apierrors.IsNotFound(err) {
			return errBusy
		}
		return err
	})
	if isLostRace(err) {
		return nil, &Problem{
			Class: ErrConflict, Cause: err,
			Text: fmt.Sprintf("other clients changed the attachment of volume %q at the same time; try again", v.Name),
		}
	}
	if err != nil {
		return nil, storeError("volumeAttachment", v.Name, err)
	}
	return result, nil
}

// newAttachment returns an attachment without tickets. The controller creates the same object for a new volume; the
// first writer wins.
func newAttachment(v *Volume) *VolumeAttachment {
	return &VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name: v.Name, Namespace: v.Namespace,
			Labels: map[string]string{types.LabelVolume: v.Name},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: longhorn.SchemeGroupVersion.String(), Kind: "Volume", Name: v.Name, UID: v.UID,
			}},
		},
		Spec: longhorn.VolumeAttachmentSpec{Volume: v.Name},
	}
}

// holdsTicket reports whether exactly this ticket exists. A ticket of the same id that belongs to another user, or
// names another node, is a conflict: a ticket cannot move, it must be removed first.
func holdsTicket(va *VolumeAttachment, want longhorn.AttachmentTicket) (bool, error) {
	have, ok := va.Spec.AttachmentTickets[want.ID]
	switch {
	case !ok:
		return false, nil
	case have.Type != want.Type:
		return false, conflict("attachment %q of volume %q has the attacher type %s, not %s", want.ID, va.Name, have.Type, want.Type)
	case have.NodeID != want.NodeID:
		return false, conflict("volume %q already has attachment %q for node %q; detach it first", va.Name, want.ID, have.NodeID)
	}
	return maps.Equal(have.Parameters, want.Parameters), nil
}

// putTicket adds a ticket, or changes the parameters of an existing ticket. It refuses while the volume is being
// deleted or is faulted. It also refuses a user's ticket while the volume is attached to another node, or while another
// ticket requests it there. So the user sees the conflict immediately. A CSI attacher's ticket waits for its turn, and
// so does the attacher.
func putTicket(v *Volume, va *VolumeAttachment, want longhorn.AttachmentTicket) error {
	if v.DeletionTimestamp != nil {
		return conflict("volume %q is being deleted", v.Name)
	}
	if v.Status.Robustness == longhorn.VolumeRobustnessFaulted {
		return conflict("volume %q is faulted", v.Name)
	}
	if want.Type == longhorn.AttacherTypeAPI {
		if err := refuseOtherNode(v, va, want); err != nil {
			return err
		}
	}
	// The status of a removed ticket of this id may still exist. It must not be taken for the status of this ticket.
	want.Generation = 1 + max(va.Spec.AttachmentTickets[want.ID].Generation,
		va.Status.AttachmentTicketStatuses[want.ID].Generation)
	if va.Spec.AttachmentTickets == nil {
		va.Spec.AttachmentTickets = map[string]longhorn.AttachmentTicket{}
	}
	va.Spec.AttachmentTickets[want.ID] = want
	return nil
}

func refuseOtherNode(v *Volume, va *VolumeAttachment, want longhorn.AttachmentTicket) error {
	for _, node := range []string{v.Status.CurrentNodeID, v.Spec.NodeID} {
		if node != "" && node != want.NodeID {
			return conflict("hostId: %q is refused: volume %q is attached to node %q, and a volume can be attached to only one node at a time", want.NodeID, v.Name, node)
		}
	}
	for id, other := range va.Spec.AttachmentTickets {
		if id != want.ID && other.NodeID != want.NodeID {
			return conflict("hostId: %q is refused: volume %q is requested on node %q by attachment %q (%s), and a volume can be attached to only one node at a time",
				want.NodeID, v.Name, other.NodeID, id, other.Type)
		}
	}
	return nil
}

// dropTickets removes the tickets of the request and reports whether any of them existed.
func dropTickets(va *VolumeAttachment, req DetachRequest) (bool, error) {
	if req.Force {
		had := len(va.Spec.AttachmentTickets) > 0
		va.Spec.AttachmentTickets = nil
		return had, nil
	}
	have, ok := va.Spec.AttachmentTickets[req.TicketID]
	if !ok {
		return false, nil
	}
	if req.NodeID != "" && req.NodeID != have.NodeID {
		return false, conflict("attachment %q of volume %q is for node %q, not for node %q", req.TicketID, va.Name, have.NodeID, req.NodeID)
	}
	delete(va.Spec.AttachmentTickets, req.TicketID)
	return true, nil
}

// IsSatisfied reports whether the current ticket is satisfied: the status of an earlier version of the ticket does not
// count.
func IsSatisfied(va *VolumeAttachment, id string) bool {
	ticket, ok := va.Spec.AttachmentTickets[id]
	status, answered := va.Status.AttachmentTicketStatuses[id]
	return ok && answered && status.Satisfied && status.Generation == ticket.Generation
}
