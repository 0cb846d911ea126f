package snapshot

import (
	"maps"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/controller/line"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// planTicket attaches a detached volume for the Snapshot that was picked, and lets it be detached afterwards.
//
//	picked         other tickets      own ticket
//	none           -                  removed
//	a Snapshot     none               on a node with a member, without a device
//	a Snapshot     some               removed, because users of the volume come first; but it stays while the attempt
//	                                  that it serves is under way
//
// With tickets of others, the volume is attached where they request it, and the snapshot is taken there.
func planTicket(in Input, p *Plan, picked *longhorn.Snapshot) {
	if in.Attachment == nil {
		return
	}
	own := in.ownTickets()
	others := len(in.Attachment.Spec.AttachmentTickets) - len(own)
	underWay := in.isRunning() && line.Intended(in.lineRead()) != nil
	keep := ""
	if picked != nil && (others == 0 || underWay) {
		keep = in.usable(own)
	}
	if keep == "" && picked != nil && others == 0 && in.Volume.DeletionTimestamp == nil {
		if node := in.node(); node != "" {
			p.Attachment = in.withTicket(own, &longhorn.AttachmentTicket{
				ID: types.SnapshotTicketID(picked.Name), Type: longhorn.AttacherTypeSnapshot, NodeID: node,
				Parameters: map[string]string{
					longhorn.AttachmentParameterDisableFrontend: "true", longhorn.AttachmentParameterLastAttachedBy: "snapshot-controller",
				},
			})
			return
		}
	}
	if gone := slices.DeleteFunc(own, func(id string) bool { return id == keep }); len(gone) > 0 {
		p.Attachment = in.withTicket(gone, nil)
	}
}

// ownTickets are the ids of the tickets of this controller, sorted.
func (in Input) ownTickets() []string {
	if in.Attachment == nil {
		return nil
	}
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(in.Attachment.Spec.AttachmentTickets)) {
		if in.Attachment.Spec.AttachmentTickets[id].Type == longhorn.AttacherTypeSnapshot {
			ids = append(ids, id)
		}
	}
	return ids
}

// usable returns the first ticket with a ready node; "": no ticket has one.
func (in Input) usable(ids []string) string {
	for _, id := range ids {
		if in.Nodes[in.Attachment.Spec.AttachmentTickets[id].NodeID].Ready {
			return id
		}
	}
	return ""
}

// node returns the node to which the volume is attached for a snapshot: where its engine is, or the first ready node
// with a member. A strict-local volume can be attached nowhere else. "": no node is possible now.
func (in Input) node() string {
	if node := in.Volume.Status.CurrentNodeID; node != "" {
		return node
	}
	var nodes []string
	for _, r := range in.Replicas {
		fact := in.Nodes[r.Spec.NodeID]
		isNew := in.Engine == nil || in.Engine.Status.Epoch == nil
		if fact.Ready && fact.TakesSnapshots && r.DeletionTimestamp == nil && (isNew || in.isMember(r)) {
			nodes = append(nodes, r.Spec.NodeID)
		}
	}
	slices.Sort(nodes)
	if len(nodes) == 0 {
		return ""
	}
	return nodes[0]
}

// withTicket returns the attachment without some tickets, and with another one if it is not nil.
func (in Input) withTicket(without []string, with *longhorn.AttachmentTicket) *longhorn.VolumeAttachment {
	va := in.Attachment.DeepCopy()
	for _, id := range without {
		delete(va.Spec.AttachmentTickets, id)
	}
	if with != nil {
		if va.Spec.AttachmentTickets == nil {
			va.Spec.AttachmentTickets = map[string]longhorn.AttachmentTicket{}
		}
		va.Spec.AttachmentTickets[with.ID] = *with
	}
	return va
}
