package attachment

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// priorities of ticket holders: a holder with a higher number is served first (Longhorn's order).
var priorities = map[longhorn.AttacherType]int{
	longhorn.AttacherTypeAPI:          1000,
	longhorn.AttacherTypeCSI:          900,
	longhorn.AttacherTypeShareManager: 900,
	longhorn.AttacherTypeSnapshot:     800,
}

// Input is everything that a plan depends on. Nothing in it is modified.
type Input struct {
	Volume     *longhorn.Volume
	Attachment *longhorn.VolumeAttachment
	// Nodes are the only nodes to which the volume may be attached (types.StrictLocalNodes); nil: all nodes.
	Nodes []string
	// Waiting are the nodes that no share would admit yet (types.ShareClientsWaiting).
	Waiting []string
	Now     time.Time
}

// Plan says what to do.
type Plan struct {
	// Volume has a changed spec; nil: the spec does not change.
	Volume *longhorn.Volume
	Status longhorn.VolumeAttachmentStatus
	// Refuses: a ticket requests a node to which the volume cannot be attached.
	Refuses bool
}

// plan picks the node and answers every ticket.
func plan(in Input) Plan {
	var p Plan
	if spec := place(in.Volume, in.attaching(), in.Nodes); spec != in.target() {
		p.Volume = in.Volume.DeepCopy()
		p.Volume.Spec.NodeID = spec.node
		p.Volume.Spec.DisableFrontend = spec.disableFrontend
		if spec.node != "" {
			p.Volume.Spec.LastAttachedBy = spec.by
		}
	}
	p.Status = answer(in)
	for _, t := range in.Attachment.Spec.AttachmentTickets {
		p.Refuses = p.Refuses || in.refusal(t) != ""
	}
	return p
}

// attaching are the tickets that attach the volume to a node. The CSI driver's tickets do not attach a shared volume:
// their nodes mount it over NFS.
func (in Input) attaching() map[string]longhorn.AttachmentTicket {
	tickets := maps.Clone(in.Attachment.Spec.AttachmentTickets)
	maps.DeleteFunc(tickets, func(_ string, t longhorn.AttachmentTicket) bool { return mountsShare(in.Volume, t) })
	return tickets
}

// mountsShare reports whether a ticket is satisfied by the share of a volume, whatever node serves it.
func mountsShare(v *longhorn.Volume, t longhorn.AttachmentTicket) bool {
	return types.IsShared(v) && t.Type == longhorn.AttacherTypeCSI
}

// refusal says why a ticket's node cannot have the volume in any case; "": it can.
func (in Input) refusal(t longhorn.AttachmentTicket) string {
	return types.StrictLocalRefusal(types.VolumeText(in.Volume), t.NodeID, in.Nodes)
}

// target is where and how a volume must be attached.
type target struct {
	node            string
	disableFrontend bool
	by              string
}

func (in Input) target() target {
	s := in.Volume.Spec
	return target{s.NodeID, s.DisableFrontend, s.LastAttachedBy}
}

// place decides where a volume is attached:
//
//   - It stays where some ticket still requests it.
//   - It is detached from a node that no ticket requests.
//   - A detached volume goes to the ticket with the highest priority, and among equals to the smallest id.
//
// A volume never moves directly from one node to another: it must be detached in between. For a strict-local volume,
// only the tickets for the nodes with its data count. If it is attached elsewhere nevertheless, it is served until it
// is detached.
//
// The node where an engine serves the volume counts more than spec.nodeID, which a user may have changed by hand.
func place(v *longhorn.Volume, tickets map[string]longhorn.AttachmentTicket, nodes []string) target {
	current := target{v.Spec.NodeID, v.Spec.DisableFrontend, v.Spec.LastAttachedBy}
	nowhere := target{by: current.by}
	if v.DeletionTimestamp != nil {
		return nowhere
	}
	if served, ok := servedAt(v); ok && isWanted(tickets, served) {
		return served
	}
	mayHave := func(node string) bool { return len(nodes) == 0 || slices.Contains(nodes, node) }
	if current.node != "" {
		if c := types.FindCondition(v.Status.Conditions, types.ConditionAttaching); c.Status == longhorn.ConditionTrue && c.Reason == types.ReasonStrictLocal {
			// it does not start there: its replicas were found too late
			return nowhere
		}
		if isWanted(tickets, current) {
			return current
		}
		return nowhere
	}
	if v.Status.State != longhorn.VolumeStateDetached {
		return current
	}
	tickets = maps.Clone(tickets)
	maps.DeleteFunc(tickets, func(_ string, t longhorn.AttachmentTicket) bool { return !mayHave(t.NodeID) })
	best, ok := first(tickets)
	if !ok {
		return current
	}
	return target{
		node:            best.NodeID,
		disableFrontend: best.Parameters[longhorn.AttachmentParameterDisableFrontend] == "true",
		by:              best.Parameters[longhorn.AttachmentParameterLastAttachedBy],
	}
}

// servedAt is where and how an engine serves the volume. It returns false if no engine serves it, or if the engine may
// be stopping.
//
//	state       device in use    the engine
//	attached    -                serves
//	detaching   yes              serves: its node refused to stop it, and tries later (controller/volume, resumeEngine)
//	detaching   no               may be stopping: a ticket waits until the volume is detached
//	others      -                does not serve
func servedAt(v *longhorn.Volume) (target, bool) {
	refused := v.Status.State == longhorn.VolumeStateDetaching && types.IsConditionTrue(v.Status.Conditions, types.ConditionDeviceInUse)
	serves := v.Status.State == longhorn.VolumeStateAttached || refused
	return target{v.Status.CurrentNodeID, v.Status.FrontendDisabled, v.Spec.LastAttachedBy}, serves && v.Status.CurrentNodeID != ""
}

// isWanted reports whether a ticket requests the volume at that node and in that mode.
func isWanted(tickets map[string]longhorn.AttachmentTicket, at target) bool {
	for _, t := range tickets {
		if t.NodeID == at.node && accepts(t, at.disableFrontend) {
			return true
		}
	}
	return false
}

func first(tickets map[string]longhorn.AttachmentTicket) (longhorn.AttachmentTicket, bool) {
	ids := slices.Sorted(maps.Keys(tickets))
	if len(ids) == 0 {
		return longhorn.AttachmentTicket{}, false
	}
	best := ids[0]
	for _, id := range ids[1:] {
		if priorities[tickets[id].Type] > priorities[tickets[best].Type] {
			best = id
		}
	}
	return tickets[best], true
}

// accepts reports whether a ticket accepts that the frontend is off or on.
func accepts(t longhorn.AttachmentTicket, disabled bool) bool {
	switch t.Parameters[longhorn.AttachmentParameterDisableFrontend] {
	case "any":
		return true
	case "true":
		return disabled
	default:
		return !disabled
	}
}

// answer writes the progress of each ticket, and drops the statuses of removed tickets.
func answer(in Input) longhorn.VolumeAttachmentStatus {
	var s longhorn.VolumeAttachmentStatus
	for id, t := range in.Attachment.Spec.AttachmentTickets {
		if s.AttachmentTicketStatuses == nil {
			s.AttachmentTicketStatuses = map[string]longhorn.AttachmentTicketStatus{}
		}
		c := ticketCondition(in, t)
		old := in.Attachment.Status.AttachmentTicketStatuses[id]
		conditions, _ := types.SetCondition(old.Conditions, c, in.Now)
		s.AttachmentTicketStatuses[id] = longhorn.AttachmentTicketStatus{
			ID: id, Generation: t.Generation, Conditions: conditions,
			Satisfied: c.Status == longhorn.ConditionTrue,
		}
	}
	s.Nodes, s.Satisfied = overview(in.Attachment.Spec.AttachmentTickets, s.AttachmentTicketStatuses)
	return s
}

// maxNodes is the maximum number of nodes in a column of kubectl get.
const maxNodes = 2

// overview returns the nodes of tickets and how many tickets are satisfied. kubectl get can show only one value of a
// map, and not always the same.
func overview(tickets map[string]longhorn.AttachmentTicket, statuses map[string]longhorn.AttachmentTicketStatus) (nodes, satisfied string) {
	if len(tickets) == 0 {
		return "", ""
	}
	var list []string
	count := 0
	for id, t := range tickets {
		list = append(list, t.NodeID)
		if statuses[id].Satisfied {
			count++
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	if more := len(list) - maxNodes; more > 0 {
		list = append(list[:maxNodes], fmt.Sprintf("+%d", more))
	}
	return strings.Join(list, ","), fmt.Sprintf("%d/%d", count, len(tickets))
}

func ticketCondition(in Input, t longhorn.AttachmentTicket) longhorn.Condition {
	v, name := in.Volume, types.VolumeText(in.Volume)
	no := func(reason, format string, args ...any) longhorn.Condition {
		return longhorn.Condition{
			Type: types.ConditionSatisfied, Status: longhorn.ConditionFalse,
			Reason: reason, Message: fmt.Sprintf(format, args...),
		}
	}
	faulted := types.FindCondition(v.Status.Conditions, types.ConditionFaulted)
	scheduled := types.FindCondition(v.Status.Conditions, types.ConditionScheduled)
	attached := v.Status.State == longhorn.VolumeStateAttached
	shared := mountsShare(v, t)
	switch {
	case shared && types.IsServed(v) && v.DeletionTimestamp == nil && slices.Contains(in.Waiting, t.NodeID):
		return no(types.ReasonClientsNotKnown, "waiting until the daemon of node %s reports the node's addresses: the share of volume %s accepts only known addresses", t.NodeID, name)
	case shared && types.IsServed(v) && v.DeletionTimestamp == nil:
		return longhorn.Condition{Type: types.ConditionSatisfied, Status: longhorn.ConditionTrue}
	case shared && faulted.Status != longhorn.ConditionTrue:
		return no(types.ReasonWaitingForShare, "waiting until volume %s is served: its share manager is %s", name, shareText(v))
	case attached && v.Status.CurrentNodeID == t.NodeID && !accepts(t, v.Status.FrontendDisabled):
		return no(types.ReasonAttachedIncompatibleFrontend, "volume %s is attached to node %s with disableFrontend %v, but the ticket requests the opposite",
			name, t.NodeID, v.Status.FrontendDisabled)
	case attached && v.Status.CurrentNodeID == t.NodeID && v.Spec.NodeID == t.NodeID:
		return longhorn.Condition{Type: types.ConditionSatisfied, Status: longhorn.ConditionTrue}
	case in.refusal(t) != "":
		return no(types.ReasonStrictLocal, "%s", in.refusal(t))
	case v.Spec.NodeID != "" && v.Spec.NodeID != t.NodeID:
		return no(types.ReasonAttachedElsewhere, "volume %s is attached to node %s; it can be attached to node %s when it is detached from there",
			name, v.Spec.NodeID, t.NodeID)
	case faulted.Status == longhorn.ConditionTrue:
		return no(faulted.Reason, "volume %s cannot be attached: %s", name, faulted.Message)
	case scheduled.Status == longhorn.ConditionFalse && v.Status.State == longhorn.VolumeStateDetached && v.Spec.NodeID != "":
		return no(scheduled.Reason, "volume %s cannot be attached to node %s: %s", name, t.NodeID, scheduled.Message)
	}
	return no(types.ReasonWaitingForVolume, "volume %s is %s; waiting until it is attached to node %s", name, stateText(v), t.NodeID)
}

func shareText(v *longhorn.Volume) string {
	if v.Status.ShareState == "" {
		return "not started yet"
	}
	return string(v.Status.ShareState)
}

func stateText(v *longhorn.Volume) string {
	if v.Status.State == "" {
		return "new"
	}
	return string(v.Status.State)
}
