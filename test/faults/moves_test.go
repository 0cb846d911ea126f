package faults

import (
	"context"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// placement is a replica on a node. The next replica there gets another name.
type placement struct {
	incarnation int
	made        bool // its directory exists
	leaving     bool // no epoch lists it, and none ever will: it is being deleted
}

// transferring is a replica that moves. Another replica is created elsewhere and becomes a member. Then this replica
// leaves the epoch, and is deleted.
type transferring struct{ from, to *node }

// replicaNodes returns the nodes with a replica.
func (v *volume) replicaNodes() []*node {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(v.nodes), func(n *node) bool { return v.placed[n.number] == nil })
}

func (v *volume) placementOn(n *node) placement {
	v.mu.Lock()
	defer v.mu.Unlock()
	if p := v.placed[n.number]; p != nil {
		return *p
	}
	return placement{}
}

// evict starts to move a replica off a node to a node without one. If the given node has no replica, another one moves.
// Nothing happens while another replica moves, or if every node has one.
func (v *volume) evict(n *node) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.placed[n.number] != nil {
		v.transferLocked(n, nil)
	} else {
		v.transferLocked(nil, n)
	}
}

// goLocal starts to move a replica to a node, where the engine perhaps runs.
func (v *volume) goLocal(n *node) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.transferLocked(nil, n)
}

// transferLocked chooses the nodes that are nil. The caller holds mu.
func (v *volume) transferLocked(from, to *node) {
	for _, n := range v.nodes {
		has := v.placed[n.number] != nil
		if from == nil && has {
			from = n
		}
		if to == nil && !has {
			to = n
		}
	}
	if v.moving != nil || from == nil || to == nil || v.placed[to.number] != nil {
		return
	}
	v.incarnations++
	v.placed[to.number] = &placement{incarnation: v.incarnations}
	v.moving = &transferring{from, to}
}

// transfer returns the replica that moves now, or nil.
func (v *volume) transfer() *transferring {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.moving
}

// makeReplica creates the directory of a replica that has none yet. It reports whether the directory existed before.
func (v *volume) makeReplica(n *node) bool {
	p, spec := v.placementOn(n), v.replicaSpec(n)
	if !p.made {
		v.call("make replica", n, func(ctx context.Context, c *child) error {
			if _, err := c.client.ReplicaCreate(ctx, spec); err != nil {
				return err
			}
			v.mu.Lock()
			defer v.mu.Unlock()
			if now := v.placed[n.number]; now != nil && now.incarnation == p.incarnation { // the answer may be late
				now.made = true
			}
			return nil
		})
	}
	return p.made
}

// mayRebuild reports whether a replica should become a member. A replica that moves should do so only until its
// replacement is a member.
func (v *volume) mayRebuild(n *node, o membership.Object) bool {
	t := v.transfer()
	return t == nil || t.from != n || !o.Epoch.Has(v.replicaName(t.to))
}

// moveOn performs the next step of a transfer, after the new replica has become a member.
func (v *volume) moveOn(o membership.Object, r *run, e *proto.EngineState) {
	t := v.transfer()
	if t == nil {
		return
	}
	from := v.replicaName(t.from)
	inForce, to := epochFromWire(e.GetEpoch()), v.replicaName(t.to)
	settled := e.GetPhase() == proto.Phase_PHASE_RUNNING && e.GetProposedEpoch() == nil && inForce.Equal(o.Epoch) &&
		!slices.ContainsFunc(e.GetMembers(), (*proto.MemberState).GetRebuilding)
	switch {
	case v.placementOn(t.from).leaving:
		v.deleteReplica(t)
	case settled && inForce.Has(to) && inForce.Has(from):
		v.removeMember(t.from)
	case settled && inForce.Has(to):
		if v.leaves(t) {
			v.deleteReplica(t)
		}
	}
}

// leaves records that the first replica of a transfer has left the epoch. It does nothing if a late call has just
// finished the transfer.
func (v *volume) leaves(t *transferring) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.moving != t {
		return false
	}
	v.placed[t.from.number].leaving = true
	return true
}

// deleteReplica finishes a transfer: it deletes the copy that left the epoch.
func (v *volume) deleteReplica(t *transferring) {
	spec := v.replicaSpec(t.from)
	v.call("delete replica", t.from, func(ctx context.Context, c *child) error {
		if _, err := c.client.ReplicaStop(ctx, &proto.ReplicaRef{Name: spec.GetName()}); err != nil {
			return err
		}
		if o, err := v.object.read(); err != nil || o.Epoch.Has(spec.GetName()) {
			return err
		}
		if _, err := c.client.ReplicaRemove(ctx, spec); err != nil {
			return err
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.moving == t {
			delete(v.placed, t.from.number)
			v.moving = nil
			v.seen.moved++
		}
		return nil
	})
}
