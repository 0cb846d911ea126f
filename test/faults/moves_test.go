package faults

import (
	"context"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// placement is a replica on a node. The next one there has another name.
type placement struct {
	incarnation int
	made        bool // its directory
	leaving     bool // no epoch lists it, and none will: it is being deleted
}

// transferring is a replica that moves: another one is made elsewhere and becomes a member, then this one leaves the epoch, then it is deleted.
type transferring struct{ from, to *node }

// replicaNodes are those with a replica.
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

// evict begins to move a replica off a node, or off another one if it has none, to one without. Nothing happens while another moves, or
// when every node has one.
func (v *volume) evict(n *node) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.placed[n.number] != nil {
		v.transferLocked(n, nil)
	} else {
		v.transferLocked(nil, n)
	}
}

// goLocal begins to move a replica to a node, where the engine is perhaps.
func (v *volume) goLocal(n *node) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.transferLocked(nil, n)
}

// transferLocked chooses what is nil.
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

// transfer returns what moves now; nil for nothing.
func (v *volume) transfer() *transferring {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.moving
}

// makeReplica makes the directory of a replica that has none yet. It returns whether it did already.
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

// mayRebuild says whether a replica is to be a member: one that leaves only until the one in its place is.
func (v *volume) mayRebuild(n *node, o membership.Object) bool {
	t := v.transfer()
	return t == nil || t.from != n || !o.Epoch.Has(v.replicaName(t.to))
}

// moveOn takes a transfer one step on, once the new replica is a member.
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

// leaves notes that the first replica of a transfer has left the epoch, unless a call that came late has just ended the
// transfer.
func (v *volume) leaves(t *transferring) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.moving != t {
		return false
	}
	v.placed[t.from.number].leaving = true
	return true
}

// deleteReplica ends a transfer: the copy that left the epoch is deleted.
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
