package manager

import (
	"maps"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

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
