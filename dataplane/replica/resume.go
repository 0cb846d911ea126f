package replica

import (
	"errors"
	"fmt"
	"maps"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// An interrupted full copy is resumed by the means that exist for replicas that come back (since.go):
//
//	the replica     marks every region; then its base is the epoch in force, of which it was never a member
//	each member     starts a record: that replica is away since this epoch
//	the engine      clears the replica's marks of the regions that it has copied and flushed
//
// So the marks of the replica show which regions the copy has not done yet. The record of the members shows the changes
// since the copy ended. The metadata says "rebuilding" all the time: a release that does not know this mechanism
// believes nothing of the data.

// lackAll answers membership.OpLackAll. The order of its steps matters, because the members may have a record since the
// same epoch, from an earlier copy that got further. The caller is in the lane.
func (s *Session) lackAll(e membership.Epoch, sizeBytes int64) error {
	r := s.replica
	r.mu.Lock()
	m := r.meta
	r.mu.Unlock()
	if err := validateEpoch(e, s.generation); err != nil {
		return invalid("%v", err)
	}
	if e.IsZero() || e.Has(r.name) || !m.Rebuilding {
		return invalid("epoch %s cannot be the base of a copy", e)
	}
	if sizeBytes < 0 || sizeBytes > r.Size() {
		return invalid("the volume's size of %d bytes is larger than the replica", sizeBytes)
	}
	if sizeBytes == 0 {
		sizeBytes = r.Size()
	}
	inside := r.writing.enter()
	err := r.intents.mark(0, sizeBytes)
	inside.leave()
	if err != nil {
		return r.failUnlessNoSpace(fmt.Errorf("mark all regions: %w", err))
	}
	return r.putRecord(sinceRecord{Base: e}, m)
}

// beginRecord answers membership.OpAway. Repeating the same request is a success and starts no new record. The caller
// is in the lane.
func (r *Replica) beginRecord(a membership.Away) error {
	r.mu.Lock()
	m := r.meta
	r.mu.Unlock()
	if !a.Epoch.Equal(m.Epoch) || !m.Epoch.Has(r.name) || m.Rebuilding || a.Replica == "" || m.Epoch.Has(a.Replica) {
		return invalid("cannot start a record for replica %s with epoch %s: the replica's epoch is %s", a.Replica, a.Epoch, m.Epoch)
	}
	record := r.since.head.sinceRecord
	if last, known := record.Away[a.Replica]; known && last.Equal(a.Epoch) {
		return nil
	}
	record, ok := record.with(a)
	if !ok {
		return invalid("too many replicas are away")
	}
	return r.putRecord(record, m)
}

// with returns the record with one more replica that is away. While this replica is copied, the volume has one member
// less than it should have.
func (w sinceRecord) with(a membership.Away) (with sinceRecord, ok bool) {
	away := map[string]membership.Epoch{}
	maps.Copy(away, w.Away)
	away[a.Replica] = a.Epoch
	full := max(w.Full, len(a.Epoch.Members)+1)
	for _, last := range w.Away {
		full = max(full, len(last.Members))
	}
	return sinceRecord{Away: away, Full: full}, len(away) <= maxAway
}

// putRecord stores a record. If that fails, it removes the record, and the error is EINVAL. If the removal fails too,
// the replica fails.
func (r *Replica) putRecord(record sinceRecord, m Meta) error {
	err := r.since.put(record, m)
	if err == nil {
		return nil
	}
	if dropErr := r.since.drop(); dropErr != nil {
		r.fail(dropErr)
		return errors.Join(err, dropErr)
	}
	return invalid("start a record of changed regions: %v", err)
}
