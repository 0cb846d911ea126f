package drain

import (
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// planDetach returns the VolumeAttachments without users' own tickets for cordoned nodes. Tickets of workloads stay:
// workloads leave when they are evicted.
func planDetach(attachments []*longhorn.VolumeAttachment, c cluster) []*longhorn.VolumeAttachment {
	var changed []*longhorn.VolumeAttachment
	for _, va := range attachments {
		if va.DeletionTimestamp != nil {
			continue
		}
		var u *longhorn.VolumeAttachment
		for id, ticket := range va.Spec.AttachmentTickets {
			if ticket.Type != longhorn.AttacherTypeAPI || !c.isCordoned(ticket.NodeID) {
				continue
			}
			if u == nil {
				u = va.DeepCopy()
			}
			delete(u.Spec.AttachmentTickets, id)
		}
		if u != nil {
			changed = append(changed, u)
		}
	}
	return changed
}
