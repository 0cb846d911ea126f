package csi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// ControllerPublishVolume returns when the volume's device is on the node. For a shared volume, it returns when the
// share is served, with its endpoint.
func (s *controllerServer) ControllerPublishVolume(ctx context.Context, req *csipb.ControllerPublishVolumeRequest) (*csipb.ControllerPublishVolumeResponse, error) {
	volume, node := req.GetVolumeId(), req.GetNodeId()
	switch {
	case volume == "":
		return nil, missing("volume id")
	case node == "":
		return nil, missing("node id")
	case req.GetVolumeCapability() == nil:
		return nil, missing("volume capability")
	case req.GetReadonly():
		return nil, status.Error(codes.InvalidArgument, "readonly: attaching a volume read-only to a node is not supported")
	}
	c, err := readCapability(req.GetVolumeCapability())
	if err != nil {
		return nil, invalid(err)
	}
	if !isVolumeID(volume) {
		return nil, status.Errorf(codes.NotFound, "volume %q does not exist", volume)
	}
	unlock, ok := s.locks.tryLock(onNode(volume, node))
	if !ok {
		return nil, busy(volume)
	}
	defer unlock()
	v, err := s.core.publish(ctx, volume, node, c)
	if err != nil {
		return nil, toStatus(err)
	}
	return &csipb.ControllerPublishVolumeResponse{PublishContext: withDataNode(publishContext(v), v)}, nil
}

// onNode is the lock of a call that publishes a volume to a node, or detaches it from the node. One node's call must
// not wait for another's: a volume comes to a node only when it has left the other node.
func onNode(volume, node string) string { return volume + " on " + node }

// cleanupTimeout limits the removal of a ticket after the call's own time is over.
const cleanupTimeout = 10 * time.Second

// ticketID is the id of this driver's ticket for a volume on a node. It is always the same, so that a call after a
// restart finds the ticket of an earlier one.
func ticketID(volume, driver, node string) string {
	sum := sha256.Sum256([]byte(volume + driver + node))
	return "csi-" + hex.EncodeToString(sum[:])
}

// publish creates a ticket and waits until it is satisfied.
//
// The attacher treats some answers as final (NotFound, FailedPrecondition, Internal, …): the volume is then certainly
// not attached, and it will not call unpublish. So publish removes the ticket before it gives such an answer. If that
// fails, the answer becomes Aborted, which is not final. After Aborted, Unavailable and DeadlineExceeded the ticket
// stays: by the next call the attachment has progressed.
func (c *controller) publish(ctx context.Context, volume, node string, as capability) (Volume, error) {
	id := ticketID(volume, c.driver, node)
	v, err := c.attach(ctx, volume, node, id, as)
	err = toStatus(err)
	if err == nil || !isFinal(status.Code(err)) {
		return v, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if undo := c.volumes.Detach(ctx, volume, id); undo != nil && !errors.Is(undo, ErrNotFound) {
		return v, status.Errorf(codes.Aborted, "%v; removing the attachment ticket: %v", err, undo)
	}
	return v, err
}

// isFinal reports whether the attacher takes a code to mean that nothing is under way.
func isFinal(code codes.Code) bool {
	switch code {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	}
	return true
}

func (c *controller) attach(ctx context.Context, volume, node, id string, as capability) (Volume, error) {
	known, err := c.volumes.HasNode(ctx, node)
	if err != nil {
		return Volume{}, withAction(err, "reading node "+node, node)
	}
	if !known {
		return Volume{}, status.Errorf(codes.NotFound, "attaching volume %s: node %s does not exist", volume, node)
	}
	v, err := c.volumes.Volume(ctx, volume)
	if err != nil {
		return v, withAction(err, "reading volume "+volume, volume)
	}
	if err := checkMode(v, as); err != nil {
		return v, err
	}
	if isSatisfied(v, id, node) {
		return v, nil
	}
	_, hasTicket := v.Tickets[id]
	if err := checkAttachable(v, node, hasTicket); err != nil {
		return v, err
	}
	if !hasTicket {
		ticket := Ticket{ID: id, Type: attacherType, NodeID: node}
		if err := c.volumes.Attach(ctx, volume, ticket); err != nil {
			return v, withAction(err, "attaching volume "+volume+" to node "+node, volume, node)
		}
		c.log.WithFields(logrus.Fields{"volume": volume, "node": node}).Info("Requested the attachment of the volume")
	}
	settledReads := 0
	v, err = c.await(ctx, volume, func(v Volume) (bool, error) {
		if v.Faulted {
			return false, notReady(v)
		}
		if !isSatisfied(v, id, node) {
			return false, nil
		}
		settledReads++
		return !lacksDataNode(v) || settledReads > maxSettleReads, nil
	})
	if errors.Is(err, errWaitTimeout) {
		return v, notSatisfied(v, id, node)
	}
	return v, err
}

func isSatisfied(v Volume, id, node string) bool {
	t, ok := v.Tickets[id]
	return ok && t.Satisfied && t.NodeID == node && (!v.isShared() || v.ShareEndpoint != "")
}

// checkAttachable refuses a request that cannot be satisfied soon. If another node has the volume, this is not "not
// ready": that node may release it at any moment, so publish waits for it. The same applies to a volume that is being
// detached from this node. If a user removed all tickets of a volume in use, only a new ticket makes it attached again.
// publish does not wait if a strict-local volume has its data on another node.
func checkAttachable(v Volume, node string, hasTicket bool) error {
	if v.State == stateDeleting {
		return status.Errorf(codes.NotFound, "volume %s is being deleted", v.Name)
	}
	if text := types.StrictLocalRefusal(v.Name, node, v.StrictLocalNodes); text != "" {
		return status.Error(codes.FailedPrecondition, text)
	}
	isSomewhere := v.NodeID != ""
	if v.Faulted || !v.Ready && !hasTicket && !isSomewhere {
		return notReady(v)
	}
	return nil
}

func notReady(v Volume) error {
	text := v.NotReadyMessage
	if v.Faulted && text == "" {
		text = "volume is faulted"
	}
	return status.Errorf(codes.Aborted, "volume %s is not ready for workloads: %s", v.Name, text)
}

// notSatisfied is the answer if the ticket was not satisfied in time.
func notSatisfied(v Volume, id, node string) error {
	if v.isShared() {
		return shareNotServed(v, id, node)
	}
	if v.NodeID != "" && v.NodeID != node {
		return status.Errorf(codes.FailedPrecondition, "attaching volume %s to node %s: it is still attached to node %s", v.Name, node, v.NodeID)
	}
	reason := v.Tickets[id].Message
	if reason == "" {
		reason = "the volume's state is " + v.State
	}
	return status.Errorf(codes.DeadlineExceeded, "attaching volume %s to node %s: the volume was not attached in time: %s", v.Name, node, reason)
}

// ControllerUnpublishVolume returns when the volume's device has left the node. For a shared volume, it returns when
// the node has no ticket for the share. An empty node id means all nodes.
func (s *controllerServer) ControllerUnpublishVolume(ctx context.Context, req *csipb.ControllerUnpublishVolumeRequest) (*csipb.ControllerUnpublishVolumeResponse, error) {
	volume := req.GetVolumeId()
	if volume == "" {
		return nil, missing("volume id")
	}
	if !isVolumeID(volume) {
		return &csipb.ControllerUnpublishVolumeResponse{}, nil
	}
	unlock, ok := s.locks.tryLock(onNode(volume, req.GetNodeId()))
	if !ok {
		return nil, busy(volume)
	}
	defer unlock()
	if err := s.core.unpublish(ctx, volume, req.GetNodeId()); err != nil {
		return nil, toStatus(err)
	}
	return &csipb.ControllerUnpublishVolumeResponse{}, nil
}

// unpublish removes this driver's ticket for the node, or for all nodes if node is empty. It waits until the tickets
// are gone and the volume has left the node, so that no writer remains when the volume is attached again. If another
// user's ticket still requests the node, the node keeps the volume, and unpublish does not wait. A shared volume is on
// the node of its share manager, so only the tickets must be gone. Missing volumes and nodes count as unpublished.
func (c *controller) unpublish(ctx context.Context, volume, node string) error {
	v, err := c.volumes.Volume(ctx, volume)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return withAction(err, "reading volume "+volume, volume)
	}
	ids := c.ticketsFor(v, node)
	if node != "" && len(ids) == 0 {
		// The last read may be a moment old. Removing a ticket that does not exist is harmless.
		ids = []string{ticketID(volume, c.driver, node)}
	}
	for _, id := range ids {
		if err := c.volumes.Detach(ctx, volume, id); err != nil && !errors.Is(err, ErrNotFound) {
			return withAction(err, "detaching volume "+volume, volume)
		}
		c.log.WithFields(logrus.Fields{"volume": volume, "node": node}).Info("Requested the detachment of the volume")
	}
	v, err = c.await(ctx, volume, func(v Volume) (bool, error) {
		return len(c.ticketsFor(v, node)) == 0 && (v.isShared() || hasLeft(v, node)), nil
	})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if errors.Is(err, errWaitTimeout) {
		return status.Errorf(codes.DeadlineExceeded, "detaching volume %s: it is still %s on node %s", volume, v.State, v.NodeID)
	}
	return err
}

// ticketsFor lists this driver's tickets of a volume, for one node or for all.
func (c *controller) ticketsFor(v Volume, node string) []string {
	if node != "" {
		id := ticketID(v.Name, c.driver, node)
		if _, ok := v.Tickets[id]; ok {
			return []string{id}
		}
		return nil
	}
	var ids []string
	for id, t := range v.Tickets {
		if t.Type == attacherType {
			ids = append(ids, id)
		}
	}
	return ids
}

func hasLeft(v Volume, node string) bool {
	if v.State == stateDetaching {
		return false // whatever NodeID says: the engine may still be stopping
	}
	if v.NodeID == "" || node != "" && v.NodeID != node {
		return true
	}
	for _, t := range v.Tickets {
		if t.NodeID == v.NodeID {
			return true // another user's ticket requests it there
		}
	}
	return false
}
