package replica

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// Control answers the private command; packages membership and points have its messages. A message that cannot be decoded is EINVAL.
// An unknown operation is ENOTSUP.
//
// The replica's lane carries out each operation that changes something on the disk. The gate stays held until the
// operation has ended. If ctx ends first, the error is a *HangError. Then the operation may still take effect, and the
// next engine waits for it.
func (s *Session) Control(ctx context.Context, op uint16, payload []byte) ([]byte, error) {
	t, err := s.begin()
	if err != nil {
		return nil, err
	}
	leave := func() { s.gate.leave(t) }
	s.layering.asked(op)
	switch op {
	case membership.OpState:
		defer leave()
		return marshal(s.state())
	case membership.OpIntents:
		defer leave()
		return marshal(membership.Regions{Indexes: s.replica.intents.marked()})
	case membership.OpInForce:
		defer leave()
		var question membership.InForce
		if err := unmarshal(payload, &question); err != nil {
			return nil, err
		}
		s.replica.opts.Questions.record(s.generation, question.Limited)
		return nil, nil
	}
	if reply, handled, err := s.controlPoints(ctx, op, payload); handled {
		leave()
		return reply, err
	}
	var reply []byte
	c, err := s.controlCall(op, payload, &reply)
	if err != nil {
		leave()
		return nil, err
	}
	c.over = leave
	err = s.replica.lane.run(ctx, c)
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// controlCall decodes an operation that changes something on the disk, or one that reads state which such operations
// change. reply is set when the call has been delivered.
func (s *Session) controlCall(op uint16, payload []byte, reply *[]byte) (call, error) {
	switch op {
	case membership.OpRecordEpoch:
		var e membership.Epoch
		err := unmarshal(payload, &e)
		return call{what: "record the epoch", work: func() error { return s.recordEpoch(e) }}, err
	case membership.OpBeginRebuild:
		return call{what: "start a rebuild", work: s.beginRebuild}, nil
	case membership.OpClearIntents:
		var regions membership.Regions
		err := unmarshal(payload, &regions)
		return call{what: "clear intent marks", work: func() error { return s.replica.clearIntents(regions.Indexes) }}, err
	case membership.OpLackAll:
		var lacks membership.LackAll
		err := unmarshal(payload, &lacks)
		return call{what: "mark all regions", work: func() error { return s.lackAll(lacks.Epoch, lacks.SizeBytes) }}, err
	case membership.OpAway:
		var away membership.Away
		err := unmarshal(payload, &away)
		return call{what: "start a record of changed regions", work: func() error { return s.replica.beginRecord(away) }}, err
	case membership.OpChanged:
		var away membership.Away
		err := unmarshal(payload, &away)
		var b []byte
		return call{
			what:    "read the record of changed regions",
			work:    func() (err error) { b, err = s.replica.changedSince(away); return err },
			deliver: func() { *reply = b },
		}, err
	}
	if c, ok, err := s.pointCall(op, payload, reply); ok {
		return c, err
	}
	return call{}, &nbd.Error{Errno: nbd.ENOTSUP, Msg: fmt.Sprintf("unknown control operation %d", op)}
}

func (s *Session) state() membership.State {
	r := s.replica
	r.mu.Lock()
	defer r.mu.Unlock()
	return membership.State{
		UID: r.meta.UID, SizeBytes: r.Size(), Generation: r.meta.Generation, Epoch: r.meta.Epoch, RegionBytes: r.regionBytes,
		BootID: s.lastBootID, Clean: s.wasClean, CacheKept: r.cacheKept, Rebuilding: r.meta.Rebuilding, Base: r.baseLocked(),
		ReadsDisk:  true, // see Replica.confirm
		WritesLost: !r.cacheKept && r.opts.BootID != "",
		LastAsked:  r.opts.Questions.before(),
	}
}

// beginRebuild durably records that the data must not be believed. Repeating it is a success. The caller is in the
// lane.
func (s *Session) beginRebuild() error {
	r := s.replica
	r.mu.Lock()
	rebuilding := r.meta.Rebuilding
	r.mu.Unlock()
	if !rebuilding {
		if err := r.update(func(m *Meta) { m.Rebuilding = true }); err != nil {
			return fmt.Errorf("start a rebuild: %w", err)
		}
		r.changed()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renewing = true
	return nil
}

// recordEpoch makes an epoch durable. Repeating the same epoch is a success. It refuses an older epoch, and the same
// epoch with other members: an engine that follows the rules sends neither. The caller is in the lane, so the compared
// metadata is the metadata that is replaced.
//
// If an epoch lists a replica that is being rebuilt, the data of this replica is complete and flushed. So the same
// replacement of the metadata clears the rebuild mark. An epoch that was recorded before the rebuild started does not
// prove this, and is refused. If the rebuild started before this opening, writes between the end of the rebuild and now
// may be lost. Then the replica is not trusted more than before.
func (s *Session) recordEpoch(e membership.Epoch) error {
	r := s.replica
	r.mu.Lock()
	recorded, rebuilding := r.meta.Epoch, r.meta.Rebuilding
	r.mu.Unlock()
	if e.IsZero() {
		return invalid("an epoch must not be empty")
	}
	if err := s.layering.checkEpoch(); err != nil {
		return err
	}
	if err := validateEpoch(e, s.generation); err != nil {
		return invalid("%v", err)
	}
	switch order := e.Compare(recorded); {
	case order == 0 && e.Equal(recorded) && rebuilding && e.Has(r.name):
		return invalid("epoch %s was recorded before the rebuild started", e)
	case order == 0 && e.Equal(recorded):
		return nil
	case order <= 0:
		return invalid("epoch %s does not follow epoch %s", e, recorded)
	}
	e.Members = slices.Clone(e.Members)
	rebuilt, renewed := rebuilding && e.Has(r.name), false
	err := r.update(func(m *Meta) {
		m.Epoch = e
		if rebuilt {
			m.Rebuilding = false
		}
		if renewed = rebuilt && r.renewing && r.failure == nil; renewed {
			m.BootID = r.opts.BootID
		}
	})
	if err != nil {
		return fmt.Errorf("record epoch %s: %w", e, err)
	}
	if renewed {
		r.keep() // the rebuild wrote all data that may have been lost
	}
	r.changed()
	return nil
}

func (r *Replica) clearIntents(regions []int64) error {
	count := r.intents.regions()
	for _, i := range regions {
		if i < 0 || i >= count {
			return invalid("region %d does not exist: the replica has %d regions", i, count)
		}
	}
	// The engine has flushed the regions. If a write-out has failed since, it may concern data that this flush relied
	// on.
	if err := r.checkWrittenOut(); err != nil {
		return err
	}
	if err := r.since.add(regions); err != nil {
		r.fail(err)
		return err
	}
	r.writing.lock()
	err := r.intents.clear(regions)
	left := len(r.intents.marked())
	r.writing.unlock()
	switch {
	case err != nil:
		return r.failUnlessNoSpace(err)
	case left == 0:
		return r.trust() // data that may have been lost was written again, or no member has it
	}
	return nil
}

func invalid(format string, args ...any) error {
	return &nbd.Error{Errno: nbd.EINVAL, Msg: fmt.Sprintf(format, args...)}
}

func marshal(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode the control reply: %w", err)
	}
	return b, nil
}

func unmarshal(payload []byte, v any) error {
	if err := json.Unmarshal(payload, v); err != nil {
		return invalid("decode the control payload: %v", err)
	}
	return nil
}
